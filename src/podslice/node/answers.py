"""Answers of nodes as values: states without names, holdings of pods, and cached answers.

A kubelet's decision about a new pod depends on its free CPUs, the ledgers of its memory and the devices in use, and not
on the names or ages of its pods. So a node's state here is that and no more, and nodes of a class in the same state
share it. The caller keeps the sums for the general predicates.

With profile `kubelet-1.36` a refused pod leaves things behind, and a state without names is not enough: there
`NamedAnswers` keep whole states and cache nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from podslice.api.server.defaults import default_pod
from podslice.config.mixed import make_admission_pod
from podslice.machine.memory import MachineState, NUMANodeState
from podslice.node.container import ContainerManager
from podslice.node.cpu.picking.picker import SMT_FRACTION
from podslice.node.cpu.state import CPUState, PodMemory
from podslice.node.decide import decide, release
from podslice.node.devices.state import DeviceState
from podslice.node.holding import Holding, holding_of
from podslice.node.memory.state import Blocks, MemoryState, free_blocks_in
from podslice.node.resize.pending import Waiting
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.node.topology.manager import TopologyState
from podslice.scheduling.pod_features import pod_level_refusal
from podslice.scheduling.predicates import PodsOnNode
from podslice.values.cpuset import Bits, union
from podslice.values.errors import AdmissionError, PodsliceError, Refusal, UpstreamDefectError
from podslice.values.quantity import Quantity
from podslice.values.reasons import AMOUNT_OVERFLOW

Question: TypeAlias = "int | tuple[int, PodHolding]"
"""A cache key: a shape that comes to a state, or a holding that leaves it."""
T = TypeVar("T", bound="NodeAnswer | FleetState")
_MOST_TABLES, _MOST_PLANS = 4096, 1024
_POD = "pod"
"""UID of the one pod that is decided about."""


class FleetState:
    """Everything that decides about a node's next pod. Equal states of a class are one object, with one number. `named`
    is the whole state where that is needed."""

    __slots__ = ("__weakref__", "cpus", "ledger", "machine", "named", "number", "used")

    def __init__(
        self,
        number: int,
        cpus: Bits,
        machine: MachineState,
        ledger: tuple[object, ...],
        used: tuple[Bits, ...],
        named: NodeState | None = None,
    ) -> None:
        self.number = number
        self.cpus = cpus
        """The node's shared pool (DEFAULT)."""
        self.machine = machine
        self.ledger = ledger
        """The contents of `machine` by node, as tuples that compare quickly."""
        self.used = used
        """Devices in use, by resource in the order of the class' state."""
        self.named = named


class PodHolding(NamedTuple):
    """One pod's holding on a node: CPUs, blocks of memory by holder in the order of their release, devices by resource.
    `uid` is set where whole states are kept."""

    cpus: Bits
    blocks: tuple[Blocks, ...]
    devices: tuple[Bits, ...]
    uid: str = ""

    @property
    def owns(self) -> bool:
        """Whether the pod owns CPUs or devices."""
        return bool(self.cpus or any(self.devices))


class NodeAnswer(NamedTuple):
    """The next state and the pod's holding; for a refused pod upstream's `reason`."""

    state: FleetState
    holding: PodHolding | None
    reason: str = ""


class NodeAnswers(Protocol):
    """Answers of the nodes of one class. `start`: the state they began with."""

    start: FleetState

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer: ...
    def release(self, state: FleetState, holding: PodHolding) -> FleetState: ...
    def can_place(self, state: FleetState, cpus: int) -> bool: ...
    def never_admits(self, shape: int) -> bool: ...
    def state_of(self, state: NodeState) -> FleetState: ...
    def holding_of(self, state: NodeState, uid: str) -> PodHolding: ...
    def plan(self, state: FleetState, shape: int) -> Holding | None: ...
    def take(self, state: FleetState, holding: PodHolding) -> FleetState | None: ...


class PodsByShape(Protocol):
    """The pod of each shape number."""

    def __getitem__(self, shape: int, /) -> Pod: ...


class StateNumbers:
    """Counter of states."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return an unused number."""
        self._last += 1
        return self._last


def make_answers(rules: NodeRules, state: NodeState, pods: PodsByShape, numbers: StateNumbers) -> NodeAnswers:
    """Return the answers for nodes of these rules that begin in this state. `pods` may grow."""
    if rules.quirks.refused_pods_leave_state or _reads_owners(rules):
        return NamedAnswers(rules, state, pods, numbers)
    return ValueAnswers(rules, state, pods, numbers)


