"""A bench: a node on which pods are tried; every trial is a real admission, and is undone.

Sums are compared first. A pod that requests more CPUs, memory or anything else than the node has left in all is refused
whatever its place, so most trials cost no admission at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from podslice.advise.trial.trial import Trial
from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import HUGEPAGES_PREFIX, pod_requests
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.policy_options import BEST_EFFORT, NONE
from podslice.node.view import NodeView
from podslice.scheduling.predicates import BASIC_RESOURCES, PODS, OtherPods, PodOnNode, amounts, pod_on_node
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import Quirks


class PodNeeds(NamedTuple):
    """A pod, and what it takes to compare it quickly with what a node has left.

    `own_cpus`: exclusive CPUs of the containers that run together; `memory`: their bytes by resource; `requests`: the
    amounts that the predicates count. Pods of one `shape` and equal `sizes` are the same to the resource managers;
    `shape` None: the pod requests devices, and is not compared. `lone_memory`: the amounts of its only container, None
    where there are several; `view`: the pod as the predicates see it.
    """

    pod: Pod
    admission: AdmissionPod
    own_cpus: int
    memory: Mapping[str, int]
    requests: Mapping[str, int]
    critical: bool
    shape: tuple[object, ...] | None
    sizes: tuple[object, ...]
    lone_memory: tuple[tuple[str, int], ...] | None
    view: PodOnNode

    @classmethod
    def of(cls, pod: Pod, node: NodeView) -> PodNeeds:
        """Return what a pod needs on a node like this, once it has its defaults."""
        admission = node.admission(default_pod(pod, node.gates))
        spec = admission.spec
        view = pod_on_node(spec, node.gates, node.quirks)
        return cls(
            spec,
            admission,
            own_cpus=sum(one.exclusive_cpus for one in admission.containers if not one.plain_init),
            memory=_running_memory(admission, node.quirks),
            requests={**view.requests, PODS: 1},
            critical=is_critical(spec),
            shape=_with_policy_inputs(_shape(admission), spec, node),
            sizes=_sizes(admission),
            lone_memory=_lone_memory(admission),
            view=view,
        )


class Load(NamedTuple):
    """The least that pods hold, or the most that a node has left: exclusive CPUs, memory in the Memory Manager's
    ledger, and the amounts that the predicates count (pods among them)."""

    cpus: int
    memory: Mapping[str, int]
    requests: Mapping[str, int]


NOTHING = Load(0, {}, {})
_MOST_RANKED_NODES = 8


class Bench:
    """Tries pods on `trial`, which belongs to the bench from then on. In profiles where refused pods leave traces every
    trial takes a copy of its own."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._clean = trial.view.undoes_refusals
        self._others: OtherPods | None = None
        self._left: Load | None = None
        self._places: dict[object, bool] = {}
        self._owned_sums: tuple[tuple[int, ...], int] | None = None
        self._rooms: dict[str, list[int]] = {}

    @cached_property
    def _node(self) -> NodeView:
        """The node, which every trial leaves as it was; what removed pods held is free."""
        self._trial.free()
        return self._trial.view

    def admits(self, needs: PodNeeds) -> bool:
        """Whether the pod is admitted, its containers start, and no pod is preempted."""
        admission = needs.admission
        # With v1.36.2's quirks a refused pod leaves traces; a pod that is on the node already is admitted again on a
        # copy.
        if not self._clean or admission.uid in self._node.pods:
            return self._trial.copy().try_run(needs.pod)
        # Devices make pods differ in ways that the key does not hold.
        if needs.shape is None:
            return not self.is_too_small(needs) and self._trial.rehearse(admission, self._neighbours())
        key = (needs.shape, self._ranks(needs)) if self._node.binds_memory else needs.shape
        # Placement depends on the key alone, so it is tried once; the sums of the predicates are checked for every pod.
        if key not in self._places:
            if self.is_too_small(needs):
                return False
            self._places[key] = self._trial.rehearse(admission, judged=False)
        return self._places[key] and self._trial.accepts(admission, self._neighbours(), needs.view)

    def _ranks(self, needs: PodNeeds) -> tuple[object, ...]:
        """Return the rank of the pod's memory among the amounts that sets of NUMA nodes have, free or empty: amounts
        that exceed the same sets get the same hints. With several containers, or many NUMA nodes, return the amounts
        themselves."""
        machine = self._node.memory
        if needs.lone_memory is None or len(machine) > _MOST_RANKED_NODES:
            return needs.sizes
        return tuple(
            (name, amount > 0, bisect_left(self._room_of_sets(name), amount)) for name, amount in needs.lone_memory
        )

    def _room_of_sets(self, name: str) -> list[int]:
        known = self._rooms.get(name)
        if known is None:
            totals: set[int] = set()
            machine = self._node.memory.values()
            tables = [table for node in machine if (table := (node.memory_map or {}).get(name)) is not None]
            for amounts_there in ([t.free for t in tables], [t.allocatable for t in tables]):
                sums = {0}
                for amount in amounts_there:
                    sums |= {total + amount for total in sums}
                totals |= sums
            known = self._rooms[name] = sorted(totals)
        return known

    def is_too_small(self, needs: PodNeeds, beside: Load = NOTHING) -> bool:
        """Whether the node has too little left in all for the pod, with pods that hold `beside` on it as well. False
        proves nothing."""
        if not self._clean:
            return False
        if self._left is None:
            self._left = self._remaining()
        left = self._left
        if self._is_short_of_cpus(needs, left.cpus - beside.cpus) or self.is_too_scattered(needs):
            return True
        if self._node.binds_memory:
            for name, size in needs.memory.items():
                if size + beside.memory.get(name, 0) > left.memory.get(name, 0):
                    return True
        # A critical pod preempts others, so that sums of requests do not refuse it.
        if left.requests and not needs.critical:
            for name, amount in needs.requests.items():
                room = left.requests.get(name)
                if room is not None and amount > 0 and amount + beside.requests.get(name, 0) > room:
                    return True
        return False

    def _is_short_of_cpus(self, needs: PodNeeds, free: int) -> bool:
        pod = needs.admission
        if not self._node.pins_cpus or pod.ignored:
            return False
        cpus = pod.cpus if self._node.places_whole(pod) else needs.own_cpus
        return cpus > free if cpus else False

    def is_too_scattered(self, needs: PodNeeds, freed: Bits = 0) -> bool:
        """Whether too few CPUs are free in all, or on as many NUMA nodes as the policy allows, `freed` ones among them.
        False proves nothing."""
        pod, node = needs.admission, self._node
        if not self._clean or not node.pins_cpus or pod.ignored:
            return False
        free = (node.shared | freed) & ~node.reserved
        if self._is_short_of_cpus(needs, free.bit_count()):
            return True
        # These admit a pod wherever its CPUs lie; align-by-socket counts sockets, not NUMA nodes.
        if node.config.topology_manager_policy in (NONE, BEST_EFFORT) or node.cpu_options.align_by_socket:
            return False
        if node.cpu_classes is not None and not node.single_numa_node:
            return False
        on_nodes: list[int] = []
        for count in {pod.cpus} if node.aligns_pods else {one.exclusive_cpus for one in pod.containers}:
            width = 1 if node.single_numa_node else node.fewest_numa_nodes(count)
            if not on_nodes:
                nodes = node.topology.numa_nodes.values()
                on_nodes = sorted([(cpus & free).bit_count() for cpus in nodes], reverse=True)
            if count > sum(on_nodes[:width]):
                return True
        return False

    def may_own(self, count: int) -> bool:
        """Whether the sums leave so many CPUs for one container that is placed alone. True proves nothing."""
        node = self._node
        if not self._clean or not node.pins_cpus:
            return True
        if self._owned_sums is None:
            free = node.assignable
            self._owned_sums = node.topology.largest_sums(free), free.bit_count()
        sums, total = self._owned_sums
        if node.config.topology_manager_policy in (NONE, BEST_EFFORT) or node.cpu_options.align_by_socket or not sums:
            return count <= total
        width = 1 if node.single_numa_node else node.fewest_numa_nodes(count)
        return count <= sums[width - 1]

    def least_load(self, running: Iterable[PodNeeds]) -> Load:
        """Return the least that running pods would hold on this node. They may hold what another configuration assigned
        them, so the smaller of a budget and its containers counts."""
        cpus = 0
        memory: Amounts = {}
        requests: dict[str, int] = {}
        for needs in running:
            pod = needs.admission
            if self._node.pins_cpus and not pod.ignored:
                cpus += min(needs.own_cpus, pod.cpus) if pod.managed else needs.own_cpus
            for name, size in needs.memory.items() if self._node.binds_memory else ():
                memory[name] = memory.get(name, 0) + size
            for name, amount in needs.requests.items() if self._node.predicates else ():
                requests[name] = requests.get(name, 0) + amount
        return Load(cpus, memory, requests)

    def _neighbours(self) -> OtherPods | None:
        if self._others is None and self._node.predicates:
            self._others = self._trial.others()
        return self._others

    def _remaining(self) -> Load:
        memory: Amounts = {}
        for numa in self._node.memory.values():
            for name, table in (numa.memory_map or {}).items():
                memory[name] = memory.get(name, 0) + table.free
        others = self._neighbours()
        requests: dict[str, int] = {}
        if others is not None:
            allocatable = amounts(self._node.allocatable)
            requests = {name: amount - others.used.get(name, 0) for name, amount in allocatable.items()}
            requests[PODS] = allocatable.get(PODS, 0) - len(others.pods)
        return Load(self._node.assignable.bit_count(), memory, requests)


