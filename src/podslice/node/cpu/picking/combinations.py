"""Choose the NUMA nodes to distribute CPUs over: the best combination of a size (cpu-topology 4.7, 4.8).

Upstream scores every combination of nodes, and for each every subset that could take the remainder. `bounded` finds
the same one without. Only where a node belongs to two sockets, or where upstream may never end, every combination is
scored here as well.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import NamedTuple

from podslice.node.cpu.picking.balance import Balance, Distribution, ScoredCombination
from podslice.node.cpu.picking.bounded import BoundedSearch
from podslice.node.cpu.picking.packed import Accumulator
from podslice.node.topology.search import SearchBudget
from podslice.values.errors import UpstreamDefectError
from podslice.values.quirks import Quirks

_DEFECT = "endless_distribution"
_MOST_COMBINATIONS = 1 << 20
_MOST_SUBSETS = 1 << 21


class Choice(NamedTuple):
    """A combination of NUMA nodes and the subset of it that takes the remainder."""

    nodes: tuple[int, ...]
    remainder: tuple[int, ...]


class Combinations:
    """Finds the best combination of a given size among the nodes of `work`, which may list a node twice.

    `endless`: distributions on which upstream loops for ever raise `UpstreamDefectError` (quirk
    `endless_distribution`).
    """

    def __init__(self, work: Accumulator, deal: Distribution, quirks: Quirks, search_budget: SearchBudget) -> None:
        nodes = work.topology.numa_nodes
        self.numas = work.numas()
        self.free = {node: (nodes[node] & work.free).bit_count() for node in self.numas}
        self.fullest = sorted([self.free[node] for node in self.numas], reverse=True)
        self.deal = deal
        self.search_budget = search_budget
        self.balance = Balance(self.free.values(), deal.cpus)
        self.straddling = len(self.free) != len(self.numas)
        self.endless = quirks.endless_distribution
        self._aliasing = quirks.combination_aliasing
        self._subsets = 0

    def best(self, size: int) -> Choice | None:
        """Return the best choice of `size` nodes, None if none can hold the request (cpu-topology 4.7, step 4)."""
        if self.straddling or self._may_never_end(size):
            found = self._walk(size)
        elif size == 1:
            return self._single()
        else:
            frees = [self.free[node] for node in self.numas]
            found = BoundedSearch(frees, size, self.deal, self.balance, self.search_budget).run()
        return None if found is None else self._apply_aliasing(*found)

    def _single(self) -> Choice | None:
        """Return the first node with the best balance. It takes everything, so the fullest is best but for rounding,
        and the defect of remembered combinations (cpu-topology 4.8) cannot occur."""
        count = self.deal.cpus
        fullest = self.fullest[0]
        if fullest < count:
            return None
        best = self._score_alone(fullest)
        for node, free in self.free.items():
            if free >= count and (free == fullest or self._score_alone(free) == best):
                return Choice((node,), ())
        return None

    def _score_alone(self, free: int) -> int:
        return self.balance.score(self.balance.squares - free * free + (free - self.deal.cpus) ** 2)

    def _may_never_end(self, size: int) -> bool:
        """Whether the remainder may not come out in whole groups. That needs two nodes with part of a group left and
        together fewer whole groups than the remainder has (cpu-topology 11.3)."""
        group, share = self.deal.group, self.deal.share(size)
        groups = self.deal.remainder(size) // group
        if group == 1 or groups < 2 or not self.endless:
            return False
        parts = sorted(
            [(free - share) // group for free in self.free.values() if free % group and free - share >= group]
        )
        return len(parts) > 1 and parts[0] + parts[1] < groups

    def _walk(self, size: int) -> tuple[tuple[int, ...], ScoredCombination] | None:
        """Return the best combination as positions in `numas`, by scoring every one.

        A score depends only on how many CPUs each node of a combination has free, so combinations that look alike are
        scored once.
        """
        best: tuple[int, ...] | None = None
        best_found: ScoredCombination | None = None
        alike: dict[tuple[int, ...], ScoredCombination | None] = {}
        numas = self.numas
        frees = [self.free[node] for node in numas]
        if sum(self.fullest[:size]) < self.deal.cpus:
            return None
        if comb(len(numas), size) > _MOST_COMBINATIONS:
            raise UpstreamDefectError(
                _DEFECT, f"{comb(len(numas), size)} combinations of {size} NUMA nodes are scored one by one", hangs=True
            )
        for positions in combinations(range(len(numas)), size):
            if best_found is not None and best_found.score == 0:
                break
            key = positions if self.straddling else tuple([frees[i] for i in positions])
            try:
                found = alike[key]
            except KeyError:
                found = alike[key] = self._score([numas[i] for i in positions])
            if found is not None and (best_found is None or found.score < best_found.score):
                best, best_found = positions, found
        return None if best is None or best_found is None else (best, best_found)

    def _apply_aliasing(self, best: tuple[int, ...], best_found: ScoredCombination) -> Choice:
        """Return the combination that upstream goes on with: its enumeration may overwrite a remembered one
        (cpu-topology 4.8)."""
        numas = self.numas
        remainder = best_found.remainder
        candidates = [best[i] for i in best_found.candidates]
        if self._aliasing:
            remainder = _overwrite(remainder, len(candidates))
            # A score of 0 ends upstream's enumeration, so at most one combination comes after it.
            if best_found.score != 0:
                best = _overwrite(best, len(numas))
            else:
                best = overwrite_by_next(best, len(numas))
        return Choice(tuple(numas[i] for i in best), tuple(numas[candidates[i]] for i in remainder))

    def _score(self, nodes: list[int]) -> ScoredCombination | None:
        """Return the score of a combination, None if it cannot hold the request (cpu-topology 4.7, step 4.b)."""
        (count, group), free = self.deal, self.free
        left = {node: free[node] for node in nodes}
        if sum(left.values()) < count or sum(free[node] // group for node in nodes) * group < count:
            return None
        share = self.deal.share(len(nodes))
        if min(left.values()) < share:
            return None
        others = self.balance.squares - sum(value * value for value in left.values())
        for node in nodes:
            left[node] -= share
        remainder = self.deal.remainder(len(nodes))
        if not remainder:
            return ScoredCombination(self.balance.score(others + sum(value * value for value in left.values())), (), ())
        return self._score_remainder(nodes, left, remainder, others)

    def _score_remainder(
        self, nodes: list[int], left: dict[int, int], remainder: int, others: int
    ) -> ScoredCombination | None:
        """Return the subset of `nodes` to deal the remainder to (cpu-topology 4.7, step 4.b.7); larger subsets first.

        `others` is the sum of squares of what is free on nodes outside the combination.
        """
        candidates = tuple(i for i, node in enumerate(nodes) if left[node] >= self.deal.group)
        best: ScoredCombination | None = None
        alike: set[tuple[int, ...]] = set()
        straddling = len(left) != len(nodes)
        amounts = [left[nodes[i]] for i in candidates]
        for size in range(len(candidates), 0, -1):
            if self._subsets + comb(len(candidates), size) > _MOST_SUBSETS:
                raise UpstreamDefectError(_DEFECT, "every way to deal the remainder is scored", hangs=True)
            for subset in combinations(range(len(candidates)), size):
                self._subsets += 1
                values = tuple([amounts[i] for i in subset])
                if values in alike and not straddling:
                    continue
                alike.add(values)
                if sum(values) < remainder:
                    continue
                chosen = [nodes[candidates[i]] for i in subset]
                after = self._deal(chosen, left, remainder)
                if after is None:
                    continue
                score = self.balance.score(others + sum(value * value for value in after.values()))
                if best is None or score < best.score:
                    best = ScoredCombination(score, subset, candidates)
        return best

    def _deal(self, nodes: list[int], left: dict[int, int], remainder: int) -> dict[int, int] | None:
        """Return what is left after dealing the remainder round by round, None when whole groups run out (cpu-topology
        11.3)."""
        group = self.deal.group
        after = dict(left)
        while remainder > 0:
            before = remainder
            for node in nodes:
                if remainder > 0 and after[node] >= group:
                    after[node] -= group
                    remainder -= group
            if remainder == before:
                if self.endless:
                    raise UpstreamDefectError(
                        _DEFECT, "left-over CPUs cannot supply the remainder in whole groups", hangs=True
                    )
                return None
        return after


def _kept_length(size: int) -> int:
    """Return how many leading elements of a remembered combination upstream keeps: 1, or the largest 2**j + 1 ≤
    size."""
    if size < 2:
        return size
    # Upstream appends to a growing array that later combinations share; these are the sizes at which it grows.
    return (1 << (size - 1).bit_length() - 1) + 1


def _overwrite(positions: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Return a remembered combination of `range(length)` as it reads after the full enumeration (cpu-topology 4.8)."""
    size = len(positions)
    kept = _kept_length(size)
    return positions[:kept] + tuple(range(length - (size - kept), length))


def overwrite_by_next(positions: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Return a remembered combination as it reads when only its successor was enumerated after it (cpu-topology
    4.8)."""
    size = len(positions)
    moving = next((i for i in reversed(range(size)) if positions[i] != length - size + i), None)
    if moving is None or moving < _kept_length(size):
        return positions
    start = positions[moving] + 1
    return positions[:moving] + tuple(range(start, start + size - moving))
