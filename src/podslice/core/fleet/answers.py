"""What nodes answer, as values: states without names, what pods hold, and answers that are remembered.

What a kubelet decides about a new pod depends on its free CPUs, the books of its memory and the devices in use, and on
nothing of what its pods are called or when they came. So a node's state here is that and no more, and nodes of a class
in the same state share it. Sums for the general predicates are the scheduler's columns (`columns`).

With profile `kubelet-1.36` a refused pod leaves things behind, and a state without names is not enough: there
`NamedAnswers` keep whole states and remember nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from podslice.core.decide import decide, release
from podslice.core.errors import AdmissionError, UpstreamDefectError
from podslice.core.fleet.nodes import FleetClass
from podslice.core.fleet.shapes import FleetShape
from podslice.core.holding import holding_of
from podslice.core.machine.memory import MachineState
from podslice.core.managers.container import ContainerManager
from podslice.core.managers.device_state import DeviceState
from podslice.core.managers.memory_state import Blocks, MemoryState
from podslice.core.managers.node_state import NodeState
from podslice.core.managers.topology import TopologyState
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from podslice.core.reasons import AMOUNT_OVERFLOW
from podslice.core.scheduling.pod_features import pod_level_refusal
from podslice.core.state.model import CPUState
from podslice.core.values.cpuset import Bits, union
from podslice.core.values.quantity import Quantity

Question: TypeAlias = "int | tuple[int, PodHolding]"
"""A shape that comes to a state, or a holding that leaves it, as a key."""
T = TypeVar("T", bound="NodeAnswer | FleetState")
_POD = "pod"
"""The UID of the one pod that is asked about."""


class FleetState:
    """What decides about a node's next pod. Equal states of a class are one object, with one number. `named` is the
    whole state where that is needed."""

    __slots__ = ("__weakref__", "books", "cpus", "machine", "named", "number", "used")

    def __init__(
        self,
        number: int,
        cpus: Bits,
        machine: MachineState,
        books: tuple[object, ...],
        used: tuple[Bits, ...],
        named: NodeState | None = None,
    ) -> None:
        self.number = number
        self.cpus = cpus
        """The node's shared pool (DEFAULT)."""
        self.machine = machine
        self.books = books
        """What is in `machine`, to compare."""
        self.used = used
        """Devices in use, by resource in the order of the class' state."""
        self.named = named


class PodHolding(NamedTuple):
    """What one pod has of a node: CPUs, blocks of memory by holder in the order of their release, devices by resource.
    `uid` where whole states are kept."""

    cpus: Bits
    blocks: tuple[Blocks, ...]
    devices: tuple[Bits, ...]
    uid: str = ""

    @property
    def owns(self) -> bool:
        """True for a pod with CPUs or devices of its own."""
        return bool(self.cpus or any(self.devices))


class NodeAnswer(NamedTuple):
    """The next state and what the pod has; `reason` in upstream's words where it was refused."""

    state: FleetState
    holding: PodHolding | None
    reason: str = ""


class NodeAnswers(Protocol):
    """Nodes of one class. `start`: the state without pods."""

    start: FleetState

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer: ...
    def release(self, state: FleetState, holding: PodHolding) -> FleetState: ...
    def gives(self, state: FleetState, cpus: int) -> bool: ...


