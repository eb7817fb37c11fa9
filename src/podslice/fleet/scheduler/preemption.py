"""Preemption: which pods leave which node for a pod of higher priority, as `scheduling.victims` chooses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from podslice.fleet.scheduler.columns import ALL, Columns
from podslice.fleet.scheduler.loads import Bools
from podslice.scheduling.victims import cost_of, order_by_importance, reprieve


class RunningPod(NamedTuple):
    """A pod on a node that might be preempted. `uid`: its number; `since`: when it was bound, in milliseconds."""

    uid: int
    shape: int
    priority: int
    since: int
    gpus: Sequence[int]


class Victims(NamedTuple):
    """The pods (by number) that leave a node."""

    node: int
    pods: tuple[int, ...]


class NodeQueries(NamedTuple):
    """Queries about nodes.

    - `running`: the pods of a node.
    - `admits`: whether a node without these pods would admit the new pod.
    - `violations`: for each of these pods, the most important first, whether its disruption violates a budget.
    """

    running: Callable[[int], Iterable[RunningPod]]
    admits: Callable[[int, Sequence[RunningPod]], bool]
    violations: Callable[[Sequence[RunningPod]], Sequence[bool]]


class VictimFinder:
    """Finds the victims for a pod. `remembers`: a node that did not help is skipped until it changes."""

    def __init__(self, columns: Columns, *, remembers: bool) -> None:
        self._columns = columns
        self._remembers = remembers
        self._hopeless: dict[int, int] = {}
        """Shapes that no victims would help, and the position of the log at that time."""

    def find(self, shape: int, ask: NodeQueries) -> Victims | None:
        """Return the node and its victims; None where no victims would help."""
        found = [one for node in self._candidates(shape) if (one := self._victims_on(shape, node, ask))]
        if found:
            return min(found)[1]
        if self._remembers and shape not in self._columns.domains.constrained:
            self._hopeless[shape] = self._columns.log.position
        return None

    def _candidates(self, shape: int) -> list[int]:
        """Return nodes that could help: large enough without any pod, open to the pod, not known to be hopeless."""
        columns = self._columns
        could: Bools = np.all(columns.filter_request(shape) <= columns.room, axis=1)
        could &= columns.gpu_count >= columns.shapes[shape].gpus
        allowed = columns.open_nodes(shape, ALL)
        if allowed is not None:
            could &= allowed
        # Nothing helped at that position of the log: only nodes that changed since can help now.
        since = self._hopeless.pop(shape, None)
        if since is not None:
            changed: Bools = np.zeros(columns.count, dtype=np.bool_)
            changed[columns.log.since(since)] = True
            could &= changed
        return np.flatnonzero(could).tolist()

    def _victims_on(self, shape: int, node: int, ask: NodeQueries) -> tuple[tuple[float, ...], Victims] | None:
        """Return a node's cost (less is better) and its victims; None where the node does not help."""
        priority = self._columns.shapes[shape].priority
        lower = order_by_importance(one for one in ask.running(node) if one.priority < priority)
        left = _FreeResources(self._columns, node)
        for one in lower:
            left.add(one, 1)
        if not lower or not left.suffices(shape) or not ask.admits(node, lower):
            return None

        def fits_beside(one: RunningPod, fewer: Sequence[RunningPod]) -> bool:
            left.add(one, -1)
            fits = left.suffices(shape) and ask.admits(node, fewer)
            if not fits:
                left.add(one, 1)
            return fits

        leaving, violations = reprieve(lower, fits_beside, ask.violations(lower))
        if not leaving:
            return None
        # The node's number decides ties.
        return (violations, *cost_of(leaving), node), Victims(node, tuple(one.uid for one in leaving))


class _FreeResources:
    """Free resources of a node, by sums and GPUs, while pods leave and come back hypothetically."""

    def __init__(self, columns: Columns, node: int) -> None:
        self._columns = columns
        self._free = columns.free(node)
        self._gpus = columns.loads.gpus[columns.load[node]].copy()

    def add(self, one: RunningPod, sign: int) -> None:
        """Free the resources of a pod, or take them again (`sign` -1)."""
        self._free = self._free + sign * self._columns.footprint(one.shape)
        if one.gpus:
            self._gpus[list(one.gpus)] += sign * self._columns.shapes[one.shape].gpu_milli

    def suffices(self, shape: int) -> bool:
        """Whether a pod of this shape fits."""
        demand = self._columns.shapes[shape]
        if not (self._columns.filter_request(shape) <= self._free).all():
            return False
        return not demand.gpus or int((self._gpus >= demand.gpu_milli).sum()) >= demand.gpus
