"""Ways to take nodes from groups of interchangeable ones, the closest together first (docs/development/merge.md)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import accumulate, product
from operator import itemgetter

from podslice.node.topology.search import SearchBudget

_LEAST_STEPS = 5
_GROUPS_SQUARED_PER_STEP = 512
"""A walk continues with every number of nodes of one more group and computes a bound over all other groups each time,
so one step of it costs as much as several decisions about a node."""
_Chosen = tuple[tuple[int, int], ...]
Way = tuple[int, tuple[int, ...]]
"""The distance sum, and the number of nodes from each group."""


class Spreads:
    """Ways to take nodes from groups. Groups of one size, as far from everything as each other, are twins: only choices
    whose numbers fall within twins are walked, the others follow by exchanging them.

    By group: `sizes`, `own` (a node to itself), `inner` (two nodes of a group, there and back), `cross` (nodes of two
    groups).
    """

    def __init__(self, sizes: list[int], own: list[int], inner: list[int], cross: list[list[int]]) -> None:
        self._order = _group_twins(sizes, own, inner, cross)
        places = [place for twins in self._order for place in twins]
        self._places = places
        self.sizes = [sizes[place] for place in places]
        self.own = [own[place] for place in places]
        self.inner = [inner[place] for place in places]
        self.cross = [[cross[place][other] for other in places] for place in places]
        self._follows = [index > 0 for twins in self._order for index in range(len(twins))]

    def count_ways(self, size: int) -> int:
        """Return how many ways there are at most."""
        # ways[n]: in how many ways the groups so far can give n nodes. Exchanges of twins are counted, too.
        ways = [1] + [0] * size
        for room in self.sizes:
            ways = [sum(ways[max(0, taken - room) : taken + 1]) for taken in range(size + 1)]
        return ways[size]

    def list_all(self, size: int) -> Iterator[Way]:
        """Yield every way, closest first, after listing all of them; groups are in the constructor's order."""
        rooms = [*accumulate(reversed(self.sizes), initial=0)][::-1]
        found: list[tuple[int, _Chosen]] = []

        def extend(start: int, cost: int, missing: int, chosen: _Chosen) -> None:
            if not missing:
                found.append((cost, chosen))
                return
            for index in range(start, len(self.sizes)):
                if rooms[index] < missing:
                    return
                # A twin gives no more than the one before it; if that gives none, it gives none either.
                before = chosen[-1][1] if chosen and chosen[-1][0] == index - 1 else 0
                most = min(self.sizes[index], missing, before if self._follows[index] else missing)
                row, inner = self.cross[index], self.inner[index]
                far = self.own[index] + sum([count * row[other] for other, count in chosen])
                for count in range(max(1, missing - rooms[index + 1]), most + 1):
                    added = count * far + count * (count - 1) // 2 * inner
                    extend(index + 1, cost + added, missing - count, (*chosen, (index, count)))

        extend(0, 0, size, ())
        found.sort(key=itemgetter(0))
        for cost, chosen in found:
            counts = dict(chosen)
            yield from self._exchange_twins(cost, tuple([counts.get(index, 0) for index in range(len(self.sizes))]))

    def walk(self, size: int, most: int, search_budget: SearchBudget) -> Iterator[Way]:
        """Yield the ways with a distance sum up to `most`, closest first, without listing the others; within the search
        budget."""
        nearest = [self._nearest(group) for group in range(len(self.sizes))]
        # Sums are doubled, because the bound takes half of the distances between missing nodes.
        start = tuple([2 * own for own in self.own])
        steps = _LEAST_STEPS + len(self.sizes) ** 2 // _GROUPS_SQUARED_PER_STEP
        heap: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = [(0, 0, (), start)]
        while heap and search_budget.spend(steps):
            _, cost, counts, costs = heappop(heap)
            index = len(counts)
            if index == len(self.sizes):
                yield from self._exchange_twins(cost, counts)
                continue
            missing = size - sum(counts)
            for count in range(self._most(index, counts, missing) + 1):
                after = cost + self._added_distance(counts, count)
                following = (*counts, count)
                row = self.cross[index]
                joined = costs if not count else tuple([c + 2 * count * r for c, r in zip(costs, row, strict=True)])
                rest = self._lower_bound(following, joined, missing - count, nearest)
                if rest is not None and 2 * after + rest <= 2 * most:
                    heappush(heap, (2 * after + rest, after, following, joined))

    def _most(self, index: int, counts: tuple[int, ...], missing: int) -> int:
        return min(self.sizes[index], missing, counts[-1] if self._follows[index] else missing)

    def _added_distance(self, counts: tuple[int, ...], count: int) -> int:
        """Return the distance sum that `count` nodes of the next group add."""
        if not count:
            return 0
        index = len(counts)
        added = self.own[index] + sum([other * far for other, far in zip(counts, self.cross[index], strict=False)])
        return count * added + count * (count - 1) // 2 * self.inner[index]

    def _nearest(self, group: int) -> list[int]:
        """Return entries r: the sum of the distances from a node of a group to the r nodes nearest to it."""
        distances = [self.inner[group]] * (self.sizes[group] - 1)
        for other, size in enumerate(self.sizes):
            if other != group:
                distances += [self.cross[group][other]] * size
        return list(accumulate(sorted(distances), initial=0))

    def _lower_bound(
        self, counts: tuple[int, ...], costs: tuple[int, ...], missing: int, nearest: list[list[int]]
    ) -> int | None:
        """Return twice the least sum that the missing nodes can add, None if there are not as many: their distances to
        the chosen nodes (`costs`, twice), and half of those to their nearest neighbours."""
        if not missing:
            return 0
        index = len(counts)
        found: list[int] = []
        for later in range(index, len(self.sizes)):
            room = self.sizes[later]
            # Within twins numbers only fall, so this group gives no more than the one before.
            if later == index and self._follows[index]:
                room = min(room, counts[-1])
            found += [costs[later] + nearest[later][missing - 1]] * min(room, missing)
        if len(found) < missing:
            return None
        found.sort()
        return sum(found[:missing])

    def _exchange_twins(self, cost: int, counts: tuple[int, ...]) -> Iterator[Way]:
        """Yield the ways that follow from one by exchanging twins."""
        if len(self._order) == len(counts):
            yield cost, counts
            return
        start = 0
        ways: list[list[tuple[int, ...]]] = []
        for twins in self._order:
            ways.append(sorted(set(_arrangements(counts[start : start + len(twins)]))))
            start += len(twins)
        for way in product(*ways):
            flat = [count for part in way for count in part]
            found = [0] * len(flat)
            for place, count in zip(self._places, flat, strict=True):
                found[place] = count
            yield cost, tuple(found)


def _group_twins(sizes: list[int], own: list[int], inner: list[int], cross: list[list[int]]) -> list[list[int]]:
    """Return the groups in sets of twins: of one size, and as far from everything as each other."""
    ordered: list[list[int]] = []
    for group, size in enumerate(sizes):
        for twins in ordered:
            first = twins[0]
            if (size, own[group], inner[group]) == (sizes[first], own[first], inner[first]) and all(
                cross[group][other] == cross[first][other] for other in range(len(sizes)) if other not in (group, first)
            ):
                twins.append(group)
                break
        else:
            ordered.append([group])
    return ordered


def _arrangements(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all distinct orders of some numbers."""
    # Not itertools.permutations, which would yield equal orders again and again: twins often give equal numbers.
    if not counts:
        yield ()
        return
    for first in sorted(set(counts)):
        rest = list(counts)
        rest.remove(first)
        for others in _arrangements(tuple(rest)):
            yield (first, *others)