class Numbers:
    """Counts states."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """One that nobody has."""
        self._last += 1
        return self._last


def answers_for(kind: FleetClass, shapes: Sequence[FleetShape], numbers: Numbers) -> NodeAnswers:
    """Who answers for nodes of a class."""
    if kind.rules.quirks.refused_pods_leave_state:
        return NamedAnswers(kind, shapes, numbers)
    return ValueAnswers(kind, shapes, numbers)


class ValueAnswers:
    """Computes answers from states without names."""

    def __init__(self, kind: FleetClass, shapes: Sequence[FleetShape], numbers: Numbers) -> None:
        rules, state = kind.rules, kind.state
        self.rules = rules
        self._manager = ContainerManager.of(rules, state)
        self._static_memory = rules.memory.policy == "Static"
        self._settles = not rules.quirks.group_books_drift
        self._pools = state.device.pools
        self._resources = tuple(state.device.pools)
        self._numbers = numbers
        self._states: WeakValueDictionary[tuple[object, ...], FleetState] = WeakValueDictionary()
        self._pods = [self._admission(shape) for shape in shapes]
        used = tuple(state.device.used.get(name, 0) for name in self._resources)
        machine = state.memory.machine_state
        self.start = self._state(state.cpu.default, machine, self._books(machine), used)

    def _admission(self, shape: FleetShape) -> tuple[AdmissionPod, str]:
        pod = default_pod(_called(shape.pod, _POD), self.rules.gates)
        admission = AdmissionPod.of(pod, self.rules.gates)
        unsupported = pod_level_refusal(
            admission.spec, self.rules.gates, self.rules.quirks, cgroup_version=self.rules.cgroup_version
        )
        refused = "" if unsupported is None else unsupported.reason
        return admission, AMOUNT_OVERFLOW if admission.overflow else refused

    def _books(self, machine: MachineState) -> tuple[object, ...]:
        if not self._static_memory:
            return ()
        return tuple(
            (
                node.number_of_assignments,
                tuple(node.cells or ()),
                *[(table.reserved, table.free) for table in (node.memory_map or {}).values()],
            )
            for node in machine.values()
        )

    def _state(
        self, cpus: Bits, machine: MachineState, books: tuple[object, ...], used: tuple[Bits, ...]
    ) -> FleetState:
        key = (cpus, books, used)
        known = self._states.get(key)
        if known is None:
            known = self._states[key] = FleetState(self._numbers.next(), cpus, machine, books, used)
        return known

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer:
        """What `decide` answers, as far as resource managers and pod features go; `pod` counts for nothing."""
        admission, refused = self._pods[shape]
        if refused == AMOUNT_OVERFLOW:
            return NodeAnswer(state, None, refused)
        refused = self._refused(state, admission) or refused
        if refused:
            return NodeAnswer(state, None, refused)
        if any(container.plain_init for container in admission.containers):
            self._start_containers(admission)
        return self._taken(state)

    def gives(self, state: FleetState, cpus: int) -> bool:
        """True when a Guaranteed container of so many CPUs and hardly any memory would be admitted."""
        return not self._refused(state, AdmissionPod.of(_guaranteed(cpus), self.rules.gates))

    def _refused(self, state: FleetState, pod: AdmissionPod) -> str:
        """Why the managers in this state refuse a pod; empty where they take it, and then have the next state."""
        manager = self._manager
        self._go_to(state)
        manager.context.active = {_POD: pod}
        manager.context.begin()
        try:
            manager.topology.admit(pod)
        except AdmissionError as error:
            return error.refusal.reason
        except UpstreamDefectError as defect:
            return defect.name
        return ""

    def _go_to(self, state: FleetState) -> None:
        manager = self._manager
        used = {name: bits for name, bits in zip(self._resources, state.used, strict=True) if bits}
        manager.cpu.state = CPUState(state.cpus)
        manager.memory.state = MemoryState(state.machine)
        manager.device.state = DeviceState(self._pools, used)
        manager.topology.state = TopologyState()
        context = manager.context
        context.leftovers = {}
        context.metrics = {}

    def _start_containers(self, admission: AdmissionPod) -> None:
        """Plain init containers end and give their memory back."""
        for number, container in enumerate(admission.containers):
            self._manager.add_container(admission, container, str(number))

    def _taken(self, before: FleetState) -> NodeAnswer:
        manager = self._manager
        cpu, memory, device = manager.cpu.state, manager.memory.state, manager.device.state
        bubble = cpu.bubbles.get(_POD) if manager.cpu.rules.pod_level else None
        cpus = union(cpu.assignments.get(_POD, {}).values()) if bubble is None else bubble
        own = memory.pod_assignments.get(_POD) if manager.memory.rules.pod_level else None
        blocks = tuple(memory.entries(_POD).values()) if own is None else (own,)
        used = tuple(device.used.get(name, 0) for name in self._resources)
        taken = tuple(now & ~was for now, was in zip(used, before.used, strict=True))
        machine = memory.machine_state
        books = before.books if machine is before.machine else self._books(machine)
        return NodeAnswer(self._state(cpu.default, machine, books, used), PodHolding(cpus, blocks, taken))

    def release(self, state: FleetState, holding: PodHolding) -> FleetState:
        """The state after the pod is gone; arithmetic only."""
        used = tuple(have & ~gone for have, gone in zip(state.used, holding.devices, strict=True))
        machine, books = state.machine, state.books
        if self._static_memory and any(holding.blocks):
            entries = {str(number): blocks for number, blocks in enumerate(holding.blocks)}
            left = MemoryState(machine, {_POD: entries}).forget(_POD, pod_level=False, settled=self._settles)
            machine = left.machine_state
            books = self._books(machine)
        return self._state(state.cpus | holding.cpus, machine, books, used)


class NamedAnswers:
    """Asks `decide` and `release` with whole states; every state is another one."""

    def __init__(self, kind: FleetClass, shapes: Sequence[FleetShape], numbers: Numbers) -> None:
        self.rules = kind.rules
        self._pods = [shape.pod for shape in shapes]
        self._numbers = numbers
        self.start = self._state(kind.state)

    def _state(self, named: NodeState) -> FleetState:
        used = tuple(named.device.used.get(name, 0) for name in named.device.pools)
        return FleetState(self._numbers.next(), named.cpu.default, named.memory.machine_state, (), used, named)

    def admit(self, state: FleetState, shape: int, pod: int) -> NodeAnswer:
        """What `decide` answers; a refused pod can leave another state behind."""
        assert state.named is not None
        uid = f"{_POD}-{pod}-{self._numbers.next()}"
        asked = _called(self._pods[shape], uid)
        try:
            decided = decide(self.rules, state.named, asked)
        except UpstreamDefectError as defect:
            return NodeAnswer(state, None, defect.name)
        if decided.refusal is not None:
            return NodeAnswer(self._state(decided.state), None, decided.refusal.reason)
        held = holding_of(decided.state, uid)
        cpus = union(one.cpus or 0 for one in held.containers) | (held.bubble or 0)
        blocks = [one.blocks or () for one in held.containers] if held.blocks is None else [held.blocks]
        after = self._state(decided.state)
        devices = tuple(now & ~was for now, was in zip(after.used, state.used, strict=True))
        return NodeAnswer(after, PodHolding(cpus, tuple(blocks), devices, uid))

    def release(self, state: FleetState, holding: PodHolding) -> FleetState:
        """The state after the pod is gone."""
        assert state.named is not None
        return self._state(release(self.rules, state.named, holding.uid))

    def gives(self, state: FleetState, cpus: int) -> bool:
        """True when a Guaranteed container of so many CPUs and hardly any memory would be admitted."""
        assert state.named is not None
        try:
            return decide(self.rules, state.named, _guaranteed(cpus)).refusal is None
        except UpstreamDefectError:
            return False


def _guaranteed(cpus: int) -> Pod:
    amounts = {"cpu": Quantity.of(cpus), "memory": Quantity.of(1 << 20)}
    container = Container(name="c", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(spec=PodSpec(containers=(container,)), metadata=ObjectMeta(name=_POD, uid=_POD))


def _called(pod: Pod, uid: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, uid=uid))


class DifferentAnswerError(AssertionError):
    """A remembered answer is not the computed one."""


class Remembered:
    """Answers of all classes, kept as long as there is room: when the young half is full, it becomes the old one, and
    the old one is forgotten."""

    def __init__(self, classes: Sequence[NodeAnswers], shapes: int, *, room: int, verify: int) -> None:
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
        """What a node of this class in this state answers."""
        classes = self._classes
        if state.named is not None:
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
        """The state after a pod is gone."""
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
        self.asked += 1
        known = self._young.get(key)
        if known is None:
            known = self._old.get(key)
            if known is not None:
                self._keep(key, known)
        return known

    def _is_due(self) -> bool:
        """True when a remembered answer is to be computed again."""
        if not self._verify or self.asked % self._verify:
            return False
        self.verified += 1
        return True

    def _keep(self, key: Question, value: T) -> T:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return value
