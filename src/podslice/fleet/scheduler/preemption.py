"""Room for a pod of higher priority: which pods leave which node.

As kube-scheduler does it: on each node all pods of lower priority are taken away in thought, and as many as fit are put
back: first those whose going would break a budget, then those of the highest priority and the longest run. Of the nodes
where that helps the one is taken whose victims break the fewest budgets, have the lowest highest priority, then the
lowest sum of priorities, then are the fewest, then began latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.columns import ALL, Columns
from podslice.fleet.scheduler.loads import Bools


class RunningPod(NamedTuple):
    """A pod on a node that might leave it."""

    pod: int
    shape: int
    since: int
    gpus: Sequence[int]


class Victims(NamedTuple):
    """Pods that leave a node, by number."""

    node: int
    pods: tuple[int, ...]


class Questions(NamedTuple):
    """What is asked about nodes. `running`: the pods of one; `admits`: whether one that pods have left would admit the
    pod; `broken`: of pods that leave, the most important first, whose going breaks a budget."""

    running: Callable[[int], Iterable[RunningPod]]
    admits: Callable[[int, Sequence[RunningPod]], bool]
    broken: Callable[[Sequence[RunningPod]], Sequence[bool]]


class RoomFinder:
    """Finds who leaves. `remembers`: a node that was of no help is of none until it changes."""

    def __init__(self, columns: Columns, *, remembers: bool) -> None:
        self._columns = columns
        self._remembers = remembers
        self._in_vain: dict[int, int] = {}
        """Shapes that no victims would help, and what was in the log then."""

    def find(self, shape: int, ask: Questions) -> Victims | None:
        """The node and the pods that leave it; None where no victims would help."""
        found = [one for node in self._nodes(shape) if (one := self._on_node(shape, node, ask))]
        if found:
            return min(found)[1]
        if self._remembers and shape not in self._columns.domains.constrained:
            self._in_vain[shape] = self._columns.log.position
        return None

    def _nodes(self, shape: int) -> list[int]:
        """Nodes that could help: large enough without any pod, open to the pod, not known to be of no help."""
        columns = self._columns
        could: Bools = np.all(columns.asked(shape) <= columns.room, axis=1)
        could &= columns.gpu_count >= columns.shapes[shape].gpus
        allowed = columns.open(shape, ALL)
        if allowed is not None:
            could &= allowed
        since = self._in_vain.pop(shape, None)
        if since is not None:
            changed: Bools = np.zeros(columns.count, dtype=np.bool_)
            changed[columns.log.since(since)] = True
            could &= changed
        return np.flatnonzero(could).tolist()

    def _on_node(self, shape: int, node: int, ask: Questions) -> tuple[tuple[int, ...], Victims] | None:
        shapes = self._columns.shapes
        priority = shapes[shape].priority
        lower = [one for one in ask.running(node) if shapes[one.shape].priority < priority]
        left = _Left(self._columns, node)
        for one in lower:
            left.change(one, 1)
        if not lower or not left.suffices(shape) or not ask.admits(node, lower):
            return None
        ordered = sorted(lower, key=lambda one: (-shapes[one.shape].priority, one.since, one.pod))
        broken = list(zip(ask.broken(ordered), ordered, strict=True))
        leaving, violations = lower, 0
        for breaks, one in sorted(broken, key=lambda both: not both[0]):
            fewer = [other for other in leaving if other is not one]
            left.change(one, -1)
            if left.suffices(shape) and ask.admits(node, fewer):
                leaving = fewer
            else:
                left.change(one, 1)
                violations += breaks
        if not leaving:
            return None
        return (violations, *_cost(shapes, node, leaving)), Victims(node, tuple(one.pod for one in leaving))


def _cost(shapes: Sequence[FleetShape], node: int, leaving: Sequence[RunningPod]) -> tuple[int, ...]:
    priorities = [shapes[one.shape].priority for one in leaving]
    first = min(one.since for one, priority in zip(leaving, priorities, strict=True) if priority == max(priorities))
    return max(priorities), sum(priorities), len(leaving), -first, node


class _Left:
    """What is left of a node, by sums and GPUs, while pods go and come back in thought."""

    def __init__(self, columns: Columns, node: int) -> None:
        self._columns = columns
        self._free = columns.free(node)
        self._gpus = columns.loads.gpus[columns.load[node]].copy()

    def change(self, one: RunningPod, sign: int) -> None:
        """A pod goes, or comes back (`sign` -1)."""
        self._free = self._free + sign * self._columns.taken(one.shape)
        if one.gpus:
            self._gpus[list(one.gpus)] += sign * self._columns.shapes[one.shape].gpu_milli

    def suffices(self, shape: int) -> bool:
        """Whether a pod of this shape fits."""
        wanted = self._columns.shapes[shape]
        if not (self._columns.asked(shape) <= self._free).all():
            return False
        return not wanted.gpus or int((self._gpus >= wanted.gpu_milli).sum()) >= wanted.gpus
