"""The nodes of a running simulation: each a state, and its column in the scheduler's ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podslice.api.pod.critical import is_critical
from podslice.api.server.defaults import default_pod
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.columns import Columns
from podslice.fleet.scheduler.preemption import RunningPod
from podslice.node.answers import FleetState, NodeAnswer, Numbers, PodHolding, Remembered, answers_for, called
from podslice.scheduling.predicates import (
    CPU,
    MEMORY,
    PODS,
    Others,
    PodOnNode,
    filter_requests,
    general_predicates,
    pod_on_node,
)
from podslice.values.reasons import out_of

ANSWER_BYTES = 4096
"""What a remembered answer takes at most, with the state that it keeps."""


class Pushed(NamedTuple):
    """A node's answer, and the pods by number that it makes leave once the new one is there."""

    answer: NodeAnswer
    victims: tuple[int, ...] = ()


class LiveNodes:
    """Who asks a node gets the kubelet's whole answer: the managers' by state, the general predicates' by sums."""

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape], *, memory: int, verify: int) -> None:
        numbers = Numbers()
        self.fleet = fleet
        self.columns = Columns(fleet, shapes)
        self.kinds = [node.kind for node in fleet.nodes]
        pods = [shape.pod for shape in shapes]
        self.classes = [answers_for(one.rules, one.state, pods, numbers) for one in fleet.classes]
        room = max(16, memory // ANSWER_BYTES)
        self.answers = Remembered(self.classes, max(1, len(shapes)), room=room, verify=verify)
        self.states: list[FleetState] = [
            self.classes[node.kind].start if node.start is None else self.classes[node.kind].state_of(node.start)
            for node in fleet.nodes
        ]
        self.columns.state[:] = [state.number for state in self.states]
        self.booked = [0, 0, 0, 0]
        """Pods, milli CPUs, bytes and milli GPUs that are booked."""
        taken = [(shape.requests.taken, shape.gpu_request) for shape in shapes]
        self._amounts = [(amounts.get(CPU, 0), amounts.get(MEMORY, 0), gpu) for amounts, gpu in taken]
        self._sums = [_Sums(fleet, kind, shapes) for kind in range(len(fleet.classes))]
        self._critical = [is_critical(pod) for pod in pods]

    def ask(self, node: int, shape: int, pod: int, *, again: bool = False) -> NodeAnswer:
        """What the node answers a pod of this shape now. `again`: it is admitted after a restart, and no scheduler has
        looked whether it fits."""
        kind = self.kinds[node]
        answer = self.answers.admit(kind, self.states[node], shape, pod)
        if answer.holding is not None and answer.state.named is None:
            lacking = self._sums[kind].lacking(shape, self.columns, node, every=again)
            if lacking:
                return NodeAnswer(self.states[node], None, out_of(lacking))
        return answer

    def push(self, node: int, shape: int, pod: int, running: Sequence[RunningPod]) -> Pushed:
        """What the node answers a critical pod that it has too little for: pods that run there may have to go."""
        kind = self.kinds[node]
        answer = self.answers.admit(kind, self.states[node], shape, pod)
        if answer.holding is None:
            return Pushed(answer)
        sums = self._sums[kind]
        others = Others.of([sums.view(one.shape, str(one.pod)) for one in running])
        verdict = general_predicates(sums.view(shape, ""), others, self.fleet.classes[kind].rules.counted.node)
        if verdict.refusal is not None:
            return Pushed(NodeAnswer(self.states[node], None, verdict.refusal.reason))
        return Pushed(answer, tuple(map(int, verdict.victims)))

    def is_critical(self, shape: int) -> bool:
        """True for pods that others have to make room for on their node."""
        return self._critical[shape]

    def refuses_always(self, kind: int, shape: int) -> bool:
        """True for a pod that no node of a class takes, in whatever state."""
        return self.classes[kind].never_admits(shape)

    def there(self, node: int, uid: str) -> NodeAnswer:
        """A pod that is on the node from the beginning, as if it were just admitted."""
        named = self.fleet.nodes[node].start
        assert named is not None
        return NodeAnswer(self.states[node], self.classes[self.kinds[node]].holding_of(named, uid))

    def bind(self, node: int, shape: int, answer: NodeAnswer, gpus: Sequence[int]) -> None:
        """The pod is on the node from now on."""
        self.go_to(node, answer.state)
        self.book(node, shape, gpus)

    def book(self, node: int, shape: int, gpus: Sequence[int]) -> None:
        """A pod is on the ledgers of its node, whose state has it already."""
        self.columns.book(node, shape, gpus)
        self._count(shape, 1)

    def release(self, node: int, shape: int, holding: PodHolding, gpus: Sequence[int]) -> None:
        """The pod is gone."""
        self.go_to(node, self.answers.release(self.kinds[node], self.states[node], holding))
        self.columns.book(node, shape, gpus, -1)
        self._count(shape, -1)

    def _count(self, shape: int, sign: int) -> None:
        booked = self.booked
        cpu, memory, gpu = self._amounts[shape]
        booked[0] += sign
        booked[1] += sign * cpu
        booked[2] += sign * memory
        booked[3] += sign * gpu

    def restart(self, node: int, kind: int) -> None:
        """The node, which has no pods, is of another class."""
        self.kinds[node] = kind
        self.go_to(node, self.classes[kind].start)
        self.columns.become(node, kind)

    def refused(self, node: int, answer: NodeAnswer) -> None:
        """A refused pod left something behind, where kubelets do that."""
        self.go_to(node, answer.state)

    def go_to(self, node: int, state: FleetState) -> None:
        """The node is in this state from now on."""
        if state is not self.states[node]:
            self.states[node] = state
            self.columns.state[node] = state.number


class _Sums:
    """The general predicates of one class: what its kubelets think they have. Where a scheduler has looked, only what
    is less than it counts with is looked at."""

    def __init__(self, fleet: Fleet, kind: int, shapes: Sequence[FleetShape]) -> None:
        one = fleet.classes[kind]
        counted = one.rules.counted.node.amounts if one.rules.predicates else None
        gates = one.rules.gates
        self._rules, self._shapes = one.rules, shapes
        self._asked = [
            {**filter_requests(default_pod(shape.pod, gates), gates), PODS: 1} if counted else {} for shape in shapes
        ]
        self._every = dict(counted or {})
        self._less = {name: room for name, room in self._every.items() if room < one.allocatable.get(name, 0)}

    def view(self, shape: int, uid: str) -> PodOnNode:
        """A pod of a shape as the predicates see it."""
        gates = self._rules.gates
        return pod_on_node(called(default_pod(self._shapes[shape].pod, gates), uid), gates, self._rules.quirks)

    def lacking(self, shape: int, columns: Columns, node: int, *, every: bool) -> str:
        """The first resource that a node has too little of, if any."""
        rooms = self._every if every else self._less
        if not rooms:
            return ""
        used = columns.loads.used[columns.load[node]]
        asked = self._asked[shape]
        for number, name in enumerate(columns.loads.names):
            if name in rooms and asked.get(name, 0) > rooms[name] - int(used[number]):
                return name
        return ""