def _running_memory(pod: AdmissionPod, quirks: Quirks) -> Amounts:
    """Return the bytes by resource that the pod holds at least once it runs, under a static Memory Manager."""
    if not pod.guaranteed or pod.pod_level:
        return {}
    total: Amounts = {}
    try:
        for container in pod.containers:
            if not container.init:
                for name, size in container_memory(pod, container, quirks).items():
                    total[name] = total.get(name, 0) + size
    except AdmissionError:
        return {}
    return total


def _with_policy_inputs(shape: tuple[object, ...] | None, pod: Pod, node: NodeView) -> tuple[object, ...] | None:
    """Return the shape with the metadata that classes and plugins may look at as well."""
    policy, metadata = node.policy, pod.metadata
    if shape is None or not (policy.cpu_classes or policy.plugins.profile):
        return shape
    named = (tuple(sorted((some or {}).items())) for some in (metadata.annotations, metadata.labels))
    owners = tuple(one.kind for one in metadata.owner_references or ())
    return (*shape, metadata.namespace, *named, owners, pod.spec.priority, pod.spec.priority_class_name)


def _shape(pod: AdmissionPod) -> tuple[object, ...] | None:
    """Return what the CPU and Topology Managers see of a pod; None with devices."""
    containers = []
    for one in pod.containers:
        if any(not _is_counted(name) for name in one.spec.resources.limits or ()):
            return None
        containers.append((one.init, one.restartable, one.exclusive_cpus, one.guaranteed, one.isolated))
    return pod.qos, pod.pod_level, pod.managed, pod.ignored, pod.cpus, tuple(containers)


def _sizes(pod: AdmissionPod) -> tuple[object, ...]:
    """Return what the Memory Manager sees of a pod."""
    stanzas = [one.spec.resources for one in pod.containers]
    if pod.spec.spec.resources is not None:
        stanzas.append(pod.spec.spec.resources)
    return tuple(
        tuple((name, amount.nano) for name, amount in (stanza.requests or {}).items() if name != "cpu")
        for stanza in stanzas
    )


def _lone_memory(pod: AdmissionPod) -> tuple[tuple[str, int], ...] | None:
    if pod.pod_level or len(pod.containers) != 1:
        return None
    try:
        return tuple(sorted(container_memory(pod, pod.containers[0]).items()))
    except AdmissionError:
        return None


def _is_counted(name: str) -> bool:
    return name in BASIC_RESOURCES or name.startswith(HUGEPAGES_PREFIX)


def disruption(pod: AdmissionPod) -> tuple[bool, int, int, str]:
    """Return a sort key for the cost of losing a pod: critical pods last, then by CPUs owned and requested."""
    cpu = pod_requests(pod.spec).get("cpu")
    return is_critical(pod.spec), pod.cpus, cpu.milli_value() if cpu else 0, pod.uid