def _reads_owners(rules: NodeRules) -> bool:
    """Whether plugins read owners of CPUs, or a limit counts containers that share some: facts that a state without
    names lacks."""
    mixed = rules.policy.mixed
    return (rules.cpu.plugins is not None and rules.cpu.plugins.sees_owners) or (mixed is not None and mixed.free > 0)


def is_plain(rules: NodeRules, state: NodeState) -> bool:
    """Whether a state without names has everything that decides about the next pod: nothing is offline or waits to be
    cleaned up, no plugin is away, and refused pods leave nothing behind."""
    return not (
        rules.quirks.refused_pods_leave_state
        or _reads_owners(rules)
        or not state.sources_ready
        or state.leftovers
        or state.cpu.offline
        or state.memory.short
        or not all(pool.registered for pool in state.device.pools.values())
    )


class ValueAnswers:
    """Computes answers from states without names."""

    def __init__(self, rules: NodeRules, state: NodeState, pods: PodsByShape, numbers: StateNumbers) -> None:
        self.rules = rules
        self._manager = ContainerManager.of(rules, state)
        self._static_memory = rules.memory.policy == "Static"
        self._settles = rules.memory.settles
        self._pools = state.device.pools
        self._resources = tuple(state.device.pools)
        self._numbers = numbers
        self._tables: dict[tuple[int, object], tuple[NUMANodeState, object]] = {}
        """The tables of NUMA nodes, with what is in them, by that."""
        # Weak, so that states no node is in are dropped.
        self._states: WeakValueDictionary[tuple[object, ...], FleetState] = WeakValueDictionary()
        self._pods = pods
        self._asked: dict[int, tuple[AdmissionPod, str]] = {}
        self._hopeless: dict[int, bool] = {}
        self._plans: dict[tuple[int, int], Holding | None] = {}
        self.start = self.state_of(state)

    def state_of(self, state: NodeState) -> FleetState:
        """Return a state of such a node without names."""
        used = tuple(state.device.used.get(name, 0) for name in self._resources)
        machine = state.memory.machine_state
        return self._intern_state(state.cpu.default, machine, self._ledger(machine), used)

    def holding_of(self, state: NodeState, uid: str) -> PodHolding:
        """Return a pod's holding on such a node."""
        devices = state.device.of_pod(uid)
        return self._holding(state.cpu, state.memory, uid, tuple(devices.get(name, 0) for name in self._resources))

    def _holding(self, cpu: CPUState, memory: MemoryState, uid: str, devices: tuple[Bits, ...]) -> PodHolding:
        pod_cpus = cpu.pod_cpus.get(uid) if self._manager.cpu.rules.pod_level else None
        cpus = union(cpu.assignments.get(uid, {}).values()) if pod_cpus is None else pod_cpus
        own = memory.pod_assignments.get(uid) if self._manager.memory.rules.pod_level else None
        return PodHolding(cpus, tuple(memory.entries(uid).values()) if own is None else (own,), devices)

    def admission_of(self, shape: int) -> tuple[AdmissionPod, str]:
        """Return the pod of a shape in the managers' view, and the reason for which every node refuses it, empty for
        none."""
        known = self._asked.get(shape)
        if known is None:
            known = self._asked[shape] = self._prepare_shape(self._pods[shape])
        return known

    def forget(self, shape: int) -> None:
        """Forget a shape number, which another pod gets."""
        self._asked.pop(shape, None)
        self._hopeless.pop(shape, None)
        self._plans.clear()

    def _prepare_shape(self, pod: Pod) -> tuple[AdmissionPod, str]:
        """Return a pod in the managers' view, and the reason for which every node refuses it, empty for none."""
        pod = default_pod(with_uid(pod, _POD), self.rules.gates)
        admission = make_admission_pod(self.rules.policy, pod, self.rules.gates, release=self.rules.release)
        unsupported = pod_level_refusal(
            admission.spec,
            self.rules.gates,
            self.rules.quirks,
            os=self.rules.machine.operating_system,
            cgroup_version=self.rules.cgroup_version,
            release=self.rules.release,
        )
        refused = "" if unsupported is None else unsupported.reason
        return admission, AMOUNT_OVERFLOW if admission.overflow else refused

    def _ledger(self, machine: MachineState, before: FleetState | None = None) -> tuple[object, ...]:
        """Return the comparable content of the tables; tables that are the same objects as in a state before keep
        theirs."""
        if not self._static_memory:
            return ()
        if before is None:
            return tuple([_ledger_key(table) for table in machine.values()])
        were = zip(machine.values(), before.machine.values(), before.ledger, strict=True)
        return tuple([book if table is was else _ledger_key(table) for table, was, book in were])

    def _intern_state(
        self, cpus: Bits, machine: MachineState, ledger: tuple[object, ...], used: tuple[Bits, ...]
    ) -> FleetState:
        """Return the one state object with these contents, with a new number where there is none yet."""
        key = (cpus, ledger, used)
        known = self._states.get(key)
        if known is None:
            machine, ledger = self._share_tables(machine, ledger)
            known = self._states[cpus, ledger, used] = FleetState(self._numbers.next(), cpus, machine, ledger, used)
        return known

    def _share_tables(
        self, machine: MachineState, ledger: tuple[object, ...]
    ) -> tuple[MachineState, tuple[object, ...]]:
        """Return the tables with equal ones replaced by one object, however many states have it."""
        if not ledger:
            return machine, ledger
        # Nothing but sharing is lost by forgetting them.
        if len(self._tables) > _MOST_TABLES:
            self._tables.clear()
        shared = {
            name: self._tables.setdefault((name, book), (table, book))
            for (name, table), book in zip(machine.items(), ledger, strict=True)
        }
        return {name: table for name, (table, _) in shared.items()}, tuple([book for _, book in shared.values()])

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer:
        """Return the answer of `decide`, as far as resource managers and pod features go; `pod` is ignored."""
        admission, refused = self.admission_of(shape)
        if refused == AMOUNT_OVERFLOW:
            return NodeAnswer(state, None, refused)
        refused = self._reason(state, admission) or refused
        if refused:
            return NodeAnswer(state, None, refused)
        # Only plain init containers change anything at a start: they end, and free their memory.
        if any(container.plain_init for container in admission.containers):
            self._start_containers(admission)
        return self._answer_after(state)

    def take(self, state: FleetState, holding: PodHolding) -> FleetState | None:
        """Return the state in which a pod has this holding; None where another pod has some of it."""
        taken = any(have & more for have, more in zip(state.used, holding.devices, strict=True))
        if holding.cpus & ~state.cpus or taken:
            return None
        machine, ledger = state.machine, state.ledger
        if self._static_memory and any(holding.blocks):
            entries = {str(number): blocks for number, blocks in enumerate(holding.blocks)}
            after = MemoryState(machine).restore_pods({_POD: PodMemory(entries)}, pod_level=False)
            if _POD not in after.assignments:
                return None
            machine = after.machine_state
            ledger = self._ledger(machine)
        used = tuple(have | more for have, more in zip(state.used, holding.devices, strict=True))
        return self._intern_state(state.cpus & ~holding.cpus, machine, ledger, used)

    def plan(self, state: FleetState, shape: int) -> Holding | None:
        """Return what each container of the pod would hold, None where it is refused."""
        key = state.number, shape
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._plan(state, shape)
        return self._plans[key]

    def _plan(self, state: FleetState, shape: int) -> Holding | None:
        """Return the holding that an admission of this shape would give, None where it is refused."""
        if self.admit(state, shape, 0).holding is None:
            return None
        manager = self._manager
        return holding_of(
            NodeState(
                pods=manager.context.active,
                statuses={},
                unmanaged=frozenset(),
                cpu=manager.cpu.state,
                memory=manager.memory.state,
                device=manager.device.state,
                topology=manager.topology.state,
                resizes=Waiting(),
                granted={},
                conditions={},
                leftovers={},
                sources_ready=True,
                seen=PodsOnNode(),
            ),
            _POD,
        )

    def can_place(self, state: FleetState, cpus: int) -> bool:
        """Whether a Guaranteed container of so many CPUs and little memory would be admitted."""
        return not self._reason(state, AdmissionPod.of(_guaranteed_pod(cpus), self.rules.gates))

    def never_admits(self, shape: int) -> bool:
        """Whether no state of such a node can take the pod: a container requests part of a core where only whole cores
        are given. False says nothing about a pod."""
        known = self._hopeless.get(shape)
        if known is None:
            known = self._hopeless[shape] = self._needs_part_of_core(self.admission_of(shape)[0])
        return known

    def _needs_part_of_core(self, pod: AdmissionPod) -> bool:
        try:
            refusal = self._try_admission(self.start, pod)
        except UpstreamDefectError:
            return False
        return refusal is not None and refusal.code == SMT_FRACTION

    def _reason(self, state: FleetState, pod: AdmissionPod) -> str:
        """Return the reason for which the managers in this state refuse a pod; empty where they take it, and then they
        hold the next state."""
        try:
            refusal = self._try_admission(state, pod)
        except UpstreamDefectError as defect:
            return defect.name
        return "" if refusal is None else refusal.reason

    def _try_admission(self, state: FleetState, pod: AdmissionPod) -> Refusal | None:
        """Admit a pod in this state; return the refusal, or None with the managers in the next state."""
        manager = self._manager
        self._set_state(state)
        manager.context.active = {_POD: pod}
        manager.context.begin()
        try:
            manager.topology.admit(pod)
        except AdmissionError as error:
            return error.refusal
        return None

    def _set_state(self, state: FleetState) -> None:
        """Put the managers into a state without names."""
        manager = self._manager
        resources = self._resources
        used = {name: bits for name, bits in zip(resources, state.used, strict=True) if bits} if resources else {}
        manager.cpu.state = CPUState(state.cpus)
        manager.memory.state = MemoryState(state.machine)
        manager.device.state = DeviceState(self._pools, used)
        manager.topology.state = TopologyState()
        # A state without names has no pods that could leave anything behind.
        manager.context.leftovers = {}

    def _start_containers(self, admission: AdmissionPod) -> None:
        """Start the containers: plain init containers end, and release their memory."""
        for number, container in enumerate(admission.containers):
            self._manager.add_container(admission, container, str(number))

    def _answer_after(self, before: FleetState) -> NodeAnswer:
        """Return the answer for the pod that the managers have just admitted."""
        manager = self._manager
        cpu, memory, device = manager.cpu.state, manager.memory.state, manager.device.state
        used = taken = before.used
        if used:
            used = tuple([device.used.get(name, 0) for name in self._resources])
            taken = tuple([now & ~was for now, was in zip(used, before.used, strict=True)])
        machine = memory.machine_state
        ledger = before.ledger if machine is before.machine else self._ledger(machine, before)
        after = self._intern_state(cpu.default, machine, ledger, used)
        return NodeAnswer(after, self._holding(cpu, memory, _POD, taken))

    def release(self, state: FleetState, holding: PodHolding) -> FleetState:
        """Return the state after the pod is gone; by arithmetic only, without a manager."""
        used = state.used
        if used:
            used = tuple([have & ~gone for have, gone in zip(used, holding.devices, strict=True)])
        machine, ledger = state.machine, state.ledger
        if self._static_memory and any(holding.blocks):
            machine = free_blocks_in(machine, holding.blocks, settled=self._settles)
            ledger = self._ledger(machine, state)
        return self._intern_state(state.cpus | holding.cpus, machine, ledger, used)


