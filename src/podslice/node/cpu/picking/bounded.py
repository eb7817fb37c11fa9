"""The best combination of NUMA nodes without scoring all of them (cpu-topology 4.7; docs/merge.md).

What a combination scores depends only on the sum of squares of what is left on the nodes. That sum is bounded from
below by giving the groups of the remainder to whichever node has most left, and it is smaller the more the nodes have.
So combinations are walked in upstream's order, and a beginning is given up as soon as even the fullest nodes after it
could not do better than the best one known.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

from podslice.node.cpu.picking.balance import Balance, Deal, Scored
from podslice.node.topology.search import SearchBudget


def less_spread(lefts: Sequence[int], groups: int, group: int) -> int | None:
    """How much smaller the sum of squares of `lefts` gets at most by giving `groups` groups away, None if there are not
    as many."""
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
    """Finds among the combinations of `size` nodes the first one, in list order, that leaves the best balance.

    `frees` are the free CPUs of the nodes in list order. Where the search budget is empty, it is the best one known by
    then.
    """

    def __init__(
        self, frees: Sequence[int], size: int, deal: Deal, balance: Balance, search_budget: SearchBudget
    ) -> None:
        self.frees = frees
        self.size = size
        self.group = deal.group
        self.balance = balance
        self.share = deal.share(size)
        self.groups = deal.remainder(size) // deal.group
        self.search_budget = search_budget
        self.places = [place for place, free in enumerate(frees) if free >= self.share]
        self.best: tuple[tuple[int, ...], Scored] | None = None
        self._limit = 0
        self._scored: dict[tuple[int, ...], Scored | None] = {}

    def run(self) -> tuple[tuple[int, ...], Scored] | None:
        """Positions in `frees` and their score, None if no combination can hold the request."""
        places = self.places
        if len(places) < self.size:
            return None
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
            if free in tried:
                continue
            tried.add(free)
            if not self.search_budget.spend() or (self.best is not None and self._limit == 0):
                return
            bound = self._bound((*chosen, index), missing - 1)
            if bound is not None and (bound < self._limit or (bound == self._limit and self.best is None)):
                self._descend((*chosen, index), index + 1)

    def _bound(self, chosen: tuple[int, ...], missing: int) -> int | None:
        """A score that no combination with this beginning is below, None if none can hold the request."""
        return self._least([self.frees[self.places[i]] for i in chosen] + self._after[chosen[-1] + 1][:missing])

    def _least(self, frees: Sequence[int]) -> int | None:
        """A score that nodes with so many free CPUs cannot go below."""
        share = self.share
        less = less_spread([free - share for free in frees], self.groups, self.group)
        if less is None:
            return None
        return self.balance.score(self.balance.squares - share * (2 * sum(frees) - len(frees) * share) - less)

    def _score(self, places: tuple[int, ...]) -> Scored | None:
        frees = tuple([self.frees[place] for place in places])
        if frees not in self._scored:
            self._scored[frees] = _Remainder(self, frees).best()
        return self._scored[frees]


class _Remainder:
    """Which nodes of a combination take the remainder (cpu-topology 4.7, step 4.b.7).

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

    def best(self) -> Scored | None:
        """The best subset's score, None when the nodes cannot supply the remainder."""
        if not self.groups:
            return Scored(self.balance.score(self.squares), (), ())
        best: tuple[int, tuple[int, ...]] | None = None
        least = self._after_one_each(sum(sorted(self.amounts)[-self.groups :]))
        for size in range(len(self.amounts), 0, -1):
            if size >= self.groups and best is not None and best[0] == least:
                continue
            found = self._one_each(size, best) if size >= self.groups else None
            if size < self.groups:
                bound = self._bound(size)
                if bound is None or (best is not None and bound >= best[0]):
                    break
                found = self._several_each(size, best)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else Scored(best[0], best[1], self.candidates)

    def _after_one_each(self, total: int) -> int:
        """The score when nodes with `total` CPUs left give one group each."""
        group = self.group
        return self.balance.score(self.squares + self.groups * group * group - 2 * group * total)

    def _one_each(self, size: int, best: tuple[int, tuple[int, ...]] | None) -> tuple[int, tuple[int, ...]] | None:
        """The first best subset of a size not smaller than the number of groups: its first nodes take one each."""
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

    def _bound(self, size: int) -> int | None:
        """A score that no subset of a size is below, None if none supplies the remainder."""
        fullest = sorted(self.amounts)[-size:]
        less = less_spread(fullest, self.groups, self.group)
        return None if less is None else self.balance.score(self.squares - less)

    def _several_each(self, size: int, best: tuple[int, tuple[int, ...]] | None) -> tuple[int, tuple[int, ...]] | None:
        """The first best subset of a size smaller than the number of groups, if better than `best`."""
        search = _Several(self, size, None if best is None else best[0])
        search.descend((), 0)
        return search.best


class _Several:
    """Subsets whose nodes take several groups each, in order, with the bound of the fullest nodes."""

    def __init__(self, remainder: _Remainder, size: int, below: int | None) -> None:
        self.remainder = remainder
        self.size = size
        self.below = below
        self.best: tuple[int, tuple[int, ...]] | None = None

    def descend(self, chosen: tuple[int, ...], start: int) -> None:
        amounts = self.remainder.amounts
        missing = self.size - len(chosen)
        if not missing:
            score = self._dealt([amounts[i] for i in chosen])
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
            bound = self._bound(fullest)
            if bound is not None and (self.below is None or bound < self.below):
                self.descend((*chosen, index), index + 1)

    def _bound(self, lefts: list[int]) -> int | None:
        remainder = self.remainder
        less = less_spread(lefts, remainder.groups, remainder.group)
        return None if less is None else remainder.balance.score(remainder.squares - less)

    def _dealt(self, lefts: list[int]) -> int | None:
        """The score after dealing round by round; None when whole groups run out."""
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
