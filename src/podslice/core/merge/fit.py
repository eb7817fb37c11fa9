"""Which of two sets of NUMA nodes of the same size is better: closer together if wanted, then the lower mask
(spec cpu-topology 9.4, fit)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush

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
        """All ways to take `size` nodes from the groups as (distance sum, nodes per group), closest first.

        Best first over partial choices, with a bound on what the missing nodes add at least.
        """
        firsts = [group[0] for group in groups]
        own = [self._between(node, node) for node in firsts]
        inner = [self._both(group[0], group[1]) if len(group) > 1 else 0 for group in groups]
        cross = [[self._both(node, other) for other in firsts] for node in firsts]
        pairs = [cross[i][j] for i in range(len(groups)) for j in range(i)]
        nearest = min(pairs + [pair for pair, group in zip(inner, groups, strict=True) if len(group) > 1])

        def at_least(counts: tuple[int, ...], missing: int) -> int:
            if not missing:
                return 0
            costs: list[int] = []
            for later in range(len(counts), len(groups)):
                cost = own[later] + sum([count * cross[later][i] for i, count in enumerate(counts)])
                costs += [cost] * min(len(groups[later]), missing)
            if len(costs) < missing:
                return -1
            costs.sort()
            return sum(costs[:missing]) + missing * (missing - 1) // 2 * nearest

        heap: list[tuple[int, int, tuple[int, ...]]] = [(at_least((), size), 0, ())]
        while heap and effort.spend():
            _bound, cost, counts = heappop(heap)
            if len(counts) == len(groups):
                yield cost, counts
                continue
            index = len(counts)
            missing = size - sum(counts)
            for count in range(min(len(groups[index]), missing) + 1):
                added = count * own[index] + count * (count - 1) // 2 * inner[index]
                added += count * sum([other * cross[index][i] for i, other in enumerate(counts)])
                following = (*counts, count)
                rest = at_least(following, missing - count)
                if rest >= 0:
                    heappush(heap, (cost + added + rest, cost + added, following))
