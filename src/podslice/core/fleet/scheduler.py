"""Which node a pod goes to: filter, score, the nodes that are looked at, and ties.

Scores of a shape are a column that is brought up to date only where nodes changed (`ScoreTable`). Nothing here knows
what nodes answer; the exact filter asks through `admits`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from podslice.core.fleet.columns import ALL, Columns, Ints
from podslice.core.fleet.options import TieRule
from podslice.core.fleet.policies import FleetPolicy
from podslice.core.fleet.streams import IndexedStream

NO_FIT = -1
"""In a column of scores: the pod does not fit."""
_FEWEST_NODES, _LEAST_PERCENT, _MOST_PERCENT, _NODES_PER_PERCENT = 100, 5, 50, 125
_TAINT_WEIGHT = 3
Admits = Callable[[int, int], bool]
"""Whether a shape is admitted by a node, both by number."""


class ScoreTable:
    """For each shape the score of every node, `NO_FIT` where the filter lets it not pass."""

    def __init__(self, columns: Columns, policy: FleetPolicy) -> None:
        self._columns = columns
        self._policy = policy
        self._scores: dict[int, Ints] = {}
        self._seen: dict[int, int] = {}

    def of(self, shape: int) -> Ints:
        """The column of a shape as nodes are now; not to be changed."""
        log = self._columns.log
        scores = self._scores.get(shape)
        if scores is None:
            scores = self._scores[shape] = np.full(self._columns.count, NO_FIT, dtype=np.int64)
            self._seen[shape] = NO_FIT
        seen = self._seen[shape]
        if seen != log.position:
            rows = ALL if seen == NO_FIT else log.since(seen)
            fits = self._columns.fits(shape, rows)
            scores[rows] = NO_FIT
            chosen = np.flatnonzero(fits) if isinstance(rows, slice) else rows[fits]
            scores[chosen] = self._policy.score(shape, chosen)
            self._seen[shape] = log.position
        return scores


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many nodes that fit are enough, as upstream's `percentageOfNodesToScore`; 0 adapts to the cluster."""
    if nodes < _FEWEST_NODES or percentage >= 100:
        return nodes
    share = percentage or max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_PER_PERCENT)
    return max(_FEWEST_NODES, nodes * share // 100)


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
    def rounds(self) -> int:
        """So many pods look at every node."""
        return -(-self.columns.count // max(1, self._enough)) + 1

    @property
    def looks_everywhere(self) -> bool:
        """True where every pod looks at every node."""
        return self._enough >= self.columns.count

    def candidates(self, shape: int) -> tuple[Ints, Ints]:
        """Nodes that a pod may go to now, and their scores; the search moves on."""
        scores = self.table.of(shape)
        if self.looks_everywhere:
            nodes = np.flatnonzero(scores >= 0)
        else:
            nodes = self._window(scores)
        return nodes, self._with_taints(shape, nodes, scores[nodes])

    def best(self, shape: int) -> Ints:
        """The best nodes for a pod, one of which it goes to; none where it fits nowhere."""
        if self.looks_everywhere and self.columns.disliked[shape] is None:
            scores = self.table.of(shape)
            most = scores.max(initial=NO_FIT)
            return np.flatnonzero(scores == most) if most >= 0 else _NO_NODES
        nodes, scores = self.candidates(shape)
        return nodes[scores == scores.max()] if len(nodes) else nodes

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

    def _window(self, scores: Ints) -> Ints:
        """The next nodes that fit, as many as are enough, from where the last search ended."""
        count, start = len(scores), self.start
        first = np.flatnonzero(scores[start:] >= 0)[: self._enough] + start
        if len(first) == self._enough:
            self.start = (int(first[-1]) + 1) % count
            return first
        more = np.flatnonzero(scores[:start] >= 0)[: self._enough - len(first)]
        if len(first) + len(more) == self._enough:
            self.start = int(more[-1]) + 1
        return np.concatenate([first, more])

    def _with_taints(self, shape: int, nodes: Ints, scores: Ints) -> Ints:
        disliked = self.columns.disliked[shape]
        if disliked is None or not len(nodes):
            return scores
        taints = disliked[nodes]
        most = taints.max()
        return scores + _TAINT_WEIGHT * (100 - taints * 100 // most) if most else scores


_NO_NODES: Ints = np.zeros(0, dtype=np.int64)
