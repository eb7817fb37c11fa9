"""A kubelet's life around its resource managers, without a clock: pods are admitted, containers start and stop, state
is collected, the kubelet restarts.

The managers decide; what they see depends on the order in which a kubelet calls them. `Kubelet` is that order
(cpu-topology 6.7, 9.2; memory-device 3.6; the operations of the recorded histories). Time passes only where `collect`
is called. State files are bytes in `files`; the caller writes them to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import NO_MIXED_SHARES, AdmissionContainer, AdmissionPod
from podslice.api.pod.mixed import MixedShare
from podslice.api.pod.spec import Pod, PodAllocation, allocation_of
from podslice.config.annotations import INVALID_KIND, MIXED, SMT, annotation_problems
from podslice.config.kubelet import KubeletConfig, fields_in
from podslice.config.mixed import count_without_remainder, make_admission_pod
from podslice.config.policy import NO_POLICY, Hotplug, PodslicePolicy
from podslice.config.reservation import NodeResources, node_resources
from podslice.machine.cores import whole_core_sums
from podslice.machine.delta import MachineConsequence
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node.container import ContainerManager
from podslice.node.cpu.manager import Content as CPUContent
from podslice.node.cpu.manager import ReconciledContainer
from podslice.node.cpu.state import Remembered
from podslice.node.devices.manager import Content as DeviceFile
from podslice.node.devices.manager import device_capacity
from podslice.node.devices.records import DeviceContent
from podslice.node.hotplug.machine_change import MachineChange, rules_on, visible_machine
from podslice.node.memory.manager import Content as MemoryContent
from podslice.node.resize.events import ResizeCondition
from podslice.node.resize.pending import ResizeQueue, SortKey, Waiting
from podslice.node.rules import NodeCounts, NodeRules, carry_over
from podslice.node.state import NodeState, RuntimeContainer
from podslice.node.view import ContainerView, NodeView, view_of
from podslice.scheduling.pod_features import pod_level_refusal
from podslice.scheduling.predicates import (
    NodeObject,
    OtherPods,
    PodOnNode,
    PodsOnNode,
    Verdict,
    amounts,
    general_predicates,
    pod_on_node,
)
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, Refusal, RefusalKind, UpstreamDefectError
from podslice.values.quirks import PODSLICE, Quirks
from podslice.values.reasons import AMOUNT_OVERFLOW
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT
from podslice.values.tables import drop, put_in

_OVERFLOW = RefusalKind("amount-too-large", "{problem}", AMOUNT_OVERFLOW)


class StartedContainer(NamedTuple):
    """A container at its start, with what it holds; `error`: why the start failed."""

    holds: ContainerView
    started: bool
    error: str = ""


class NodeCache(msgspec.Struct, frozen=True):
    """Derived data that goes with a state and can be recomputed: the state files by name, the managers' content as last
    encoded, and a view with the values it shows."""

    files: dict[str, bytes]
    cpu: CPUContent | None
    memory: MemoryContent | None
    device: DeviceFile | None
    remembered: Remembered
    mixed: dict[str, Mapping[str, MixedShare]]
    view: tuple[tuple[object, ...], NodeView] | None


class Kubelet:
    """One kubelet on one machine. The constructor and `restart` raise `StartError`; then `manager` shows how far the
    start came, `running` is False, and only `restart` can follow."""

    __slots__ = (
        "_device_content",
        "_queue",
        "_resources",
        "_rules",
        "_view",
        "_waiting",
        "cgroup_version",
        "conditions",
        "config",
        "devices",
        "files",
        "granted",
        "machine",
        "manager",
        "policy",
        "predicates",
        "preempted",
        "quirks",
        "release",
        "running",
        "seen",
        "statuses",
        "to_readmit",
        "unmanaged",
    )

    def __init__(
        self,
        machine: Machine,
        config: KubeletConfig,
        quirks: Quirks,
        *,
        devices: DeviceInventory | None = None,
        files: Mapping[str, bytes] | None = None,
        predicates: bool = False,
        cgroup_version: int = 2,
        policy: PodslicePolicy = NO_POLICY,
        release: Release = DEFAULT,
    ) -> None:
        self.release = release
        self.cgroup_version = cgroup_version
        self.policy = policy
        self.predicates = predicates
        self.preempted: tuple[str, ...] = ()
        self.seen = PodsOnNode()
        self.to_readmit: frozenset[str] = frozenset()
        """UIDs of running pods that are yet to be readmitted: they do not count for those before them."""
        self.granted: dict[str, PodAllocation] = {}
        self.conditions: dict[str, ResizeCondition] = {}
        self._rules: NodeRules | None = None
        self._resources: NodeCounts | None = None
        self._view: tuple[tuple[object, ...], NodeView] | None = None
        self.devices = DeviceInventory() if devices is None else devices
        self.quirks = quirks
        self.machine = machine
        config = fields_in(config, release)
        self.config = config
        self.files: dict[str, bytes] = dict(files or {})
        self.statuses: dict[str, dict[str, RuntimeContainer]] = {}
        self.unmanaged: frozenset[str] = frozenset()
        """UIDs of pods that run since before the gate PodLevelResourceManagers was turned on."""
        self.running = False
        self._device_content: DeviceContent | None = None
        self.manager = ContainerManager(machine, config, quirks, self.devices, policy, release)
        self._queue: ResizeQueue | None = None
        self._waiting = Waiting()

    @property
    def corrects_upstream(self) -> bool:
        """Whether the kubelet runs as profile `podslice`, without upstream's defects, and does not predict an upstream
        kubelet."""
        return self.quirks == PODSLICE

    @property
    def undoes_refusals(self) -> bool:
        """Whether a refused pod leaves nothing behind."""
        return not self.quirks.refused_pods_leave_state

    @classmethod
    def of(cls, rules: NodeRules, state: NodeState, cache: NodeCache | None = None) -> Kubelet:
        """Return a kubelet that runs with these rules in this state; without `cache` it has no files yet."""
        # Without `__init__`, which starts managers on files: deciding makes a kubelet for each state.
        made = cls.__new__(cls)
        made._rules = rules
        made.cgroup_version, made.predicates = rules.cgroup_version, rules.predicates
        made.devices, made.release, made.quirks = rules.inventory, rules.release, rules.quirks
        made.machine, made.config, made.policy = rules.machine, rules.config, rules.policy
        made.preempted = ()
        made.to_readmit = frozenset()
        made._resources = rules.counted
        made._device_content = None
        made._view = None if cache is None else cache.view
        made.running = True
        manager = made.manager = ContainerManager.of(rules, state)
        made._queue = None
        made._hold(state)
        made.files = {}
        if cache is not None:
            made.files, manager.remembered, manager.filed_mixed = cache.files, cache.remembered, cache.mixed
            manager.cpu.filed, manager.memory.filed, manager.device.filed = cache.cpu, cache.memory, cache.device
        return made

    def start(self) -> None:
        """Start the managers on `files`. Raises `StartError`."""
        self.manager.start(self.files)
        self.machine = self.manager.machine
        self.manager.register_plugins()
        if not self.manager.restored:
            self.manager.remove_stale()
        self.save()
        self.running = True

    @property
    def rules(self) -> NodeRules:
        """The rules of this kubelet, once it has started."""
        if self._rules is None:
            manager = self.manager
            self._rules = NodeRules(
                machine=self.machine,
                config=self.config,
                policy=self.policy,
                release=self.release,
                quirks=self.quirks,
                inventory=self.devices,
                gates=manager.context.gates,
                reservation=manager.reservation or {},
                restored=manager.restored,
                cpu=manager.cpu.rules,
                memory=manager.memory.rules,
                machine_nodes=manager.device.machine_nodes,
                merger=manager.topology.merger,
                predicates=self.predicates,
                cgroup_version=self.cgroup_version,
                counted=self._count_resources(),
            )
        return self._rules

    def change_machine(self, machine: Machine, policy: Hotplug) -> tuple[MachineConsequence, ...]:
        """Change the machine, and return the consequences for the pods; empty where the managers see no difference.
        Raises `StartError` for a machine on which nothing can run; then nothing changes."""
        known = self.manager.cpu.topology.all_cpus | self.manager.cpu.state.offline
        machine = visible_machine(self.rules, known, machine, policy)
        if machine == self.machine:
            return ()
        before = self.machine
        self._apply_rules(rules_on(self.rules, machine))
        return MachineChange(self.manager, before, policy).carry_out()

    def _apply_rules(self, rules: NodeRules) -> None:
        """Replace the rules and keep the state."""
        old = self.manager
        manager = ContainerManager.of(rules, self.state)
        manager.context.metrics = old.context.metrics
        manager.cpu.filed, manager.memory.filed = old.cpu.filed, old.memory.filed
        manager.device.filed = old.device.filed
        manager.remembered, manager.filed_mixed = old.remembered, old.filed_mixed
        self.manager, self.machine, self.policy = manager, rules.machine, rules.policy
        self._rules, self._resources, self._view = None, None, None

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Replace the policy; all holdings stay. Raises `StartError` where a kubelet would not start with it on the
        present holdings; then nothing changes."""
        self.save()
        started = Kubelet(
            self.machine,
            self.config,
            self.quirks,
            devices=self.devices,
            files=self.files,
            predicates=self.predicates,
            cgroup_version=self.cgroup_version,
            policy=policy,
            release=self.release,
        )
        # Whether a kubelet could start with the policy is found out by starting one.
        started.start()
        self._apply_rules(carry_over(self.rules, started.rules))

    def replace_lost(self, policy: Hotplug) -> tuple[MachineConsequence, ...]:
        """Look for other CPUs for owners of lost ones again, with the same rules."""
        return MachineChange(self.manager, self.machine, policy).carry_out()

    def save(self) -> None:
        """Update `files` from the managers' state."""
        changed = self.manager.changed_files()
        if changed:
            self.files = {**self.files, **changed}

    # The state, as a value

    @property
    def state(self) -> NodeState:
        """All that changes on the node. Setting it puts the node into that state."""
        manager = self.manager
        context = manager.context
        return NodeState(
            context.active,
            self.statuses,
            self.unmanaged,
            manager.cpu.state,
            manager.memory.state,
            manager.device.state,
            manager.topology.state,
            self._waiting if self._queue is None else self._queue.state,
            self.granted,
            self.conditions,
            context.leftovers,
            context.sources_ready,
            self.seen,
            context.pending,
        )

    @state.setter
    def state(self, state: NodeState) -> None:
        self.manager.set_state(state)
        self._hold(state)
        if self._queue is not None:
            self._queue.state = state.resizes

    def _hold(self, state: NodeState) -> None:
        self.statuses, self.unmanaged, self.seen = state.statuses, state.unmanaged, state.seen
        self.granted, self.conditions, self._waiting = state.granted, state.conditions, state.resizes

    @property
    def cache(self) -> NodeCache:
        """Derived data that goes with the state."""
        manager = self.manager
        return NodeCache(
            self.files,
            manager.cpu.filed,
            manager.memory.filed,
            manager.device.filed,
            manager.remembered,
            manager.filed_mixed,
            self._view,
        )

    def copy(self) -> Kubelet:
        """Return an independent kubelet in the same state."""
        other = Kubelet.of(self.rules, self.state, self.cache)
        other.preempted, other._device_content = self.preempted, self._device_content
        context, mine = other.manager.context, self.manager.context
        context.metrics, context.search_budget = mine.metrics.copy(), mine.search_budget
        context.ended_early, context.unaligned = mine.ended_early, mine.unaligned
        if self._queue is not None:
            other.resizes.metrics = self._queue.metrics.copy()
        return other

    @property
    def active(self) -> dict[str, AdmissionPod]:
        """Pods on the node, in order of first admission."""
        return self.manager.context.active

    @property
    def view(self) -> NodeView:
        """The node as it is now; the view does not change when the node does."""
        manager, context = self.manager, self.manager.context
        now = manager.cpu.state, manager.memory.state, manager.device.state, context.active, self.unmanaged
        if self._view is None or not all(map(is_, now, self._view[0])):
            self._view = (
                now,
                view_of(
                    manager,
                    self.node_resources(),
                    self.unmanaged,
                    predicates=self.predicates,
                    undoes_refusals=self.undoes_refusals,
                    cgroup_version=self.cgroup_version,
                ),
            )
        return self._view[1]

    # Pods

    def admit(self, pod: Pod) -> Refusal | None:
        """Decide about one pod; None when it is admitted. A refused pod leaves the node again.

        With `predicates`, the handlers after the resource managers decide too; pods that a critical pod preempts are
        removed and named in `preempted`.
        """
        return self.decide(self.admission(pod))

    def decide(
        self,
        admission: AdmissionPod,
        seen: PodOnNode | None = None,
        *,
        stays: AdmissionPod | None = None,
        state: NodeState | None = None,
    ) -> Refusal | None:
        """As `admit`, for a pod in the managers' view; `seen` is the predicates' view of it if that is known, and
        `state` the present state if the caller has just set it.

        When the pod is refused, the managers hold what they held before, without what gone pods held; upstream keeps
        what they gave the pod until it is collected. The pod leaves the node, or stays with its former specification
        `stays`.
        """
        manager, context = self.manager, self.manager.context
        context.begin()
        admission = self._drop_unusable_annotations(admission)
        before = None
        if self.undoes_refusals:
            if context.leftovers or state is None:
                manager.remove_stale()
                state = self.state
            before = state, {**context.metrics}
        # The other pods as they are before this one: `activate` would count it among them.
        there = self.see_pods() if self.predicates else None
        new = admission.uid not in context.active
        context.activate(admission)
        try:
            self._refuse_early(admission, new=new)
            manager.shrink(admission, stays or admission)
            manager.topology.admit(admission)
            if there is not None:
                self._run_later_handlers(admission, there, seen or self._on_node(admission))
        except AdmissionError as error:
            if before is not None:
                self.state, counted = before
                context.uncount(counted)
            self._undo_activation(admission.uid, stays)
            return error.refusal
        except UpstreamDefectError:
            self._undo_activation(admission.uid, stays)
            raise
        return None

    def _undo_activation(self, uid: str, stays: AdmissionPod | None) -> None:
        if stays is None:
            self._leave(uid)
        else:
            self.manager.context.activate(stays)

    def rehearse(self, admission: AdmissionPod, others: OtherPods | None = None, *, judged: bool = True) -> bool:
        """Return whether `decide` would admit the pod, preempt no other, and its containers would start. The state is
        restored.

        `others` are the pods on the node, for callers that rehearse many pods among the same ones. With `judged` False
        only the resource managers decide, and `accepts` covers the rest.
        """
        context, manager, uid = self.manager.context, self.manager, admission.uid
        manager.remove_stale()
        before, counted = self.state, context.metrics
        others = (others or self.others(uid)) if judged and self.predicates else None
        # Notes are about the latest admission; a rehearsal may not replace them.
        notes = context.ended_early, context.unaligned
        context.metrics = counted.copy()
        context.begin()
        admission = self._drop_unusable_annotations(admission)
        new = uid not in context.active
        context.activate(admission)
        try:
            self._refuse_early(admission, new=new)
            manager.topology.admit(admission)
            if others is not None and self._later_verdict(admission, others, self._on_node(admission)).victims:
                return False
            for container in admission.containers:
                manager.device.prepare(admission, container, manager.topology.affinity(uid, container.name))
            return True
        except (AdmissionError, UpstreamDefectError):
            return False
        finally:
            self.state = before
            context.metrics = counted
            context.ended_early, context.unaligned = notes

    def accepts(self, admission: AdmissionPod, others: OtherPods | None, view: PodOnNode) -> bool:
        """Whether the handlers after the resource managers admit a pod without devices and without preempting another.
        `view` is the pod as the predicates see it."""
        try:
            if not self.predicates:
                return True
            return not self._later_verdict(admission, others or self.others(admission.uid), view).victims
        except AdmissionError:
            return False

    def others(self, uid: str = "") -> OtherPods:
        """Return the pods on the node without the one with this UID, as the predicates see them."""
        return self.see_pods().others_of(uid)

    def _refuse_early(self, admission: AdmissionPod, *, new: bool) -> None:
        """Raise `AdmissionError` for what podslice alone refuses, before any manager looks for room. A pod that is on
        the node already stays, whatever the policy now says about its annotations."""
        if (
            new
            and self.policy is not NO_POLICY
            and self.policy.annotations.invalid == "refuse"
            and self.corrects_upstream
        ):
            for one in annotation_problems(self.policy, admission.spec):
                raise AdmissionError(INVALID_KIND, key=one.key, problem=one.problem)
        if new and admission.mixed and (crowd := self.explain_mixed_surplus(admission)):
            raise AdmissionError(INVALID_KIND, key=MIXED, problem=crowd)
        if new and admission.hides_smt and (problem := self.explain_part_of_core(admission)):
            raise AdmissionError(INVALID_KIND, key=SMT, problem=problem)
        if admission.overflow and not self.quirks.amounts_wrap:
            raise AdmissionError(_OVERFLOW, problem=admission.overflow)

    def explain_mixed_surplus(self, pod: AdmissionPod) -> str:
        """Return why no more containers may share CPUs without requesting part of one; empty where these may."""
        free = 0 if self.policy.mixed is None else self.policy.mixed.free
        mine = count_without_remainder((pod,))
        others = (one for uid, one in self.active.items() if uid != pod.uid) if mine else ()
        if not mine or count_without_remainder(others) + mine <= free:
            return ""
        return f"leaves a container nothing to share, and {free} on the node share without already (mixed.free)"

    def explain_part_of_core(self, pod: AdmissionPod) -> str:
        """Return why containers cannot run on one thread of each of their cores; empty where they can."""
        cpu = self.manager.cpu
        for one in pod.containers:
            if one.hides_smt and cpu.static:
                sums = whole_core_sums(cpu.topology, cpu.topology.all_cpus, one.exclusive_cpus)
                if not sums >> one.exclusive_cpus & 1:
                    return f"is about container {one.name}, whose {one.exclusive_cpus} CPUs are not whole cores"
        return ""

    def _drop_unusable_annotations(self, pod: AdmissionPod) -> AdmissionPod:
        """Return the pod without annotations that the node cannot follow, where the policy ignores wrong
        annotations."""
        if self.policy.annotations.invalid != "ignore" or pod.uid in self.active:
            return pod
        if pod.hides_smt and self.explain_part_of_core(pod):
            containers = tuple(replace(one, hides_smt=False) for one in pod.containers)
            pod = replace(pod, containers=containers, hides_smt=False)
        if not pod.mixed or not self.explain_mixed_surplus(pod):
            return pod
        containers = tuple(replace(one, remainder=None) if one.remainder == 0 else one for one in pod.containers)
        return replace(pod, containers=containers, mixed=any(one.mixed for one in containers))

    def _run_later_handlers(self, pod: AdmissionPod, there: PodsOnNode, view: PodOnNode) -> None:
        """Run the admission handlers after the resource managers, and remove the pods that are preempted. Raises
        `AdmissionError`."""
        verdict = self._later_verdict(pod, there.others_of(pod.uid), view)
        self.seen = there.with_pod(pod.uid, view, self.manager.context.active)
        self.preempted = verdict.victims
        for uid in verdict.victims:
            self.remove_pod(uid)

    def _later_verdict(self, pod: AdmissionPod, others: OtherPods, view: PodOnNode) -> Verdict:
        """Return the verdict of the general predicates and pod features, in the kubelet's order (memory-device 3.2).
        Raises `AdmissionError`."""
        device = self.manager.device
        # Devices that the managers have just given this pod are in use now, unlike its other resources.
        in_use = device.count_in_use() if pod.uid in device.state.records else None
        verdict = general_predicates(view, others, self._count_resources().node, devices_in_use=in_use)
        if verdict.refusal is not None:
            raise AdmissionError(verdict.refusal.kind, **verdict.refusal.facts)
        context = self.manager.context
        if not pod.pod_level:
            return verdict
        if not (context.sources_ready or context.gates["PodLevelResources"] or self.quirks.running_pods_need_the_gate):
            return verdict
        unsupported = pod_level_refusal(
            pod.spec,
            context.gates,
            self.quirks,
            os=self.machine.operating_system,
            cgroup_version=self.cgroup_version,
            release=self.release,
        )
        if unsupported is not None:
            raise AdmissionError(unsupported.kind, **unsupported.facts)
        return verdict

    @property
    def resizes(self) -> ResizeQueue:
        """In-place resizes that wait (`node.node_resize` tries them); the queue is made at its first use."""
        if self._queue is None:
            self._queue = ResizeQueue(self.manager.context.gates, self._waiting)
        return self._queue

    def allocations(self) -> dict[str, PodAllocation]:
        """Return the kubelet's record of granted resources, by pod UID (`allocated_pods_state`)."""
        gates = self.manager.context.gates
        return {uid: allocation_of(pod.spec, gates) for uid, pod in self.active.items()}

    def see_pods(self) -> PodsOnNode:
        """Return the pods on the node as the predicates see them."""
        active = self.manager.context.active
        if self.seen.active is not active:
            pods = {uid: self._on_node(pod) for uid, pod in active.items() if uid not in self.to_readmit}
            self.seen = PodsOnNode(active, pods, OtherPods.of(tuple(pods.values())).used)
        return self.seen

    def _on_node(self, pod: AdmissionPod) -> PodOnNode:
        """Return the predicates' view of a pod, computed once per specification."""
        known = self.seen.pods.get(pod.uid)
        if known is None or known.pod is not pod.spec:
            known = pod_on_node(pod.spec, self.manager.context.gates, self.quirks, qos=pod.qos)
        return known

    def node_resources(self) -> NodeResources:
        """Return capacity and allocatable as the Node object shows them."""
        return self._count_resources().resources

    def _count_resources(self) -> NodeCounts:
        """Return capacity, allocatable and the node as the predicates see it, computed anew when device lists
        changed."""
        pools = self.manager.device.state.pools
        # Pools are replaced, never changed, so identity tells whether they are the same.
        if self._resources is None or self._resources.pools is not pools:
            report = device_capacity(pools)
            found = node_resources(
                self.machine,
                self.config,
                self.manager.reservation or {},
                device_capacity=report.capacity,
                device_allocatable=report.allocatable,
            )
            node = NodeObject(found.allocatable, amounts=amounts(found.allocatable))
            self._resources = NodeCounts(pools, found, node)
        return self._resources

    def remove_pod(self, uid: str) -> None:
        """Remove a pod: its containers stop, then it leaves the active pods."""
        topology = self.manager.topology
        # Upstream drops the Topology Manager's hints container by container, and only of containers it has ids for.
        if not self.quirks.reuse_outlives_pod:
            topology.state = topology.state.forget(uid)
        else:
            for status in self.statuses.get(uid, {}).values():
                if not status.removed:
                    topology.remove_container(uid, status.id)
        self._leave(uid)

    def _leave(self, uid: str) -> None:
        """Remove a pod from everything but the managers' states, which drop it at the next clean-up."""
        context = self.manager.context
        before = context.active
        context.deactivate(uid)
        # The predicates' view belongs to exactly one table of pods.
        if self.seen.active is before:
            self.seen = self.seen.without(uid, context.active)
        self.statuses = drop(self.statuses, uid)
        if uid in self.unmanaged:
            self.unmanaged -= {uid}
        if self._queue is not None or self._waiting.pending:
            self.resizes.drop(uid)
        if self.granted or self.conditions:
            self.granted, self.conditions = drop(self.granted, uid), drop(self.conditions, uid)

    # Containers

    def start_containers(self, uid: str, limit: int | None = None) -> dict[str, StartedContainer]:
        """Start the pod's containers in order, at most `limit`; plain init containers start and end at once. Containers
        that run or have ended are left alone, removed ones start again."""
        pod = self.active[uid]
        results: dict[str, StartedContainer] = {}
        for position, container in enumerate(pod.containers):
            if limit is not None and position >= limit:
                break
            status = self.statuses.get(uid, {}).get(container.name)
            if status is None or status.removed:
                results[container.name] = self.start_container(uid, container.name)
        for container in pod.containers:
            if container.name not in results:
                started = container.name in self.statuses.get(uid, {})
                results[container.name] = StartedContainer(self.inspect(pod, container), started)
        return results

    def admission(self, pod: Pod) -> AdmissionPod:
        """Return the managers' view of a pod."""
        uid, gates, unmanaged = pod.metadata.uid, self.manager.context.gates, pod.metadata.uid in self.unmanaged
        there, filed = self.active.get(uid), self.manager.filed_mixed.get(uid, NO_MIXED_SHARES)
        rules = self.policy
        if rules.mixed is None and not rules.cpu_classes and not filed and (there is None or not there.mixed):
            return AdmissionPod.of(pod, gates, unmanaged=unmanaged, release=self.release)
        known = filed if there is None else there.mixed_shares
        return make_admission_pod(rules, pod, gates, unmanaged=unmanaged, known=known, release=self.release)

    @property
    def sort_key(self) -> SortKey | None:
        """Key by which plugins sort pods that wait together; None where no plugin sorts."""
        calls = self.manager.cpu.calls
        if calls is None or not calls.profile.sorts:
            return None
        return lambda pod: calls.sort_key(self.admission(pod))

    def start_container(self, uid: str, name: str) -> StartedContainer:
        """Start or restart one container, in the order of the kubelet's runtime manager (memory-device 3.6)."""
        pod = self.active[uid]
        container = next(c for c in pod.containers if c.name == name)
        manager = self.manager
        # The runtime gets the sets from before the start, which ends a plain init container and frees its memory.
        affinity, memory_nodes = manager.cpu.affinity(uid, name), manager.memory.numa_nodes(uid, name)
        error = self._run(pod, container, self.statuses.get(uid, {}).get(name))
        if error:
            return StartedContainer(self.inspect(pod, container), started=False, error=error)
        holds = self.inspect(pod, container)._replace(cpus=affinity, memory_nodes=memory_nodes)
        return StartedContainer(holds, started=True)

    def run_containers(self, uid: str) -> None:
        """As `start_containers`, without the results."""
        pod, known = self.manager.context.active[uid], self.statuses.get(uid, {})
        for container in pod.containers:
            status = known.get(container.name)
            if status is None or status.removed:
                self._run(pod, container, status)

    def _run(self, pod: AdmissionPod, container: AdmissionContainer, known: RuntimeContainer | None) -> str:
        """Start or restart a container; return why it cannot start, empty where it does."""
        uid, name = pod.uid, container.name
        restarts = known.restarts + 1 if known else 0
        container_id = f"{uid}_{name}_{restarts}"
        try:
            self.manager.device.prepare(pod, container, self.manager.topology.affinity(uid, name))
        except AdmissionError as error:
            return error.message
        self.manager.add_container(pod, container, container_id)
        status = RuntimeContainer(container_id, restarts, running=not container.plain_init)
        self.statuses = put_in(self.statuses, uid, name, status)
        return ""

    def take_over(self, uid: str) -> None:
        """Record that an earlier kubelet started the pod's containers: plain init containers have ended, the others
        run. Their holdings do not change, so memory that init containers left to be used again stays theirs."""
        for container in self.active[uid].containers:
            container_id = f"{uid}_{container.name}_0"
            self._set_status(uid, container.name, RuntimeContainer(container_id, running=not container.plain_init))
            self.manager.note_container(uid, container.name, container_id)

    def inspect(self, pod: AdmissionPod, container: AdmissionContainer) -> ContainerView:
        """Return what the managers hold for a container now, as `NodeView.container` does of a view."""
        cpu = self.manager.cpu
        cpus, own = cpu.affinity(pod.uid, container.name), cpu.exclusive_cpus(pod.uid, container.name)
        devices = self.manager.device.devices_of(pod.uid, container.name)
        exclusive = cpu.container_has_exclusive_cpus(pod, container)
        unthrottled = exclusive and not container.is_throttled(cpu.rules.mixed)
        return ContainerView(
            cpus=cpus,
            exclusive_cpus=own,
            memory_nodes=self.manager.memory.numa_nodes(pod.uid, container.name),
            isolation=cpu.isolation(pod, container),
            has_exclusive_cpus=exclusive,
            cpu_quota_disabled=unthrottled and self.manager.quota_can_be_disabled,
            blocks=self.manager.memory.blocks(pod.uid, container.name),
            devices={name: tuple(ids) for name, ids in devices.items()},
            shared_cpus=cpus & ~own if own and pod.mixed else 0,
        )

    def stop_container(self, uid: str, name: str) -> None:
        """Record that a dead container was removed from the runtime (memory-device 3.6)."""
        status = self.statuses.get(uid, {}).get(name)
        if status is not None:
            self.manager.topology.remove_container(uid, status.id)
            self._set_status(uid, name, replace(status, running=False, removed=True))

    def remove_container(self, uid: str, name: str) -> None:
        """Call the managers' removal by container id, which no 1.36 kubelet does (memory-device 3.6)."""
        status = self.statuses.get(uid, {}).get(name)
        if status is not None:
            self.manager.remove_container(uid, status.id)
            self._set_status(uid, name, replace(status, running=False))

    def _set_status(self, uid: str, name: str, status: RuntimeContainer) -> None:
        self.statuses = put_in(self.statuses, uid, name, status)

    # Housekeeping

    def collect(self) -> list[tuple[str, Bits]]:
        """Do one pass of everything a kubelet does periodically; return the runtime updates of the CPU Manager."""
        updates = self.manager.cpu.reconcile(self._running_containers())
        self.manager.memory.remove_stale()
        self.manager.device.remove_stale()
        return updates

    def _running_containers(self) -> Iterable[ReconciledContainer]:
        """Yield the containers of pods on the node that the runtime reported a status for."""
        for uid, pod in self.active.items():
            statuses = self.statuses.get(uid)
            if statuses is None:
                continue
            for container in pod.containers:
                status = statuses.get(container.name)
                if status is not None:
                    yield ReconciledContainer(uid, container.name, status.id, status.running)

    def restart(
        self,
        *,
        machine: Machine | None = None,
        config: KubeletConfig | None = None,
        devices: DeviceInventory | None = None,
        plugins_ready: bool = False,
        gone: Iterable[str] = (),
    ) -> None:
        """Start a new kubelet process on the same `files`, with the containers of the still active pods known to the
        runtime.

        Pods in `gone` were deleted in between; `plugins_ready`: device plugins register before pods are readmitted.
        Raises `StartError`. Call `readmission.readmit`, then `collect`.
        """
        for uid in gone:
            self._leave(uid)
        old, was_running, self._rules = self.manager, self.running, None
        self.machine = machine or self.machine
        self.config = config or self.config
        self.devices = devices if devices is not None else self.devices
        self.running = False
        self._view = None
        self.manager = ContainerManager(self.machine, self.config, self.quirks, self.devices, self.policy, self.release)
        context = self.manager.context
        if self._queue is not None:
            self._queue.gates = context.gates
        context.active = old.context.active
        self.files = dict(self.files)
        # Until all running pods are readmitted, nothing may count as gone.
        context.sources_ready = False
        running = {
            (uid, name) for uid, named in self.statuses.items() for name, status in named.items() if status.running
        }
        # A start that failed read no devices; those of the kubelet before it still count.
        if was_running:
            self._device_content = old.device.content()
        self.manager.start(self.files, self.container_ids(), devices=self._device_content, running=running)
        self.machine = self.manager.machine
        if plugins_ready:
            self.manager.register_plugins()
        self.save()
        self.running = True

    def container_ids(self) -> dict[str, tuple[str, str]]:
        """Return the latest container ids known to the runtime, mapped to (pod UID, container name)."""
        return {status.id: (uid, name) for uid, statuses in self.statuses.items() for name, status in statuses.items()}

    def sources_ready(self) -> None:
        """Note that all pod sources have reported and the device plugins are back: from now on pods that are not active
        count as gone."""
        self.manager.context.sources_ready = True
        self.manager.context.mark_all_leftovers()
        self.manager.register_plugins()