class NamedAnswers:
    """Answers by `decide` and `release` on whole states; no two states are the same."""

    def __init__(self, rules: NodeRules, state: NodeState, pods: PodsByShape, numbers: StateNumbers) -> None:
        self.rules = rules
        self._pods = pods
        self._numbers = numbers
        self.start = self.state_of(state)

    def state_of(self, named: NodeState) -> FleetState:
        """Return a state of such a node."""
        used = tuple(named.device.used.get(name, 0) for name in named.device.pools)
        return FleetState(self._numbers.next(), named.cpu.default, named.memory.machine_state, (), used, named)

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer:
        """Return the answer of `decide`; a refused pod can leave another state behind."""
        assert state.named is not None
        uid = f"{_POD}-{pod}-{self._numbers.next()}"
        asked = with_uid(self._pods[shape], uid)
        try:
            decided = decide(self.rules, state.named, asked)
        except UpstreamDefectError as defect:
            return NodeAnswer(state, None, defect.name)
        if decided.refusal is not None:
            return NodeAnswer(self.state_of(decided.state), None, decided.refusal.reason)
        after = self.state_of(decided.state)
        devices = tuple(now & ~was for now, was in zip(after.used, state.used, strict=True))
        return NodeAnswer(after, _holding_in(decided.state, uid, devices))

    def holding_of(self, state: NodeState, uid: str) -> PodHolding:
        """Return a pod's holding on such a node."""
        devices = state.device.of_pod(uid)
        return _holding_in(state, uid, tuple(devices.get(name, 0) for name in state.device.pools))

    def take(self, state: FleetState, holding: PodHolding) -> FleetState | None:
        """Return None: a whole state comes from decisions only."""
        return None

    def plan(self, state: FleetState, shape: int) -> Holding | None:
        """Return what each container of the pod would hold, None where it is refused."""
        answer = self.admit(state, shape, 0)
        if answer.holding is None or answer.state.named is None:
            return None
        return holding_of(answer.state.named, answer.holding.uid)

    def release(self, state: FleetState, holding: PodHolding) -> FleetState:
        """Return the state after the pod is gone."""
        assert state.named is not None
        return self.state_of(release(self.rules, state.named, holding.uid))

    def never_admits(self, shape: int) -> bool:
        """Return False: a whole state depends on more than its rules."""
        return False

    def can_place(self, state: FleetState, cpus: int) -> bool:
        """Whether a Guaranteed container of so many CPUs and little memory would be admitted."""
        assert state.named is not None
        try:
            return decide(self.rules, state.named, _guaranteed_pod(cpus)).refusal is None
        except UpstreamDefectError:
            return False


