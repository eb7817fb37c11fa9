"""kube-scheduler's scores on columns: the arithmetic of `scheduling.scoring`, equal to the last bit.

Amounts are 64-bit integers that wrap as upstream's do; only BalancedAllocation's fractions are floating-point numbers,
in the same order of operations.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.loads import Ints, LoadMemo, LoadTable
from podslice.scheduling.predicates import CPU, MEMORY
from podslice.scheduling.scoring import MAX_NODE_SCORE

_BALANCED = slice(1, 3)
"""Columns of CPU and memory in `LoadTable.used`."""


def halve(amount: Ints) -> Ints:
    """Divide by two, rounding towards zero as Go does."""
    return (amount + (amount < 0)) >> 1


def free_shares(used: Ints, room: Ints) -> Ints:
    """Return the free share of each resource in percent, 0 where the node has none."""
    free = (room - used) * MAX_NODE_SCORE // np.maximum(room, 1)
    return np.where((room == 0) | (used > room), 0, free)


def used_shares(used: Ints, room: Ints) -> Ints:
    """Return the used share of each resource in percent."""
    return np.minimum(used, room) * MAX_NODE_SCORE // np.maximum(room, 1)


def mean_share(shares: Ints, room: Ints) -> Ints:
    """Return the mean over the resources that a node has; the last axis has the resources."""
    counted: Ints = np.maximum((room != 0).sum(axis=-1), 1)
    return shares.sum(axis=-1) // counted


def interpolate(curve: tuple[tuple[int, int], ...], shares: Ints) -> Ints:
    """Return scores (0 to 100) on the line through points of (percent, 0 to 10), in whole numbers."""
    ten = MAX_NODE_SCORE // 10
    found = np.full_like(shares, curve[-1][1] * ten)
    for (x0, y0), (x1, y1) in reversed(list(pairwise(curve))):
        rise = (y1 - y0) * ten * (shares - x0)
        steps = np.where(rise < 0, -(-rise // (x1 - x0)), rise // (x1 - x0))
        found = np.where(shares <= x1, y0 * ten + steps, found)
    return np.where(shares <= curve[0][0], curve[0][1] * ten, found)


def balance_scores(requested: Ints, room: Ints) -> Ints:
    """Return how equal the used shares of CPU and memory are, 100 at best."""
    fractions = np.minimum(1.0, requested / np.maximum(room, 1))
    spread = np.abs(fractions[..., 0] - fractions[..., 1]) / 2
    spread = np.where((room != 0).all(axis=-1), spread, 0.0)
    return ((1 - spread) * MAX_NODE_SCORE).astype(np.int64)


class KubePolicy:
    """LeastAllocated, MostAllocated or RequestedToCapacityRatio, with BalancedAllocation at equal weight where
    `balanced`."""

    def __init__(self, loads: LoadTable, name: str, *, balanced: bool, curve: tuple[tuple[int, int], ...] = ()) -> None:
        self._loads = loads
        self._name = name
        self._balanced = balanced
        self._curve = curve
        self._scored = [_pair(shape, shape.requests.scored) for shape in loads.shapes]
        self._added = [_pair(shape, shape.requests.balanced) for shape in loads.shapes]
        self._before = LoadMemo(loads, self._balance).lookup

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 200 for loads that the pod fits on."""
        loads = self._loads
        room = loads.room[rows, _BALANCED]
        used = loads.non_zero[rows] + self._scored[shape]
        if self._name == "least-allocated":
            score = mean_share(free_shares(used, room), room)
        elif self._name == "most-allocated":
            score = mean_share(used_shares(used, room), room)
        else:
            full = np.where((room == 0) | (used > room), MAX_NODE_SCORE, used_shares(used, room))
            score = mean_share(np.where(room == 0, 0, interpolate(self._curve, full)), room)
        if self._balanced:
            # Upstream scores the change of the balance: 75 for none, plus half of the gain, rounded towards zero.
            change = balance_scores(loads.used[rows, _BALANCED] + self._added[shape], room) - self._before(rows)
            score = score + MAX_NODE_SCORE // 2 + halve(MAX_NODE_SCORE // 2 + change)
        return score

    def _balance(self, rows: Ints) -> Ints:
        return balance_scores(self._loads.used[rows, _BALANCED], self._loads.room[rows, _BALANCED])


def _pair(shape: FleetShape, amounts: object) -> Ints:
    assert isinstance(amounts, dict)
    return np.array([amounts.get(CPU, 0), amounts.get(MEMORY, 0)], dtype=np.int64)
