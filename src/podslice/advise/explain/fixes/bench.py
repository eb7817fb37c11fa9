"""A node to try pods on, as often as one likes: every try is a real admission, and is undone.

A look at the sums comes first. A pod that asks for more CPUs, memory or anything else than the node has left in all is
refused whatever its place, so most tries cost no admission at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from podslice.advise.trial.trial import Trial
from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.policy_options import BEST_EFFORT, NONE
from podslice.node.view import NodeView
from podslice.scheduling.predicates import BASIC_RESOURCES, PODS, Others, PodOnNode, amounts, pod_on_node
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import Quirks


class Asking(NamedTuple):
    """A pod that asks, and all that is needed to see quickly whether it can be had.

    `own_cpus`: exclusive CPUs of the containers that run together, `memory` their bytes by resource, `requests` what
    the predicates count. Pods of one `shape` and equal `sizes` are the same to the resource managers; `shape` None: it
    asks for devices, and is not compared. `lone_memory`: the amounts of its only container, None where there are
    several; `view` is the pod as the predicates see it.
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
    def of(cls, pod: Pod, node: NodeView) -> Asking:
        """What a pod asks for on a node like this, defaulted."""
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
            shape=_told_apart(_shape(admission), spec, node),
            sizes=_sizes(admission),
            lone_memory=_lone_memory(admission),
            view=view,
        )


class Load(NamedTuple):
    """What pods hold at least, or a node has left at most: exclusive CPUs, memory in the Memory Manager's ledgers, and
    what the predicates count (pods among it)."""

    cpus: int
    memory: Mapping[str, int]
    requests: Mapping[str, int]


NOTHING = Load(0, {}, {})
_MOST_RANKED_NODES = 8


