"""The scheduling cycle of a pod: filter, score, the feasible nodes that are considered, and ties.

Scores are remembered by what is booked on a node (`ScoreTable`), and only nodes that are considered are scored. Nothing
here knows the decisions of nodes; the exact filter asks through `admits`.
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
"""Score of a node on which the pod does not fit."""
_UNKNOWN = -2
_LEAST, _MOST = np.minimum.reduce, np.maximum.reduce
"""Reductions over a column; the columns' own methods do the same more slowly."""
_FEW = 32
"""Up to so many loads are scored together without looking for duplicates, which would cost more."""
# Upstream's minFeasibleNodesToFind, minFeasibleNodesPercentageToFind, and the adaptive 50 - nodes / 125 percent.
_FEWEST_NODES, _LEAST_PERCENT, _MOST_PERCENT, _NODES_PER_PERCENT = 100, 5, 50, 125
_TAINT_WEIGHT = 3
Scores: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Admits = Callable[[int, int], bool]
"""Whether a node admits a shape: (shape, node), both by number."""


class ScoreTable:
    """The score of every load by shape, computed when a node with that load is first considered."""

    def __init__(self, columns: Columns, policy: FleetPolicy) -> None:
        self._columns = columns
        self._policy = policy
        self._scores: dict[int, Scores] = {}
        self._generation = 0

    def scores_of(self, shape: int, rows: Rows) -> Scores:
        """Return the scores of some nodes as they are now, `NO_FIT` where the filter rejects the node."""
        loads = self._columns.load[rows]
        known = self._row_of(shape)
        scores = known[loads]
        if _LEAST(scores, initial=NO_FIT) == _UNKNOWN:
            # np.unique sorts, which costs more than scoring a few loads twice.
            new = loads[scores == _UNKNOWN]
            self._compute(shape, np.unique(new) if len(new) > _FEW else new, known)
            scores = known[loads]
        passes = self._columns.open_nodes(shape, rows)
        if passes is not None:
            scores[~passes] = NO_FIT
        return scores

    def _row_of(self, shape: int) -> Scores:
        """Return the scores of a shape by load, `_UNKNOWN` where they are not computed yet."""
        loads = self._columns.loads
        # Loads may be numbered anew; the old numbers then mean other loads.
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

    def _compute(self, shape: int, loads: Ints, known: Scores) -> None:
        """Fill in the scores of some loads."""
        fits = self._columns.loads.fits(shape, loads)
        known[loads] = NO_FIT
        fitting = loads[fits]
        if len(fitting):
            known[fitting] = self._policy.score(shape, fitting)


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return how many feasible nodes end a search (upstream's `percentageOfNodesToScore`; 0 adapts to the cluster)."""
    if nodes < _FEWEST_NODES or percentage >= 100:
        return nodes
    share = percentage or max(_LEAST_PERCENT, _MOST_PERCENT - nodes // _NODES_PER_PERCENT)
    return max(_FEWEST_NODES, nodes * share // 100)


def best_of_windows(scores: Scores, size: int) -> Bools:
    """Return the mask of nodes that are the best, or among the best, of some `size` consecutive ones; the first follows
    the last."""
    count = len(scores)
    # A node is best in one of its windows exactly if its score equals the least of the maxima of all windows that
    # contain it.
    most = _over_windows(np.maximum, np.concatenate([scores, scores[: size - 1]]), size)
    found: Bools = scores == _over_windows(np.minimum, np.concatenate([most[count - size + 1 :], most]), size)
    return found


def _over_windows(which: np.ufunc, values: Scores, size: int) -> Scores:
    """Return the greatest or least of each `size` consecutive values."""
    found, width = values, 1
    # Doubling windows: O(n log size) instead of O(n size).
    while 2 * width <= size:
        found, width = which(found[:-width], found[width:]), 2 * width
    count = len(values) - size + 1
    return which(found[:count], found[size - width : size - width + count])  # type: ignore[no-any-return]


class FleetScheduler:
    """The scheduler of one queue. `start`: the node where the next search begins, which moves on with every pod as
    upstream's nextStartNodeIndex."""

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
        self._feasible_limit = nodes_to_find(columns.count, percentage)
        self._draws = draws
        self._order = order

    @property
    def feasible_limit(self) -> int:
        """Number of feasible nodes that end a search."""
        return self._feasible_limit

    @property
    def scans_all_nodes(self) -> bool:
        """Whether every search considers all nodes."""
        return self._feasible_limit >= self.columns.count

    def scores(self, shape: int) -> Scores:
        """Return the scores of all nodes, `NO_FIT` where the filter rejects the node."""
        return self.table.scores_of(shape, ALL)

    def score(self, shape: int, node: int) -> int:
        """Return the score of one node."""
        return int(self.table.scores_of(shape, slice(node, node + 1))[0])

    def is_open(self, shape: int, node: int) -> bool:
        """Whether the filter passes a node, apart from what is booked there."""
        passes = self.columns.open_nodes(shape, slice(node, node + 1))
        return passes is None or bool(passes[0])

    def fits(self, shape: int, node: int) -> bool:
        """Whether the filter passes a node."""
        return self.score(shape, node) >= 0

    def is_plain(self, shape: int) -> bool:
        """Whether a node's score depends on nothing but what is booked there."""
        return self.columns.disliked[shape] is None and shape not in self.columns.domains.scores

    def feasible_nodes(self, shape: int) -> Ints:
        """Return all nodes that the filter passes."""
        return (self.table.scores_of(shape, ALL) >= 0).nonzero()[0]

    def possible_nodes(self, shape: int) -> Ints:
        """Return the nodes one of which a pod goes to, wherever its search begins."""
        if self.scans_all_nodes:
            ties = self.best_nodes(shape)
            return self.possible_ties(ties) if len(ties) else ties
        scores = self.table.scores_of(shape, ALL)
        nodes = (scores >= 0).nonzero()[0]
        if len(nodes) < self._feasible_limit:
            return self.best_nodes(shape)
        return nodes[best_of_windows(scores[nodes], self._feasible_limit)] if self.is_plain(shape) else nodes

    def candidates(self, shape: int) -> tuple[Ints, Scores]:
        """Return the feasible nodes that a pod considers now, and their scores; the start of the next search moves
        on."""
        if self.scans_all_nodes:
            every = self.table.scores_of(shape, ALL)
            nodes = (every >= 0).nonzero()[0]
            scores = every[nodes]
        else:
            nodes, scores = self._window(shape)
        scores = self._add_taint_scores(shape, nodes, scores)
        if shape in self.columns.domains.scores:
            scores = scores + self.columns.domains.scores_of(shape, nodes)
        return nodes, scores

    def best_nodes(self, shape: int) -> Ints:
        """Return the best nodes for a pod, one of which it goes to; empty where it fits nowhere."""
        # Neither taints nor other pods matter: the best nodes are read off the remembered scores.
        if self.scans_all_nodes and self.is_plain(shape):
            scores = self.table.scores_of(shape, ALL)
            most = scores.max(initial=NO_FIT)
            return (scores == most).nonzero()[0] if most >= 0 else _NO_NODES
        nodes, scores = self.candidates(shape)
        return nodes[(scores == _MOST(scores)).nonzero()[0]] if len(nodes) else nodes

    def best_admitting(self, shape: int, admits: Admits, states: Ints) -> Ints:
        """Return the best of the nodes that admit the pod. Nodes with equal `states` are asked once."""
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
            # Nodes further down in a state that has refused need not be asked.
            left = ~top & ~np.isin(states[nodes], np.array(sorted(refused), dtype=np.int64))
            nodes, scores = nodes[left], scores[left]
        return nodes

    def _one_admits(self, shape: int, node: int, state: int, refused: set[int], admits: Admits) -> bool:
        """Whether a node admits the shape; states that refuse are remembered in `refused`."""
        if state in refused:
            return False
        if admits(shape, node):
            return True
        refused.add(state)
        return False

    def choose(self, ties: Ints, pod: int, attempt: int) -> int:
        """Choose one of the best nodes; `attempt` makes the draws of a pod's attempts differ."""
        if len(ties) == 1 or self._ties == "first":
            return int(ties[0])
        if self._ties == "permuted":
            return int(ties[self._order[ties].argmin()])
        return int(ties[self._draws.draw_below(len(ties), pod, attempt)])

    def possible_ties(self, ties: Ints) -> Ints:
        """Return those of the best nodes that the tie rule could choose."""
        # Only draws depend on the pod and its attempt; the other rules choose the same node for each.
        return ties if self._ties == "random" else np.array([self.choose(ties, 0, 0)], dtype=np.int64)

    def _window(self, shape: int) -> tuple[Ints, Scores]:
        """Return the next feasible nodes from where the last search ended, up to the limit, and their scores."""
        start, last = self.start, min(self.start + self._feasible_limit, self.columns.count)
        scores = self.table.scores_of(shape, slice(start, last))
        # The common case: all of the next nodes are feasible, and no search is needed.
        if last - start == self._feasible_limit and _LEAST(scores) >= 0:
            self.start = last % self.columns.count
            return np.arange(start, last), scores
        return self._search(shape, scores)

    def _search(self, shape: int, scores: Scores) -> tuple[Ints, Scores]:
        """Return the same where some nodes are not feasible; `scores` are those of the first nodes."""
        found: list[tuple[Ints, Scores]] = []
        lacking, size = self._feasible_limit, len(scores)
        for first, last in ((self.start, self.columns.count), (0, self.start)):
            while first < last and lacking:
                end = min(last, first + size)
                if found:
                    scores = self.table.scores_of(shape, slice(first, end))
                fitting = (scores >= 0).nonzero()[0][:lacking]
                found.append((fitting + first, scores[fitting]))
                lacking -= len(fitting)
                # Doubling parts: where few nodes are feasible a scan of the cluster takes few steps.
                first, size = end, 2 * size
        nodes, best = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        # A search that went round the whole cluster ends where it began, so the start stays.
        if not lacking:
            self.start = (int(nodes[-1]) + 1) % self.columns.count
        return nodes, best

    def _add_taint_scores(self, shape: int, nodes: Ints, scores: Scores) -> Scores:
        """Add TaintToleration's score: 100 without disliked taints, 0 for the node with the most of them."""
        disliked = self.columns.disliked[shape]
        if disliked is None or not len(nodes):
            return scores
        taints = disliked[nodes]
        most = taints.max()
        return scores + _TAINT_WEIGHT * (100 - taints * 100 // most) if most else scores


_NO_NODES: Ints = np.zeros(0, dtype=np.int64)
