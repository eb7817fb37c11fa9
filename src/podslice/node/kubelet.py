"""A kubelet's life around its resource managers, without a clock: pods come, containers start and stop, state is
collected, the kubelet restarts.

The managers decide; what they see depends on the order in which a kubelet calls them. `Kubelet` is that order
(cpu-topology 6.7, 9.2; memory-device 3.6; the operations of the recorded histories). Time passes only where
`collect` is called. State files are texts in `files`; writing them to a disk is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import NOBODY_MIXED, AdmissionContainer, AdmissionPod
from podslice.api.pod.mixed import MixedShare
from podslice.api.pod.spec import Pod, PodAllocation, allocation_of
from podslice.config.annotations import INVALID_KIND, MIXED, SMT, annotation_problems
from podslice.config.kubelet import KubeletConfig
from podslice.config.mixed import admission_of, without_remainder
from podslice.config.policy import NO_POLICY, Hotplug, PodslicePolicy
from podslice.config.reservation import NodeResources, node_resources
from podslice.machine.cores import sums_of
from podslice.machine.delta import MachineConsequence
from podslice.machine.devices import DeviceInventory
from podslice.machine.memory import Block
from podslice.machine.model import Machine
from podslice.node.container import ContainerManager
from podslice.node.cpu.manager import Content as CPUContent
from podslice.node.cpu.manager import ReconciledContainer
from podslice.node.cpu.state import Remembered
from podslice.node.devices.manager import Content as DeviceFile
from podslice.node.devices.manager import device_capacity
from podslice.node.devices.records import DeviceContent
from podslice.node.hotplug.machine_change import MachineChange, machine_for, rules_on
from podslice.node.memory.manager import Content as MemoryContent
from podslice.node.resize.events import ResizeCondition
from podslice.node.resize.pending import ResizeQueue, SortKey, Waiting
from podslice.node.rules import Counted, NodeRules, rules_under
from podslice.node.state import NodeState, RuntimeContainer
from podslice.node.view import NodeView, view_of
from podslice.scheduling.pod_features import pod_level_refusal
from podslice.scheduling.predicates import (
    NodeObject,
    Others,
    PodOnNode,
    Seen,
    Verdict,
    amounts,
    general_predicates,
    pod_on_node,
)
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, Refusal, RefusalKind, UpstreamDefectError
from podslice.values.quirks import PODSLICE, Quirks
from podslice.values.reasons import AMOUNT_OVERFLOW
from podslice.values.tables import drop, put_in

_OVERFLOW = RefusalKind("amount-too-large", "{problem}", AMOUNT_OVERFLOW)


class StartedContainer(NamedTuple):
    """What a container got when it started, or would get; `error` says why its start failed."""

    started: bool
    cpus: Bits
    memory_nodes: Bits
    exclusive_cpus: Bits
    isolation: str
    has_exclusive_cpus: bool
    cpu_quota_disabled: bool
    memory_blocks: tuple[Block, ...] = ()
    devices: Mapping[str, list[str]] = MappingProxyType({})
    error: str = ""


class Kept(msgspec.Struct, frozen=True):
    """What goes along with a state and can be made again: the state files by name, the content of the managers' ones as
    they were last made, and a view with what it shows."""

    files: dict[str, bytes]
    cpu: CPUContent | None
    memory: MemoryContent | None
    device: DeviceFile | None
    remembered: Remembered
    mixed: dict[str, Mapping[str, MixedShare]]
    view: tuple[tuple[object, ...], NodeView] | None


class Kubelet:
    """One kubelet on one machine. Raises `StartError` from the constructor and from `restart`; then `manager` shows
    how far the start came, `running` is False, and only `restart` is of use."""

    __slots__ = (
        "_device_content",
        "_queue",
        "_resources",
        "_rules",
        "_view",
        "_waiting",
        "cgroup_version",
        "coming",
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
        "running",
        "seen",
        "statuses",
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
    ) -> None:
        self.cgroup_version = cgroup_version
        self.policy = policy
        self.predicates = predicates
        self.preempted: tuple[str, ...] = ()
        self.seen = Seen()
        self.coming: frozenset[str] = frozenset()
        """UIDs of running pods that have yet to be admitted again: they do not count for those before them."""
        self.granted: dict[str, PodAllocation] = {}
        self.conditions: dict[str, ResizeCondition] = {}
        self._rules: NodeRules | None = None
        self._resources: Counted | None = None
        self._view: tuple[tuple[object, ...], NodeView] | None = None
        self.devices = DeviceInventory() if devices is None else devices
        self.quirks = quirks
        self.machine = machine
        self.config = config
        self.files: dict[str, bytes] = dict(files or {})
        self.statuses: dict[str, dict[str, RuntimeContainer]] = {}
        self.unmanaged: frozenset[str] = frozenset()
        """UIDs of pods that run since before the gate PodLevelResourceManagers was turned on."""
        self.running = False
        self._device_content: DeviceContent | None = None
        self.manager = ContainerManager(machine, config, quirks, self.devices, policy)
        self._queue: ResizeQueue | None = None
        self._waiting = Waiting()

    @property
    def fixes(self) -> bool:
        """It decides better than an upstream kubelet would, and does not predict one."""
        return self.quirks == PODSLICE

    @property
    def undoes_refusals(self) -> bool:
        """True where a refused pod leaves nothing behind."""
        return not self.quirks.refused_pods_leave_state

    @classmethod
    def of(cls, rules: NodeRules, state: NodeState, kept: Kept | None = None) -> Kubelet:
        """A kubelet that runs by these rules in this state. Without `kept` it has no files yet."""
        made = cls.__new__(cls)
        made._rules = rules
        made.cgroup_version, made.predicates = rules.cgroup_version, rules.predicates
        made.devices, made.quirks = rules.inventory, rules.quirks
        made.machine, made.config, made.policy = rules.machine, rules.config, rules.policy
        made.preempted = ()
        made.coming = frozenset()
        made._resources = rules.counted
        made._device_content = None
        made._view = None if kept is None else kept.view
        made.running = True
        manager = made.manager = ContainerManager.of(rules, state)
        made._queue = None
        made._hold(state)
        made.files = {}
        if kept is not None:
            made.files, manager.remembered, manager.filed_mixed = kept.files, kept.remembered, kept.mixed
            manager.cpu.filed, manager.memory.filed, manager.device.filed = kept.cpu, kept.memory, kept.device
        return made

    def start(self) -> None:
        """Bring the managers up on `files`. Raises `StartError`."""
        self.manager.start(self.files)
        self.machine = self.manager.machine
        self.manager.register_plugins()
        if not self.manager.restored:
            self.manager.remove_stale()
        self.save()
        self.running = True

    @property
    def rules(self) -> NodeRules:
        """What this kubelet decides by, once it has started."""
        if self._rules is None:
            manager = self.manager
            self._rules = NodeRules(
                machine=self.machine,
                config=self.config,
                policy=self.policy,
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
                counted=self._counted(),
            )
        return self._rules

    def change_machine(self, machine: Machine, policy: Hotplug) -> tuple[MachineConsequence, ...]:
        """The machine is another from now on; what follows for the pods. Nothing where it is the same to the managers.
        Raises `StartError` for a machine on which nothing can run; then nothing changes."""
        known = self.manager.cpu.topology.all_cpus | self.manager.cpu.state.offline
        machine = machine_for(self.rules, known, machine, policy)
        if machine == self.machine:
            return ()
        before = self.machine
        self._go_by(rules_on(self.rules, machine))
        return MachineChange(self.manager, before, policy).carry_out()

    def _go_by(self, rules: NodeRules) -> None:
        """Other rules from now on, in the same state."""
        old = self.manager
        manager = ContainerManager.of(rules, self.state)
        manager.context.metrics = old.context.metrics
        manager.cpu.filed, manager.memory.filed = old.cpu.filed, old.memory.filed
        manager.device.filed = old.device.filed
        manager.remembered, manager.filed_mixed = old.remembered, old.filed_mixed
        self.manager, self.machine, self.policy = manager, rules.machine, rules.policy
        self._rules, self._resources, self._view = None, None, None

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Decide by another policy from now on; what is held stays held. Raises `StartError` where a kubelet would not
        start with it on what this one holds; then nothing changes."""
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
        )
        started.start()
        self._go_by(rules_under(self.rules, started.rules))

    def replace_lost(self, policy: Hotplug) -> tuple[MachineConsequence, ...]:
        """Look again for other CPUs for owners of lost ones, by the same rules."""
        return MachineChange(self.manager, self.machine, policy).carry_out()

    def save(self) -> None:
        """Bring `files` up to date with the managers' state."""
        changed = self.manager.changed_files()
        if changed:
            self.files = {**self.files, **changed}

    # The state, as a value

    @property
    def state(self) -> NodeState:
        """All that changes on the node. Setting it takes the node there, whatever happened since."""
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
        )

    @state.setter
    def state(self, state: NodeState) -> None:
        self.manager.go_to(state)
        self._hold(state)
        if self._queue is not None:
            self._queue.state = state.resizes

    def _hold(self, state: NodeState) -> None:
        self.statuses, self.unmanaged, self.seen = state.statuses, state.unmanaged, state.seen
        self.granted, self.conditions, self._waiting = state.granted, state.conditions, state.resizes

    @property
    def kept(self) -> Kept:
        """What goes along with the state."""
        manager = self.manager
        return Kept(
            self.files,
            manager.cpu.filed,
            manager.memory.filed,
            manager.device.filed,
            manager.remembered,
            manager.filed_mixed,
            self._view,
        )

    def copy(self) -> Kubelet:
        """A kubelet in the same state, which goes its own way from now on."""
        other = Kubelet.of(self.rules, self.state, self.kept)
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
        """The node as it is now, for whoever wants to know; it stays as it is when the node changes."""
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

        With `predicates`, the handlers after the resource managers have their say too; pods that a critical pod pushes
        off the node are removed and named in `preempted`.
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
        """`admit`, for a pod in the managers' view; `seen` is the predicates' view of it, where that is known, and
        `state` the state that it was put into just now.

        When the pod is refused, the managers have what they had, but for what gone pods held; upstream leaves what they
        gave it until it is collected. The pod leaves the node, or is as it was before: `stays`.
        """
        manager, context = self.manager, self.manager.context
        context.begin()
        admission = self._without_surplus(admission)
        before = None
        if self.undoes_refusals:
            if context.leftovers or state is None:
                manager.remove_stale()
                state = self.state
            before = state, {**context.metrics}
        there = self.seen_now() if self.predicates else None
        new = admission.uid not in context.active
        context.activate(admission)
        try:
            self._refuse_unheard(admission, new=new)
            manager.shrink(admission, stays or admission)
            manager.topology.admit(admission)
            if there is not None:
                self._later_handlers(admission, there, seen or self._on_node(admission))
        except AdmissionError as error:
            if before is not None:
                self.state, counted = before
                context.uncount(counted)
            self._put_back(admission.uid, stays)
            return error.refusal
        except UpstreamDefectError:
            self._put_back(admission.uid, stays)
            raise
        return None

    def _put_back(self, uid: str, stays: AdmissionPod | None) -> None:
        if stays is None:
            self._leave(uid)
        else:
            self.manager.context.activate(stays)

    def rehearse(self, admission: AdmissionPod, others: Others | None = None, *, judged: bool = True) -> bool:
        """True when `decide` would admit the pod, push nobody off the node, and its containers would start. Everything
        is undone at once.

        `others` are the pods on the node, for callers that rehearse many pods among the same ones. With `judged` False
        only the resource managers are asked, and `accepts` says the rest.
        """
        context, manager, uid = self.manager.context, self.manager, admission.uid
        manager.remove_stale()
        before, counted = self.state, context.metrics
        others = (others or self.others(uid)) if judged and self.predicates else None
        told = context.ended_early, context.unaligned
        context.metrics = counted.copy()
        context.begin()
        admission = self._without_surplus(admission)
        new = uid not in context.active
        context.activate(admission)
        try:
            self._refuse_unheard(admission, new=new)
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
            context.ended_early, context.unaligned = told

    def accepts(self, admission: AdmissionPod, others: Others | None, view: PodOnNode) -> bool:
        """True when the handlers after the resource managers have nothing against a pod without devices, and nobody is
        pushed off the node. `view` is the pod as the predicates see it."""
        try:
            if not self.predicates:
                return True
            return not self._later_verdict(admission, others or self.others(admission.uid), view).victims
        except AdmissionError:
            return False

    def others(self, uid: str = "") -> Others:
        """The pods on the node but the one with this UID, as the predicates see them."""
        return self.seen_now().beside(uid)

    def _refuse_unheard(self, admission: AdmissionPod, *, new: bool) -> None:
        """What podslice alone refuses, before anybody looks for room. A pod that is on the node already stays, whatever
        the policy says about its annotations by now."""
        if new and self.policy is not NO_POLICY and self.policy.annotations.invalid == "refuse" and self.fixes:
            for one in annotation_problems(self.policy, admission.spec):
                raise AdmissionError(INVALID_KIND, key=one.key, problem=one.problem)
        if new and admission.mixed and (crowd := self.mixed_surplus(admission)):
            raise AdmissionError(INVALID_KIND, key=MIXED, problem=crowd)
        if new and admission.hides_smt and (problem := self.part_of_core(admission)):
            raise AdmissionError(INVALID_KIND, key=SMT, problem=problem)
        if admission.overflow and not self.quirks.amounts_wrap:
            raise AdmissionError(_OVERFLOW, problem=admission.overflow)

    def mixed_surplus(self, pod: AdmissionPod) -> str:
        """Why no more containers may share CPUs without asking for a part of one; empty where these may."""
        free = 0 if self.policy.mixed is None else self.policy.mixed.free
        mine = without_remainder((pod,))
        others = (one for uid, one in self.active.items() if uid != pod.uid) if mine else ()
        if not mine or without_remainder(others) + mine <= free:
            return ""
        return f"leaves a container nothing to share, and {free} on the node share without already (mixed.free)"

    def part_of_core(self, pod: AdmissionPod) -> str:
        """Why containers cannot run on one thread of each of their cores; empty where they can."""
        cpu = self.manager.cpu
        for one in pod.containers:
            if one.hides_smt and cpu.static:
                sums = sums_of(cpu.topology, cpu.topology.all_cpus, one.exclusive_cpus)
                if not sums >> one.exclusive_cpus & 1:
                    return f"is about container {one.name}, whose {one.exclusive_cpus} CPUs are no whole cores"
        return ""

    def _without_surplus(self, pod: AdmissionPod) -> AdmissionPod:
        """Where wrong annotations count for nobody, the pod without those that the node cannot heed."""
        if self.policy.annotations.invalid != "ignore" or pod.uid in self.active:
            return pod
        if pod.hides_smt and self.part_of_core(pod):
            containers = tuple(replace(one, hides_smt=False) for one in pod.containers)
            pod = replace(pod, containers=containers, hides_smt=False)
        if not pod.mixed or not self.mixed_surplus(pod):
            return pod
        containers = tuple(replace(one, remainder=None) if one.remainder == 0 else one for one in pod.containers)
        return replace(pod, containers=containers, mixed=any(one.mixed for one in containers))

    def _later_handlers(self, pod: AdmissionPod, there: Seen, view: PodOnNode) -> None:
        verdict = self._later_verdict(pod, there.beside(pod.uid), view)
        self.seen = there.seeing(pod.uid, view, self.manager.context.active)
        self.preempted = verdict.victims
        for uid in verdict.victims:
            self.remove_pod(uid)

    def _later_verdict(self, pod: AdmissionPod, others: Others, view: PodOnNode) -> Verdict:
        """General predicates and pod features, in the kubelet's order (memory-device 3.2)."""
        device = self.manager.device
        in_use = device.allocated() if pod.uid in device.state.records else None
        verdict = general_predicates(view, others, self._counted().node, devices_in_use=in_use)
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
        )
        if unsupported is not None:
            raise AdmissionError(unsupported.kind, **unsupported.facts)
        return verdict

    @property
    def resizes(self) -> ResizeQueue:
        """In-place resizes that wait (`node.node_resize` tries them); the queue is made when it is first needed."""
        if self._queue is None:
            self._queue = ResizeQueue(self.manager.context.gates, self._waiting)
        return self._queue

    def allocations(self) -> dict[str, PodAllocation]:
        """What the kubelet records as granted, by pod UID (`allocated_pods_state`)."""
        gates = self.manager.context.gates
        return {uid: allocation_of(pod.spec, gates) for uid, pod in self.active.items()}

    def seen_now(self) -> Seen:
        """The pods on the node as the predicates see them."""
        active = self.manager.context.active
        if self.seen.active is not active:
            pods = {uid: self._on_node(pod) for uid, pod in active.items() if uid not in self.coming}
            self.seen = Seen(active, pods, Others.of(tuple(pods.values())).used)
        return self.seen

    def _on_node(self, pod: AdmissionPod) -> PodOnNode:
        """The predicates' view of a pod, worked out once per specification."""
        known = self.seen.pods.get(pod.uid)
        if known is None or known.pod is not pod.spec:
            known = pod_on_node(pod.spec, self.manager.context.gates, self.quirks, qos=pod.qos)
        return known

    def node_resources(self) -> NodeResources:
        """Capacity and allocatable as the Node object shows them."""
        return self._counted().resources

    def _counted(self) -> Counted:
        pools = self.manager.device.state.pools
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
            self._resources = Counted(pools, found, node)
        return self._resources

    def remove_pod(self, uid: str) -> None:
        """The pod is gone: its containers stop, then it leaves the active pods."""
        topology = self.manager.topology
        if not self.quirks.reuse_outlives_pod:
            topology.state = topology.state.forget(uid)
        else:
            for status in self.statuses.get(uid, {}).values():
                if not status.removed:
                    topology.remove_container(uid, status.id)
        self._leave(uid)

    def _leave(self, uid: str) -> None:
        context = self.manager.context
        before = context.active
        context.deactivate(uid)
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
        """Start the pod's containers in order, at most `limit`; plain init containers start and end at once.
        Containers that run or have ended are left alone, ones that were removed start again."""
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
                results[container.name] = self.inspect(
                    pod, container, started=container.name in self.statuses.get(uid, {})
                )
        return results

    def admission(self, pod: Pod) -> AdmissionPod:
        """The managers' view of a pod."""
        uid, gates, unmanaged = pod.metadata.uid, self.manager.context.gates, pod.metadata.uid in self.unmanaged
        there, filed = self.active.get(uid), self.manager.filed_mixed.get(uid, NOBODY_MIXED)
        rules = self.policy
        if rules.mixed is None and not rules.cpu_classes and not filed and (there is None or not there.mixed):
            return AdmissionPod.of(pod, gates, unmanaged=unmanaged)
        known = filed if there is None else there.mixed_shares
        return admission_of(rules, pod, gates, unmanaged=unmanaged, known=known)

    @property
    def sort_key(self) -> SortKey | None:
        """How plugins sort pods that wait together; None where none says."""
        calls = self.manager.cpu.calls
        if calls is None or not calls.profile.sorts:
            return None
        return lambda pod: calls.sort_key(self.admission(pod))

    def start_container(self, uid: str, name: str) -> StartedContainer:
        """Start or restart one container, in the order of the kubelet's runtime manager (memory-device 3.6)."""
        pod = self.active[uid]
        container = next(c for c in pod.containers if c.name == name)
        manager = self.manager
        affinity, memory_nodes = manager.cpu.affinity(uid, name), manager.memory.numa_nodes(uid, name)
        error = self._run(pod, container, self.statuses.get(uid, {}).get(name))
        if error:
            return self.inspect(pod, container, started=False)._replace(error=error)
        return self.inspect(pod, container, started=True)._replace(cpus=affinity, memory_nodes=memory_nodes)

    def run_containers(self, uid: str) -> None:
        """`start_containers`, for who does not want to know what they got."""
        pod, known = self.manager.context.active[uid], self.statuses.get(uid, {})
        for container in pod.containers:
            status = known.get(container.name)
            if status is None or status.removed:
                self._run(pod, container, status)

    def _run(self, pod: AdmissionPod, container: AdmissionContainer, known: RuntimeContainer | None) -> str:
        """Start a container, or start it again; why it cannot, or nothing."""
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
        """The pod's containers were started by an earlier kubelet: plain init containers have ended, the others run.
        Nothing happens to what they hold, so memory that init containers were given again stays theirs."""
        for container in self.active[uid].containers:
            container_id = f"{uid}_{container.name}_0"
            self._set_status(uid, container.name, RuntimeContainer(container_id, running=not container.plain_init))
            self.manager.note_container(uid, container.name, container_id)

    def inspect(self, pod: AdmissionPod, container: AdmissionContainer, *, started: bool) -> StartedContainer:
        """What the managers hold for a container right now."""
        cpu = self.manager.cpu
        exclusive = cpu.container_has_exclusive_cpus(pod, container)
        unthrottled = exclusive and not container.is_throttled(cpu.rules.mixed)
        return StartedContainer(
            started=started,
            cpus=cpu.affinity(pod.uid, container.name),
            memory_nodes=self.manager.memory.numa_nodes(pod.uid, container.name),
            exclusive_cpus=cpu.exclusive_cpus(pod.uid, container.name),
            isolation=cpu.isolation(pod, container),
            has_exclusive_cpus=exclusive,
            cpu_quota_disabled=unthrottled and self.manager.quota_can_be_disabled,
            memory_blocks=self.manager.memory.blocks(pod.uid, container.name),
            devices=self.manager.device.devices_of(pod.uid, container.name),
        )

    def stop_container(self, uid: str, name: str) -> None:
        """A dead container is removed from the runtime (memory-device 3.6)."""
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
        """One pass of everything a kubelet does periodically; returns the runtime updates of the CPU Manager."""
        updates = self.manager.cpu.reconcile(self._running_containers())
        self.manager.memory.remove_stale()
        self.manager.device.remove_stale()
        return updates

    def _running_containers(self) -> Iterable[ReconciledContainer]:
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
        """A new kubelet process on the same `files`, with the still-active pods' containers known to the runtime.

        Pods in `gone` were deleted in between; `plugins_ready`: device plugins register before pods are re-admitted.
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
        self.manager = ContainerManager(self.machine, self.config, self.quirks, self.devices, self.policy)
        context = self.manager.context
        if self._queue is not None:
            self._queue.gates = context.gates
        context.active = old.context.active
        self.files = dict(self.files)
        context.sources_ready = False
        running = {
            (uid, name) for uid, named in self.statuses.items() for name, status in named.items() if status.running
        }
        if was_running:
            self._device_content = old.device.content()
        self.manager.start(self.files, self.container_ids(), devices=self._device_content, running=running)
        self.machine = self.manager.machine
        if plugins_ready:
            self.manager.register_plugins()
        self.save()
        self.running = True

    def container_ids(self) -> dict[str, tuple[str, str]]:
        """Latest container ids known to the runtime, mapped to (pod UID, container name)."""
        return {status.id: (uid, name) for uid, statuses in self.statuses.items() for name, status in statuses.items()}

    def sources_ready(self) -> None:
        """All sources have reported and the device plugins are back: what is not active from now on is gone."""
        self.manager.context.sources_ready = True
        self.manager.context.look_everywhere()
        self.manager.register_plugins()
