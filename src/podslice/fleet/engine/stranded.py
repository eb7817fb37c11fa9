"""Stranded CPUs: what remains of a node when it is filled up, and what the usual pods cannot use of it.

`expected`: the assignable CPUs of a node times the usual pods that it would refuse; FGD's idea with a kubelet's answer
in place of sums. `blind`: the same by sums. The difference is the cost of NUMA. Nodes in the same state with the same
sums are measured once.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from podslice.fleet.engine.workload import NEVER
from podslice.node.answers import FleetState

if TYPE_CHECKING:
    from podslice.fleet.scheduler.queue import PodQueue

_CPU = 1


class StrandedCPUs:
    """Measures the nodes of a queue as they are now; `metrics` as of `CellOptions`."""

    def __init__(self, queue: PodQueue, metrics: tuple[str, ...]) -> None:
        self._queue = queue
        self._live = queue.live
        self._stranded = "stranded" in metrics
        self._largest = "largest" in metrics
        self._gives: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        shapes = queue.workload.shapes

        def size(number: int) -> tuple[int, int, int]:
            return shapes[number].cpu_request, shapes[number].gpu_request, number

        self._by_size = sorted((number for number, _ in queue.popular), key=size)

    def measure(self) -> tuple[array[int], ...]:
        """Return columns by node: assignable, stranded, expected, blind, largest, holes."""
        found = [self._measure_node(node) for node in range(self._live.columns.count)]
        assignable = array("q", [self.assignable(node) for node in range(len(found))])
        columns = [array("q", column) for column in zip(*found, strict=True)] if found else _EMPTY
        stranded, holes, expected, blind = columns
        largest = array("q", [self.largest(node) for node in range(len(found))])
        return assignable, stranded, expected, blind, largest, holes

    def largest(self, node: int) -> int:
        """Return the most CPUs that one Guaranteed container could still get."""
        if not self._largest:
            return 0
        columns = self._live.columns
        free = int(columns.free(node)[_CPU]) // 1000
        kind, state = self._live.kinds[node], self._live.states[node]
        key = state.number, min(free, self.assignable(node))
        if key not in self._gives:
            answers = self._live.classes[kind]
            # From the top: where only whole cores are given away a larger pod may fit and a smaller one not.
            sizes = (cpus for cpus in range(key[1], 0, -1) if answers.can_place(state, cpus))
            self._gives[key] = next(sizes, 0)
        return self._gives[key]

    def assignable(self, node: int, state: FleetState | None = None) -> int:
        """Return how many CPUs of a node pods can still own; without a static policy, whole CPUs that are not
        booked."""
        columns, rules = self._live.columns, self._live.fleet.classes[self._live.kinds[node]].rules
        if rules.cpu.static:
            return ((state or self._live.states[node]).cpus & ~rules.cpu.reserved).bit_count()
        return int(columns.free(node)[_CPU]) // 1000

    def _measure_node(self, node: int) -> tuple[int, int, int, int]:
        """Return stranded, holes, expected and blind of a node."""
        if not self._stranded:
            return 0, 0, 0, 0
        columns = self._live.columns
        key = (self._live.states[node].number, int(columns.load[node]))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (*self._fill(node), *self._expect_stranded(node))
        return found

    def _expect_stranded(self, node: int) -> tuple[int, int]:
        """Return `expected` and `blind` of a node, in CPUs times pods."""
        might = set(self._live.columns.shapes_with_room(node))
        own = self.assignable(node)
        expected = blind = 0
        for shape, pods in self._queue.popular:
            if shape not in might:
                # Sums alone already keep the shape out, so it counts for both; the difference is what a kubelet adds.
                blind += pods * own
                expected += pods * own
            elif self._live.ask(node, shape, NEVER).holding is None:
                expected += pods * own
        return expected, blind

    def _fill(self, node: int) -> tuple[int, int]:
        """Return the assignable CPUs that remain after as many usual pods as fit, the smallest first, and how many of
        the smallest ones fit (the node's holes)."""
        live, columns, kind = self._live, self._live.columns, self._live.kinds[node]
        state, free = live.states[node], columns.free(node)
        used = holes = 0
        smallest = next((shape for shape in self._by_size if columns.footprint(shape)[_CPU]), NEVER)
        for shape in self._by_size:
            taken = columns.footprint(shape)
            while (columns.filter_request(shape) <= free).all():
                answer = live.answers.admit(kind, state, shape, NEVER)
                if answer.holding is None or not taken[_CPU]:
                    break
                state, free = answer.state, free - taken
                used += int(taken[_CPU])
                holes += shape == smallest
        left = self.assignable(node, state)
        return left if live.fleet.classes[kind].rules.cpu.static else max(0, left - used // 1000), holes


_EMPTY = [array("q")] * 4
