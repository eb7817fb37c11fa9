"""Find the best combination of NUMA nodes without scoring all of them (cpu-topology 4.7; docs/development/merge.md).

A combination's score depends only on the sum of squares of the CPUs left on the nodes. Giving the groups of the
remainder to whichever node has most left bounds that sum from below, and the bound is smaller the more the nodes have.
So combinations are walked in upstream's order, and a prefix is abandoned as soon as even the fullest nodes after it
could not beat the best combination known.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

from podslice.node.cpu.picking.balance import Balance, Distribution, ScoredCombination
from podslice.node.topology.search import SearchBudget


def largest_reduction(lefts: Sequence[int], groups: int, group: int) -> int | None:
    """Return how much the sum of squares of `lefts` shrinks at most by taking `groups` groups of `group` CPUs away;
    None where there are not as many."""
    if not groups:
        return 0
    if groups == 1:
        most = max(lefts, default=0)
        return None if most < group else group * (2 * most - group)
    heap = [-left for left in lefts]
    heapify(heap)
    less = 0
    for _ in range(groups):
        most = -heap[0]
        if most < group:
            return None
        heapreplace(heap, group - most)
        less += group * (2 * most - group)
    return less


class BoundedSearch:
    """Finds the first combination of `size` nodes, in list order, that leaves the best balance.

    `frees` are the free CPUs of the nodes in list order. When the search budget runs out, the best one so far is the
    result.
    """

    def __init__(
        self, frees: Sequence[int], size: int, deal: Distribution, balance: Balance, search_budget: SearchBudget
    ) -> None:
        self.frees = frees
        self.size = size
        self.group = deal.group
        self.balance = balance
        self.share = deal.share(size)
        self.groups = deal.remainder(size) // deal.group
        self.search_budget = search_budget
        self.places = [place for place, free in enumerate(frees) if free >= self.share]
        self.best: tuple[tuple[int, ...], ScoredCombination] | None = None
        self._limit = 0
        self._scored: dict[tuple[int, ...], ScoredCombination | None] = {}

    def run(self) -> tuple[tuple[int, ...], ScoredCombination] | None:
        """Return positions in `frees` and their score, None if no combination can hold the request."""
        places = self.places
        if len(places) < self.size:
            return None
        # The fullest nodes reach about the best score; upstream takes the first combination that does, so the search
        # still runs for an earlier one unless the first in order cannot be beaten.
        fullest = sorted(sorted(places, key=lambda place: -self.frees[place])[: self.size])
        known = self._score(tuple(fullest))
        if known is None:
            return None
        self._limit = known.score
        first = tuple(places[: self.size])
        scored = self._score(first)
        if scored is not None and scored.score == self._least(sorted([self.frees[i] for i in places])[-self.size :]):
            return first, scored
        self._after: list[list[int]] = [[]]
        for place in reversed(places):
            self._after.append(sorted([*self._after[-1], self.frees[place]], reverse=True)[: self.size])
        self._after.reverse()
        self._descend((), 0)
        return self.best or (tuple(fullest), known)

    def _descend(self, chosen: tuple[int, ...], start: int) -> None:
        """Try all combinations with this prefix, positions in `places`, that can still be the best."""
        missing = self.size - len(chosen)
        if not missing:
            scored = self._score(tuple([self.places[i] for i in chosen]))
            if scored is not None and scored.score <= self._limit and (self.best is None or scored.score < self._limit):
                self.best = tuple([self.places[i] for i in chosen]), scored
                self._limit = scored.score
            return
        tried = set()
        for index in range(start, len(self.places) - missing + 1):
            free = self.frees[self.places[index]]
            # Nodes with as many free CPUs score the same, and the first in order wins.
            if free in tried:
                continue
            tried.add(free)
            if not self.search_budget.spend() or (self.best is not None and self._limit == 0):
                return
            bound = self._lower_bound((*chosen, index), missing - 1)
            if bound is not None and (bound < self._limit or (bound == self._limit and self.best is None)):
                self._descend((*chosen, index), index + 1)

    def _lower_bound(self, chosen: tuple[int, ...], missing: int) -> int | None:
        """Return a score that no combination with this prefix beats, None if none can hold the request."""
        return self._least([self.frees[self.places[i]] for i in chosen] + self._after[chosen[-1] + 1][:missing])

    def _least(self, frees: Sequence[int]) -> int | None:
        """Return a score that nodes with these free CPUs cannot beat, None if they cannot hold the request."""
        share = self.share
        less = largest_reduction([free - share for free in frees], self.groups, self.group)
        if less is None:
            return None
        return self.balance.score(self.balance.squares - share * (2 * sum(frees) - len(frees) * share) - less)

    def _score(self, places: tuple[int, ...]) -> ScoredCombination | None:
        frees = tuple([self.frees[place] for place in places])
        if frees not in self._scored:
            self._scored[frees] = _Remainder(self, frees).best()
        return self._scored[frees]


class _Remainder:
    """Choice of the nodes of a combination that take the remainder (cpu-topology 4.7, step 4.b.7).

    Upstream deals groups round by round to the nodes of a subset, and prefers larger subsets, then the first in list
    order. In a subset that is not smaller than the number of groups, the first nodes take one group each.
    """

    def __init__(self, search: BoundedSearch, frees: Sequence[int]) -> None:
        self.groups = search.groups
        self.group = search.group
        self.balance = search.balance
        self.search_budget = search.search_budget
        lefts = [free - search.share for free in frees]
        self.candidates = tuple([i for i, left in enumerate(lefts) if left >= self.group])
        self.amounts = [lefts[i] for i in self.candidates]
        others = self.balance.squares - sum([free * free for free in frees])
        self.squares = others + sum([left * left for left in lefts])

    def best(self) -> ScoredCombination | None:
        """Return the best subset's score, None when the nodes cannot supply the remainder."""
        if not self.groups:
            return ScoredCombination(self.balance.score(self.squares), (), ())
        best: tuple[int, tuple[int, ...]] | None = None
        least = self._after_one_each(sum(sorted(self.amounts)[-self.groups :]))
        for size in range(len(self.amounts), 0, -1):
            if size >= self.groups and best is not None and best[0] == least:
                continue
            found = self._best_one_each(size, best) if size >= self.groups else None
            if size < self.groups:
                bound = self._lower_bound(size)
                if bound is None or (best is not None and bound >= best[0]):
                    break
                found = self._best_several_each(size, best)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else ScoredCombination(best[0], best[1], self.candidates)

    def _after_one_each(self, total: int) -> int:
        """Return the score when nodes with `total` CPUs left give one group each."""
        group = self.group
        return self.balance.score(self.squares + self.groups * group * group - 2 * group * total)

    def _best_one_each(self, size: int, best: tuple[int, tuple[int, ...]] | None) -> tuple[int, tuple[int, ...]] | None:
        """Return the first best subset of a size not smaller than the number of groups: its first nodes take one
        each."""
        groups, amounts = self.groups, self.amounts
        reach = len(amounts) - (size - groups)
        score = self._after_one_each(sum(sorted(amounts[:reach])[reach - groups :]))
        if best is not None and score >= best[0]:
            return None
        if groups == 1:
            place = next(place for place, amount in enumerate(amounts) if self._after_one_each(amount) == score)
            return score, tuple(range(place, place + size))
        chosen: list[int] = []
        total = 0
        start = 0
        while len(chosen) < groups:
            missing = groups - len(chosen) - 1
            place = start
            while True:
                rest = sorted(amounts[place + 1 : reach])
                if len(rest) >= missing and (
                    self._after_one_each(total + amounts[place] + sum(rest[len(rest) - missing :])) == score
                ):
                    break
                place += 1
            chosen.append(place)
            total += amounts[place]
            start = place + 1
        return score, (*chosen, *range(start, start + size - groups))

    def _lower_bound(self, size: int) -> int | None:
        """Return a score that no subset of this size beats, None if none supplies the remainder."""
        fullest = sorted(self.amounts)[-size:]
        less = largest_reduction(fullest, self.groups, self.group)
        return None if less is None else self.balance.score(self.squares - less)

    def _best_several_each(
        self, size: int, best: tuple[int, tuple[int, ...]] | None
    ) -> tuple[int, tuple[int, ...]] | None:
        """Return the first best subset of a size smaller than the number of groups, if it beats `best`."""
        search = _Several(self, size, None if best is None else best[0])
        search.descend((), 0)
        return search.best