class Bench:
    """Tries pods on `trial`, which belongs to the bench from then on. In profiles where refused pods leave traces
    every try takes a copy of its own."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._clean = trial.view.undoes_refusals
        self._others: Others | None = None
        self._left: Load | None = None
        self._places: dict[object, bool] = {}
        self._rooms: dict[str, list[int]] = {}

    @cached_property
    def _node(self) -> NodeView:
        """The node, which every try leaves as it was, with what gone pods held free."""
        self._trial.free()
        return self._trial.view

    def admits(self, asking: Asking) -> bool:
        """True when the pod is admitted, its containers start, and nobody is pushed off the node."""
        admission = asking.admission
        if not self._clean or admission.uid in self._node.pods:
            return self._trial.copy().lands(asking.pod)
        if self.lacks(asking):
            return False
        if asking.shape is None:
            return self._trial.rehearse(admission, self._neighbours())
        key = (asking.shape, self._ranks(asking)) if self._node.binds_memory else asking.shape
        if key not in self._places:
            self._places[key] = self._trial.rehearse(admission, judged=False)
        return self._places[key] and self._trial.accepts(admission, self._neighbours(), asking.view)

    def _ranks(self, asking: Asking) -> tuple[object, ...]:
        """Where the pod's memory stands among all that sets of NUMA nodes have, free or empty: amounts that exceed the
        same sets get the same hints. With several containers, or many NUMA nodes, the amounts themselves."""
        machine = self._node.memory
        if asking.lone_memory is None or len(machine) > _MOST_RANKED_NODES:
            return asking.sizes
        return tuple(
            (name, amount > 0, bisect_left(self._room_of_sets(name), amount)) for name, amount in asking.lone_memory
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

    def lacks(self, asking: Asking, beside: Load = NOTHING) -> bool:
        """True when the node has too little left in all for the pod, with pods that hold `beside` on it as well. False
        says nothing."""
        if not self._clean:
            return False
        if self._left is None:
            self._left = self._what_is_left()
        left = self._left
        if self._lacks_cpus(asking, left.cpus - beside.cpus) or self.misplaces(asking):
            return True
        if self._node.binds_memory:
            for name, size in asking.memory.items():
                if size + beside.memory.get(name, 0) > left.memory.get(name, 0):
                    return True
        if left.requests and not asking.critical:
            for name, amount in asking.requests.items():
                room = left.requests.get(name)
                if room is not None and amount > 0 and amount + beside.requests.get(name, 0) > room:
                    return True
        return False

    def _lacks_cpus(self, asking: Asking, free: int) -> bool:
        pod = asking.admission
        if not self._node.pins_cpus or pod.ignored:
            return False
        cpus = pod.cpus if self._node.places_whole(pod) else asking.own_cpus
        return cpus > free if cpus else False

    def misplaces(self, asking: Asking, freed: Bits = 0) -> bool:
        """True when too few CPUs are free in all, or on as many NUMA nodes as the policy allows, `freed` ones among
        them. False says nothing."""
        pod, node = asking.admission, self._node
        if not self._clean or not node.pins_cpus or pod.ignored:
            return False
        free = (node.shared | freed) & ~node.reserved
        if self._lacks_cpus(asking, free.bit_count()):
            return True
        if node.config.topology_manager_policy in (NONE, BEST_EFFORT) or node.cpu_options.align_by_socket:
            return False
        on_nodes: list[int] = []
        for count in {pod.cpus} if node.aligns_pods else {one.exclusive_cpus for one in pod.containers}:
            width = 1 if node.single_numa_node else node.topology.fewest_numa_nodes(count)
            if not on_nodes:
                nodes = node.topology.numa_nodes.values()
                on_nodes = sorted([(cpus & free).bit_count() for cpus in nodes], reverse=True)
            if count > sum(on_nodes[:width]):
                return True
        return False

    def load(self, running: Iterable[Asking]) -> Load:
        """The least that running pods would hold on this node. They may hold what another configuration gave them, so
        the smaller of a budget and its containers counts."""
        cpus = 0
        memory: Amounts = {}
        requests: dict[str, int] = {}
        for asking in running:
            pod = asking.admission
            if self._node.pins_cpus and not pod.ignored:
                cpus += min(asking.own_cpus, pod.cpus) if pod.managed else asking.own_cpus
            for name, size in asking.memory.items() if self._node.binds_memory else ():
                memory[name] = memory.get(name, 0) + size
            for name, amount in asking.requests.items() if self._node.predicates else ():
                requests[name] = requests.get(name, 0) + amount
        return Load(cpus, memory, requests)

    def _neighbours(self) -> Others | None:
        if self._others is None and self._node.predicates:
            self._others = self._trial.others()
        return self._others

    def _what_is_left(self) -> Load:
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
    """Bytes by resource that the pod has booked at least once it runs, by a static Memory Manager."""
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


def _told_apart(shape: tuple[object, ...] | None, pod: Pod, node: NodeView) -> tuple[object, ...] | None:
    """The shape with what classes and plugins may look at besides."""
    policy, metadata = node.policy, pod.metadata
    if shape is None or not (policy.cpu_classes or policy.plugins.profile):
        return shape
    named = (tuple(sorted((some or {}).items())) for some in (metadata.annotations, metadata.labels))
    owners = tuple(one.kind for one in metadata.owner_references or ())
    return (*shape, metadata.namespace, *named, owners, pod.spec.priority, pod.spec.priority_class_name)


def _shape(pod: AdmissionPod) -> tuple[object, ...] | None:
    """What the CPU and Topology Managers see of a pod; None with devices."""
    containers = []
    for one in pod.containers:
        if any(not _is_counted(name) for name in one.spec.resources.limits or ()):
            return None
        containers.append((one.init, one.restartable, one.exclusive_cpus, one.guaranteed, one.isolated))
    return pod.qos, pod.pod_level, pod.managed, pod.ignored, pod.cpus, tuple(containers)


def _sizes(pod: AdmissionPod) -> tuple[object, ...]:
    """What the Memory Manager sees of it."""
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
