"""The nodes of a running simulation: each has a state, and its row in the scheduler's ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podslice.api.pod.critical import is_critical
from podslice.api.server.defaults import default_pod
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.columns import Columns
from podslice.fleet.scheduler.preemption import RunningPod
from podslice.node.answers import AnswerMemo, FleetState, NodeAnswer, PodHolding, StateNumbers, make_answers, with_uid
from podslice.scheduling.predicates import (
    CPU,
    MEMORY,
    PODS,
    OtherPods,
    PodOnNode,
    filter_requests,
    general_predicates,
    pod_on_node,
)
from podslice.values.reasons import out_of

ANSWER_BYTES = 4096
"""Upper bound of the memory of a remembered answer with the state it keeps."""


class EvictingAnswer(NamedTuple):
    """A node's answer to a pod, and the pods (by number) that it evicts once the new one is admitted."""

    answer: NodeAnswer
    victims: tuple[int, ...] = ()


class LiveNodes:
    """Nodes by number. A question to a node gets the kubelet's complete answer: the managers' from its state, the
    general predicates' from its sums.

    `memory`: bytes for remembered answers; `verify`: every so many-th remembered answer is computed again, 0 for none.
    """

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape], *, memory: int, verify: int) -> None:
        numbers = StateNumbers()
        self.fleet = fleet
        self.columns = Columns(fleet, shapes)
        self.kinds = [node.kind for node in fleet.nodes]
        pods = [shape.pod for shape in shapes]
        self.classes = [make_answers(one.rules, one.state, pods, numbers) for one in fleet.classes]
        # A few answers even with little memory: an admission asks for one and then binds with it.
        room = max(16, memory // ANSWER_BYTES)
        self.answers = AnswerMemo(self.classes, max(1, len(shapes)), room=room, verify=verify)
        self.states: list[FleetState] = [
            self.classes[node.kind].start if node.start is None else self.classes[node.kind].state_of(node.start)
            for node in fleet.nodes
        ]
        self.columns.state[:] = [state.number for state in self.states]
        self.booked = [0, 0, 0, 0]
        """Sums over all nodes: pods, millicores, bytes of memory, milli-GPUs."""
        taken = [(shape.requests.taken, shape.gpu_request) for shape in shapes]
        self._amounts = [(amounts.get(CPU, 0), amounts.get(MEMORY, 0), gpu) for amounts, gpu in taken]
        self._sums = [_Sums(fleet, kind, shapes) for kind in range(len(fleet.classes))]
        self._critical = [is_critical(pod) for pod in pods]

    def ask(self, node: int, shape: int, pod: int, *, readmit: bool = False) -> NodeAnswer:
        """Return the node's answer to a pod of this shape, without changing the node.

        `readmit`: the pod is admitted after a restart of the kubelet, when no scheduler has checked that it fits.
        """
        kind = self.kinds[node]
        answer = self.answers.admit(kind, self.states[node], shape, pod)
        # A complete state (profile kubelet-1.36) comes from an admission that has already run the general predicates.
        if answer.holding is not None and answer.state.named is None:
            lacking = self._sums[kind].find_lacking(shape, self.columns, node, every=readmit)
            if lacking:
                return NodeAnswer(self.states[node], None, out_of(lacking))
        return answer

    def ask_critical(self, node: int, shape: int, pod: int, running: Sequence[RunningPod]) -> EvictingAnswer:
        """Return the node's answer to a critical pod for which it has too little: running pods may be evicted (kubelet
        preemption)."""
        kind = self.kinds[node]
        answer = self.answers.admit(kind, self.states[node], shape, pod)
        if answer.holding is None:
            return EvictingAnswer(answer)
        sums = self._sums[kind]
        others = OtherPods.of([sums.view_pod(one.shape, str(one.uid)) for one in running])
        verdict = general_predicates(sums.view_pod(shape, ""), others, self.fleet.classes[kind].rules.counted.node)
        if verdict.refusal is not None:
            return EvictingAnswer(NodeAnswer(self.states[node], None, verdict.refusal.reason))
        return EvictingAnswer(answer, tuple(map(int, verdict.victims)))

    def is_critical(self, shape: int) -> bool:
        """Whether pods on the node may be evicted to admit a pod of this shape."""
        return self._critical[shape]

    def refuses_always(self, kind: int, shape: int) -> bool:
        """Whether nodes of this class refuse the shape in every state."""
        return self.classes[kind].never_admits(shape)

    def initial_answer(self, node: int, uid: str) -> NodeAnswer:
        """Return the answer for a pod that is on the node from the beginning, as if it were admitted now."""
        named = self.fleet.nodes[node].start
        assert named is not None
        return NodeAnswer(self.states[node], self.classes[self.kinds[node]].holding_of(named, uid))

    def bind(self, node: int, shape: int, answer: NodeAnswer, gpus: Sequence[int]) -> None:
        """Move the node to the state of the answer, and book the pod."""
        self.set_state(node, answer.state)
        self.book(node, shape, gpus)

    def book(self, node: int, shape: int, gpus: Sequence[int]) -> None:
        """Add a pod to the ledgers of a node whose state already includes it."""
        self.columns.book(node, shape, gpus)
        self._count(shape, 1)

    def release(self, node: int, shape: int, holding: PodHolding, gpus: Sequence[int]) -> None:
        """Remove a pod from the state and the ledgers of its node."""
        self.set_state(node, self.answers.release(self.kinds[node], self.states[node], holding))
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
        """Move a node without pods to another class."""
        self.kinds[node] = kind
        self.set_state(node, self.classes[kind].start)
        self.columns.set_class(node, kind)

    def apply_refusal(self, node: int, answer: NodeAnswer) -> None:
        """Keep what a refused pod leaves behind in the node's state, where kubelets have that defect (profile
        `kubelet-1.36`)."""
        self.set_state(node, answer.state)

    def set_state(self, node: int, state: FleetState) -> None:
        """Set the state of a node."""
        # A refusal mostly leaves the state as it is; the write into the column is then saved.
        if state is not self.states[node]:
            self.states[node] = state
            self.columns.state[node] = state.number


class _Sums:
    """The general predicates of one class, by what its kubelets count as their allocatable.

    After a scheduler's filter only those resources are checked of which the kubelet counts less than the Node object
    has.
    """

    def __init__(self, fleet: Fleet, kind: int, shapes: Sequence[FleetShape]) -> None:
        one = fleet.classes[kind]
        counted = one.rules.counted.node.amounts if one.rules.predicates else None
        gates = one.rules.gates
        self._rules, self._shapes = one.rules, shapes
        self._asked = [
            {**filter_requests(default_pod(shape.pod, gates), gates), PODS: 1} if counted else {} for shape in shapes
        ]
        self._every = dict(counted or {})
        # Only for these can the scheduler's filter have passed a node that the kubelet finds too small.
        self._less = {name: room for name, room in self._every.items() if room < one.allocatable.get(name, 0)}

    def view_pod(self, shape: int, uid: str) -> PodOnNode:
        """Return a pod of a shape as the predicates take it."""
        gates = self._rules.gates
        return pod_on_node(with_uid(default_pod(self._shapes[shape].pod, gates), uid), gates, self._rules.quirks)

    def find_lacking(self, shape: int, columns: Columns, node: int, *, every: bool) -> str:
        """Return the first resource of which the node has too little, "" for none. `every`: check all resources, not
        only those that the scheduler could get wrong."""
        rooms = self._every if every else self._less
        if not rooms:
            return ""
        # The pod is not booked yet, so `used` is what the pods on the node request without it.
        used = columns.loads.used[columns.load[node]]
        asked = self._asked[shape]
        for number, name in enumerate(columns.loads.names):
            if name in rooms and asked.get(name, 0) > rooms[name] - int(used[number]):
                return name
        return ""