def _holding_in(state: NodeState, uid: str, devices: tuple[Bits, ...]) -> PodHolding:
    held = holding_of(state, uid)
    cpus = union(one.cpus or 0 for one in held.containers) | (held.pod_cpus or 0)
    blocks = [one.blocks or () for one in held.containers] if held.blocks is None else [held.blocks]
    return PodHolding(cpus, tuple(blocks), devices, uid)


def _ledger_key(node: NUMANodeState) -> tuple[object, ...]:
    """Return the content of a NUMA node's ledger in a form that compares quickly."""
    tables = (node.memory_map or {}).values()
    amounts = [(table.reserved, table.free) for table in tables]
    return node.number_of_assignments, tuple(node.cells or ()), *amounts


def _guaranteed_pod(cpus: int) -> Pod:
    """Return a Guaranteed pod of one container with so many CPUs and 1 MiB of memory."""
    amounts = {"cpu": Quantity.of(cpus), "memory": Quantity.of(1 << 20)}
    container = Container(name="c", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(spec=PodSpec(containers=(container,)), metadata=ObjectMeta(name=_POD, uid=_POD))


def with_uid(pod: Pod, uid: str) -> Pod:
    """Return the pod with another UID."""
    return replace(pod, metadata=replace(pod.metadata, uid=uid))


class DifferentAnswerError(PodsliceError, AssertionError):
    """Raised when a cached answer differs from the computed one."""


class AnswerMemo:
    """Cached answers of all classes within a bounded room: when the young half is full, it becomes the old one, and the
    old one is dropped. `shapes`: how many there can be. `queries_only`: no caller goes on from the state in an answer,
    so answers of whole states are cached too."""

    def __init__(
        self, classes: Sequence[NodeAnswers], shapes: int, *, room: int, verify: int, queries_only: bool = False
    ) -> None:
        self._asks_only = queries_only
        self._classes = classes
        self._shapes = shapes
        self._half = max(8, room // 2)
        self._verify = verify
        self._young: dict[Question, NodeAnswer | FleetState] = {}
        self._old: dict[Question, NodeAnswer | FleetState] = {}
        self.asked = 0
        self.computed = 0
        self.verified = 0

    def admit(self, kind: int, state: FleetState, shape: int, pod: int) -> NodeAnswer:
        """Return the answer of a node of this class in this state."""
        classes = self._classes
        if state.named is not None and not self._asks_only:
            return classes[kind].admit(state, shape, pod)
        key = state.number * self._shapes + shape
        known = self._look(key)
        if known is None:
            self.computed += 1
            return self._keep(key, classes[kind].admit(state, shape, pod))
        assert isinstance(known, NodeAnswer)
        if self._is_due() and (answer := classes[kind].admit(state, shape, pod)) != known:
            raise DifferentAnswerError(f"state {state.number}, shape {shape}: {answer} is not {known}")
        return known

    def release(self, kind: int, state: FleetState, holding: PodHolding) -> FleetState:
        """Return the state after a pod is gone."""
        classes = self._classes
        if state.named is not None:
            return classes[kind].release(state, holding)
        if not holding.owns and not any(holding.blocks):
            return state
        key = (state.number, holding)
        known = self._look(key)
        if known is None:
            self.computed += 1
            return self._keep(key, classes[kind].release(state, holding))
        assert isinstance(known, FleetState)
        if self._is_due() and (left := classes[kind].release(state, holding)) is not known:
            raise DifferentAnswerError(f"state {state.number} without {holding}: {left.number}")
        return known

    def _look(self, key: Question) -> NodeAnswer | FleetState | None:
        """Return a cached answer, None where there is none."""
        self.asked += 1
        known = self._young.get(key)
        if known is None:
            known = self._old.get(key)
            # An answer in use moves to the young half, so the old half can be dropped as a whole.
            if known is not None:
                self._keep(key, known)
        return known

    def _is_due(self) -> bool:
        """Whether a cached answer is to be computed again and compared."""
        if not self._verify or self.asked % self._verify:
            return False
        self.verified += 1
        return True

    def _keep(self, key: Question, value: T) -> T:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return value
