"""Which node a pod goes to: filter, score, the nodes that are looked at, and ties.

Scores are remembered by what is booked on a node (`ScoreTable`), and only nodes that are looked at are scored. Nothing
here knows what nodes answer; the exact filter asks through `admits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from podslice.fleet.engine.options import TieRule
from podslice.fleet.engine.streams import IndexedStream
from podslice.fleet.scheduler.columns import ALL, Columns, Rows
from podslice.fleet.scheduler.loads import Bools, Ints
from podslice.fleet.scheduler.policies import FleetPolicy

NO_FIT = -1
"""In a column of scores: the pod does not fit."""
_UNKNOWN = -2
_LEAST, _MOST = np.minimum.reduce, np.maximum.reduce
"""Of a column; the columns' own methods do the same more slowly."""
_FEW = 32
"""So many are scored together sooner than those that are equal are found."""
_FEWEST_NODES, _LEAST_PERCENT, _MOST_PERCENT, _NODES_PER_PERCENT = 100, 5, 50, 125
_TAINT_WEIGHT = 3
Scores: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Admits = Callable[[int, int], bool]
"""Whether a shape is admitted by a node, both by number."""


class ScoreTable:
    """For each shape the score of every load, worked out when a node with that load is first looked at."""

    def __init__(self, columns: Columns, policy: FleetPolicy) -> None:
        self._columns = columns
        self._policy = policy
        self._scores: dict[int, Scores] = {}
        self._generation = 0

    def of(self, shape: int, rows: Rows) -> Scores:
        """The scores of some nodes as they are now, `NO_FIT` where the filter lets a pod not pass."""
        loads = self._columns.load[rows]
        known = self._known(shape)
        scores = known[loads]
        if _LEAST(scores, initial=NO_FIT) == _UNKNOWN:
            new = loads[scores == _UNKNOWN]
            self._work_out(shape, np.unique(new) if len(new) > _FEW else new, known)
            scores = known[loads]
        passes = self._columns.open(shape, rows)
        if passes is not None:
            scores[~passes] = NO_FIT
        return scores

    def _known(self, shape: int) -> Scores:
        loads = self._columns.loads
        if self._generation != loads.generation:
            self._generation = loads.generation
            self._scores.clear()
        known = self._scores.get(shape)
        if known is None or len(known) < len(loads.kind):
            grown = np.full(len(loads.kind), _UNKNOWN, dtype=np.int32)
            if known is not None:
                grown[: len(known)] = known
            known = self._scores[shape] = grown
        return known

    def _work_out(self, shape: int, loads: Ints, known: Scores) -> None:
        fits = self._columns.loads.fits(shape, loads)
        known[loads] = NO_FIT
        fitting = loads[fits]
        if len(fitting):
            known[fitting] = self._policy.score(shape, fitting)


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many nodes that fit are enough, as upstream's `percentageOfNodesToScore`; 0 adapts to the cluster."""
    if nodes < _FEWEST_NODES or percentage >= 100:
        return nodes
    share = percentage or max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_PER_PERCENT)
    return max(_FEWEST_NODES, nodes * share // 100)


def best_of_windows(scores: Scores, size: int) -> Bools:
    """Which are the best, or among the best, of so many that follow one another; after the last comes the first."""
    count = len(scores)
    most = _over_windows(np.maximum, np.concatenate([scores, scores[: size - 1]]), size)
    found: Bools = scores == _over_windows(np.minimum, np.concatenate([most[count - size + 1 :], most]), size)
    return found


def _over_windows(which: np.ufunc, values: Scores, size: int) -> Scores:
    """The greatest or least of each `size` values that follow one another."""
    found, width = values, 1
    while 2 * width <= size:
        found, width = which(found[:-width], found[width:]), 2 * width
    count = len(values) - size + 1
    return which(found[:count], found[size - width : size - width + count])  # type: ignore[no-any-return]


class FleetScheduler:
    """One queue's scheduler. `start`: where the search for nodes begins, which moves on with every pod."""

    def __init__(
        self,
        columns: Columns,
        policy: FleetPolicy,
        *,
        ties: TieRule,
        percentage: int,
        draws: IndexedStream,
        order: Ints,
    ) -> None:
        self.columns = columns
        self.table = ScoreTable(columns, policy)
        self.start = 0
        self._ties = ties
        self._enough = nodes_to_find(columns.count, percentage)
        self._draws = draws
        self._order = order

    @property
    def enough(self) -> int:
        """So many nodes that a pod fits on are looked at."""
        return self._enough

    @property
    def looks_everywhere(self) -> bool:
        """True where every pod looks at every node."""
        return self._enough >= self.columns.count

    def scores(self, shape: int) -> Scores:
        """Of all nodes, `NO_FIT` where the filter lets a pod not pass."""
        return self.table.of(shape, ALL)

    def score(self, shape: int, node: int) -> int:
        """Of one node."""
        return int(self.table.of(shape, slice(node, node + 1))[0])

    def is_open(self, shape: int, node: int) -> bool:
        """Whether the filter lets one node pass, apart from what is booked there."""
        passes = self.columns.open(shape, slice(node, node + 1))
        return passes is None or bool(passes[0])

    def fits(self, shape: int, node: int) -> bool:
        """Whether the filter lets one node pass."""
        return self.score(shape, node) >= 0

    def is_plain(self, shape: int) -> bool:
        """Whether a node's score depends on nothing but what is booked there."""
        return self.columns.disliked[shape] is None and shape not in self.columns.domains.scores

    def fitting(self, shape: int) -> Ints:
        """All nodes that the filter lets pass."""
        return (self.table.of(shape, ALL) >= 0).nonzero()[0]

    def may_take(self, shape: int) -> Ints:
        """Nodes one of which a pod goes to, wherever its search for nodes begins."""
        if self.looks_everywhere:
            ties = self.best(shape)
            return self.possible(ties) if len(ties) else ties
        scores = self.table.of(shape, ALL)
        nodes = (scores >= 0).nonzero()[0]
        if len(nodes) < self._enough:
            return self.best(shape)
        return nodes[best_of_windows(scores[nodes], self._enough)] if self.is_plain(shape) else nodes

    def candidates(self, shape: int) -> tuple[Ints, Scores]:
        """Nodes that a pod may go to now, and their scores; the search moves on."""
        if self.looks_everywhere:
            every = self.table.of(shape, ALL)
            nodes = (every >= 0).nonzero()[0]
            scores = every[nodes]
        else:
            nodes, scores = self._window(shape)
        scores = self._with_taints(shape, nodes, scores)
        if shape in self.columns.domains.scores:
            scores = scores + self.columns.domains.scores_of(shape, nodes)
        return nodes, scores

    def best(self, shape: int) -> Ints:
        """The best nodes for a pod, one of which it goes to; none where it fits nowhere."""
        if self.looks_everywhere and self.is_plain(shape):
            scores = self.table.of(shape, ALL)
            most = scores.max(initial=NO_FIT)
            return (scores == most).nonzero()[0] if most >= 0 else _NO_NODES
        nodes, scores = self.candidates(shape)
        return nodes[(scores == _MOST(scores)).nonzero()[0]] if len(nodes) else nodes

    def best_that_admits(self, shape: int, admits: Admits, states: Ints) -> Ints:
        """The best nodes of those that admit the pod. Nodes in equal `states` are asked once."""
        nodes, scores = self.candidates(shape)
        refused: set[int] = set()
        while len(nodes):
            top = scores == scores.max()
            ties = nodes[top]
            found = [
                node for node in ties.tolist() if self._one_admits(shape, node, int(states[node]), refused, admits)
            ]
            if found:
                return np.array(found, dtype=np.int64)
            left = ~top & ~np.isin(states[nodes], np.array(sorted(refused), dtype=np.int64))
            nodes, scores = nodes[left], scores[left]
        return nodes

    def _one_admits(self, shape: int, node: int, state: int, refused: set[int], admits: Admits) -> bool:
        if state in refused:
            return False
        if admits(shape, node):
            return True
        refused.add(state)
        return False

    def choose(self, ties: Ints, pod: int, attempt: int) -> int:
        """One of the best nodes."""
        if len(ties) == 1 or self._ties == "first":
            return int(ties[0])
        if self._ties == "permuted":
            return int(ties[self._order[ties].argmin()])
        return int(ties[self._draws.below(len(ties), pod, attempt)])

    def possible(self, ties: Ints) -> Ints:
        """Those of the best nodes that could be chosen."""
        return ties if self._ties == "random" else np.array([self.choose(ties, 0, 0)], dtype=np.int64)

    def _window(self, shape: int) -> tuple[Ints, Scores]:
        """The next nodes that fit, as many as are enough, from where the last search ended, and their scores."""
        start, last = self.start, min(self.start + self._enough, self.columns.count)
        scores = self.table.of(shape, slice(start, last))
        if last - start == self._enough and _LEAST(scores) >= 0:
            self.start = last % self.columns.count
            return np.arange(start, last), scores
        return self._search(shape, scores)

    def _search(self, shape: int, scores: Scores) -> tuple[Ints, Scores]:
        """The same where some nodes do not fit; `scores` are those of the first nodes."""
        found: list[tuple[Ints, Scores]] = []
        lacking, size = self._enough, len(scores)
        for first, last in ((self.start, self.columns.count), (0, self.start)):
            while first < last and lacking:
                end = min(last, first + size)
                if found:
                    scores = self.table.of(shape, slice(first, end))
                fitting = (scores >= 0).nonzero()[0][:lacking]
                found.append((fitting + first, scores[fitting]))
                lacking -= len(fitting)
                first, size = end, 2 * size
        nodes, best = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        if not lacking:
            self.start = (int(nodes[-1]) + 1) % self.columns.count
        return nodes, best

    def _with_taints(self, shape: int, nodes: Ints, scores: Scores) -> Scores:
        disliked = self.columns.disliked[shape]
        if disliked is None or not len(nodes):
            return scores
        taints = disliked[nodes]
        most = taints.max()
        return scores + _TAINT_WEIGHT * (100 - taints * 100 // most) if most else scores


_NO_NODES: Ints = np.zeros(0, dtype=np.int64)
