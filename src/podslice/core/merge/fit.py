"""Which of two sets of NUMA nodes of the same size is better: closer together if wanted, then the lower mask
(spec cpu-topology 9.4, fit)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, product

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.search import Effort, Need
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

Find = Callable[[Bits, Sequence[Need]], "Bits | None"]
"""The lowest wanted mask among some nodes that meets some needs."""


class Fit:
    """The order of masks of one size by their numeric value."""

    def key(self, mask: Bits) -> tuple[int, Bits]:
        """Sorts masks of one size, best first."""
        return 0, mask

    def best(self, nodes: Bits, size: int, find: Find, effort: Effort) -> Bits | None:
        """The best mask of `size` of the `nodes` that `find` accepts, as far as the effort goes."""
        return find(nodes, ())

    def best_single(self, nodes: Bits) -> Bits:
        """The best of single nodes."""
        return nodes & -nodes

    def best_of(self, masks: Iterable[Bits]) -> Bits:
        """The best of several masks of one size; a single one is not looked at."""
        candidates = list(masks)
        return candidates[0] if len(candidates) == 1 else min(candidates, key=self.key)


class ClosestFit(Fit):
    """With `prefer-closest-numa-nodes`: the sum of the distances between all ordered pairs of nodes, then the value.

    `distances` by node id; `position` is the index of a node in the lists of the others.
    """

    def __init__(self, distances: dict[int, Sequence[int]], position: dict[int, int]) -> None:
        self._distances = distances
        self._position = position

    def key(self, mask: Bits) -> tuple[int, Bits]:
        nodes = list(iter_bits(mask))
        return sum([self._between(node, other) for node in nodes for other in nodes]), mask

    def best_single(self, nodes: Bits) -> Bits:
        if nodes & (nodes - 1) == 0:
            return nodes
        return 1 << min(iter_bits(nodes), key=lambda node: (self._between(node, node), node))

    def best(self, nodes: Bits, size: int, find: Find, effort: Effort) -> Bits | None:
        """Walks over the ways to spread `size` nodes over groups of alike nodes, closest first; within a way, the
        lowest mask wins."""
        groups = self._alike(nodes)
        if len(groups) == 1:
            return find(nodes, ())
        best: Bits | None = None
        best_cost = 0
        for cost, counts in self._spreads(groups, size, effort):
            if best is not None and cost > best_cost:
                break
            used = [(group, count) for group, count in zip(groups, counts, strict=True) if count]
            needs = [Need.nodes(bits_of(group), count) for group, count in used]
            mask = find(bits_of(node for group, _ in used for node in group), needs)
            if mask is not None and (best is None or mask < best):
                best, best_cost = mask, cost
        if best is None and effort.exhausted:
            return find(nodes, ())
        return best

    def _between(self, node: int, other: int) -> int:
        distances = self._distances[node]
        position = self._position[other]
        if position >= len(distances):
            raise UpstreamDefectError(
                "distances_by_node_id", f"NUMA node {node} lists {len(distances)} distances, not one for {other}"
            )
        return distances[position]

    def _both(self, node: int, other: int) -> int:
        return self._between(node, other) + self._between(other, node)

    def _alike(self, nodes: Bits) -> list[list[int]]:
        """The nodes in groups whose members can stand for each other: as far from every other node, and all as far
        from themselves."""
        groups = [[node for node in group if nodes >> node & 1] for group in self._all_alike]
        return [group for group in groups if group]

    @cached_property
    def _all_alike(self) -> list[list[int]]:
        ids = sorted(self._position)
        both = {node: {other: self._both(node, other) for other in ids} for node in ids}
        groups: list[list[int]] = []
        for node in ids:
            mine = both[node]
            for group in groups:
                theirs = both[group[0]]
                if mine[node] == theirs[group[0]] and all(
                    mine[other] == theirs[other] for other in ids if other not in (node, group[0])
                ):
                    group.append(node)
                    break
            else:
                groups.append([node])
        return groups

    def _spreads(
        self, groups: Sequence[Sequence[int]], size: int, effort: Effort
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """All ways to take `size` nodes from the groups as (distance sum, nodes per group), closest first."""
        firsts = [group[0] for group in groups]
        inner = [self._both(group[0], group[1]) if len(group) > 1 else 0 for group in groups]
        cross = [[self._both(node, other) for other in firsts] for node in firsts]
        own = [self._between(node, node) for node in firsts]
        return Spreads([len(group) for group in groups], own, inner, cross).walk(size, effort)


class Spreads:
    """Ways to take nodes from groups, best first over partial choices with a bound on what missing nodes add.

    Groups of a size, as far from everything as each other, are twins: only choices whose numbers fall within twins are
    walked, the others follow by exchanging them. By group: `sizes`, `own` (a node to itself), `inner` (two nodes of a
    group, there and back), `cross` (nodes of two groups).
    """

    def __init__(self, sizes: list[int], own: list[int], inner: list[int], cross: list[list[int]]) -> None:
        self._order = self._by_twins(sizes, own, inner, cross)
        places = [place for twins in self._order for place in twins]
        self._places = places
        self.sizes = [sizes[place] for place in places]
        self.own = [own[place] for place in places]
        self.inner = [inner[place] for place in places]
        self.cross = [[cross[place][other] for other in places] for place in places]
        self._follows = [index > 0 for twins in self._order for index in range(len(twins))]
        self._nearest = [self._distances(group) for group in range(len(places))]

    @staticmethod
    def _by_twins(sizes: list[int], own: list[int], inner: list[int], cross: list[list[int]]) -> list[list[int]]:
        ordered: list[list[int]] = []
        for group, size in enumerate(sizes):
            for twins in ordered:
                first = twins[0]
                if (size, own[group], inner[group]) == (sizes[first], own[first], inner[first]) and all(
                    cross[group][other] == cross[first][other]
                    for other in range(len(sizes))
                    if other not in (group, first)
                ):
                    twins.append(group)
                    break
            else:
                ordered.append([group])
        return ordered

    def _distances(self, group: int) -> list[int]:
        """Entry r: the sum of the distances from a node of a group to the r nodes nearest to it."""
        distances = [self.inner[group]] * (self.sizes[group] - 1)
        for other, size in enumerate(self.sizes):
            if other != group:
                distances += [self.cross[group][other]] * size
        return list(accumulate(sorted(distances), initial=0))

    def walk(self, size: int, effort: Effort) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Every way as (distance sum, nodes per group in the order of the constructor), closest first."""
        heap: list[tuple[int, int, tuple[int, ...]]] = [(self._at_least((), size) or 0, 0, ())]
        while heap and effort.spend():
            _, cost, counts = heappop(heap)
            index = len(counts)
            if index == len(self.sizes):
                for one in self._exchanged(counts):
                    yield cost, one
                continue
            missing = size - sum(counts)
            most = min(self.sizes[index], missing, counts[-1] if self._follows[index] else missing)
            for count in range(most + 1):
                added = count * self.own[index] + count * (count - 1) // 2 * self.inner[index]
                added += count * sum([other * self.cross[index][i] for i, other in enumerate(counts)])
                following = (*counts, count)
                rest = self._at_least(following, missing - count)
                if rest is not None:
                    heappush(heap, (2 * (cost + added) + rest, cost + added, following))

    def _at_least(self, counts: tuple[int, ...], missing: int) -> int | None:
        """Twice the sum that the missing nodes add at least, None if there are not as many: their distances to what is
        chosen, and half of those to their nearest neighbours."""
        if not missing:
            return 0
        costs: list[int] = []
        index = len(counts)
        for later in range(index, len(self.sizes)):
            row = self.cross[later]
            cost = 2 * (self.own[later] + sum([count * row[i] for i, count in enumerate(counts) if count]))
            room = self.sizes[later]
            if later == index and self._follows[index]:
                room = min(room, counts[-1])
            costs += [cost + self._nearest[later][missing - 1]] * min(room, missing)
        if len(costs) < missing:
            return None
        costs.sort()
        return sum(costs[:missing])

    def _exchanged(self, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The ways that follow from one by exchanging twins."""
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
            yield tuple(found)


def _arrangements(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All distinct orders of some numbers."""
    if not counts:
        yield ()
        return
    for first in sorted(set(counts)):
        rest = list(counts)
        rest.remove(first)
        for others in _arrangements(tuple(rest)):
            yield (first, *others)