class _Several:
    """Search over subsets whose nodes take several groups each, in order, with the bound of the fullest nodes."""

    def __init__(self, remainder: _Remainder, size: int, below: int | None) -> None:
        self.remainder = remainder
        self.size = size
        self.below = below
        self.best: tuple[int, tuple[int, ...]] | None = None

    def descend(self, chosen: tuple[int, ...], start: int) -> None:
        amounts = self.remainder.amounts
        missing = self.size - len(chosen)
        if not missing:
            score = self._score_dealt([amounts[i] for i in chosen])
            if score is not None and (self.below is None or score < self.below):
                self.best, self.below = (score, chosen), score
            return
        tried = set()
        for index in range(start, len(amounts) - missing + 1):
            if amounts[index] in tried:
                continue
            tried.add(amounts[index])
            if not self.remainder.search_budget.spend():
                return
            rest = sorted(amounts[index + 1 :])
            fullest = [amounts[i] for i in chosen] + [amounts[index]] + rest[len(rest) - missing + 1 :]
            bound = self._lower_bound(fullest)
            if bound is not None and (self.below is None or bound < self.below):
                self.descend((*chosen, index), index + 1)

    def _lower_bound(self, lefts: list[int]) -> int | None:
        remainder = self.remainder
        less = largest_reduction(lefts, remainder.groups, remainder.group)
        return None if less is None else remainder.balance.score(remainder.squares - less)

    def _score_dealt(self, lefts: list[int]) -> int | None:
        """Return the score after dealing round by round, None when whole groups run out."""
        remainder = self.remainder
        after = list(lefts)
        groups, group = remainder.groups, remainder.group
        while groups:
            before = groups
            for place, left in enumerate(after):
                if groups and left >= group:
                    after[place] = left - group
                    groups -= 1
            if groups == before:
                return None
        squares = sum([left * left for left in after]) - sum([left * left for left in lefts])
        return remainder.balance.score(remainder.squares + squares)
