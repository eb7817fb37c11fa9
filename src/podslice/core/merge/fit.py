"""Which of two sets of NUMA nodes of the same size is better: closer together if wanted, then the lower mask
(cpu-topology 9.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.needs import Need
from podslice.core.hints.search import Purse
from podslice.core.merge.spreads import Spreads
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

_FEW_STEPS = 1 << 11
"""Longest best-first walk. Beyond it, all spreads are listed if there are at most `_MOST_LISTED`; otherwise the walk
starts again from a locally improved set."""
_MOST_LISTED = 1 << 14
_STEPS_PER_WAY = 4
_STEPS_PER_EXCHANGE = 2
Find = Callable[[Bits, Sequence[Need]], "Bits | None"]
"""The lowest wanted mask among some nodes that meets some needs."""


class Fit:
    """The order of masks of one size by their numeric value."""

    def key(self, mask: Bits) -> tuple[int, Bits]:
        """Sorts masks of one size, best first."""
        return 0, mask

    def best(self, nodes: Bits, size: int, find: Find, purse: Purse) -> Bits | None:
        """The best mask of `size` of the `nodes` that `find` accepts, as far as the purse goes."""
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

    def best(self, nodes: Bits, size: int, find: Find, purse: Purse) -> Bits | None:
        """Walks over the ways to spread `size` nodes over groups of alike nodes, closest first; within a way, the
        lowest mask wins. Where the purse is empty first, it is the best set that exchanging single nodes leads to."""
        groups = self._alike(nodes)
        known = find(nodes, ())
        if known is None or len(groups) == 1:
            return known
        spreads = self._spreads(groups)
        few = Purse(_FEW_STEPS)
        known = self._closest(groups, spreads.walk(size, self.key(known)[0], few), find, known)
        if few.left >= 0:
            return known
        ways = spreads.number(size)
        if ways <= _MOST_LISTED and purse.affords(_STEPS_PER_WAY * ways):
            return self._closest(groups, spreads.listed(size), find, known)
        if purse.affords(_STEPS_PER_EXCHANGE * nodes.bit_count() ** 2):
            known = self._by_exchange(nodes, known, find)
        return self._closest(groups, spreads.walk(size, self.key(known)[0], purse), find, known)

    def _closest(
        self, groups: Sequence[Sequence[int]], ways: Iterable[tuple[int, tuple[int, ...]]], find: Find, known: Bits
    ) -> Bits:
        """The best mask of the ways, which come closest first, or the one that is `known`."""
        best = self.key(known)
        masks = [bits_of(group) for group in groups]
        sizes = [len(group) for group in groups]
        for cost, counts in ways:
            if cost > best[0]:
                break
            used = [place for place, count in enumerate(counts) if count]
            nodes = sum([masks[place] for place in used])
            whole = all(counts[place] == sizes[place] for place in used)
            found = find(nodes, [] if whole else [Need.nodes(masks[place], counts[place]) for place in used])
            if found is not None:
                best = min(best, (cost, found))
        return best[1]

    def _by_exchange(self, nodes: Bits, mask: Bits, find: Find) -> Bits:
        """A better set, found from `mask` and the neighbourhoods of all nodes by exchanging single nodes as long as it
        helps."""
        pairs = {node: {other: self._both(node, other) for other in iter_bits(nodes)} for node in iter_bits(nodes)}
        own = {node: self._between(node, node) for node in iter_bits(nodes)}
        starts = {mask}
        for seed in iter_bits(nodes):
            near = _neighbourhood(seed, mask.bit_count(), pairs, own)
            if near not in starts and find(near, ()) is not None:
                starts.add(near)
        mask = self.best_of(starts)
        better: Bits | None = mask
        while better is not None:
            mask = better
            exchanges = sorted(_exchanges(mask, nodes, pairs, own))
            better = next((found for _, found in exchanges if find(found, ()) is not None), None)
        return mask

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

    def _spreads(self, groups: Sequence[Sequence[int]]) -> Spreads:
        firsts = [group[0] for group in groups]
        inner = [self._both(group[0], group[1]) if len(group) > 1 else 0 for group in groups]
        cross = [[self._both(node, other) for other in firsts] for node in firsts]
        own = [self._between(node, node) for node in firsts]
        return Spreads([len(group) for group in groups], own, inner, cross)


def _neighbourhood(seed: int, size: int, pairs: dict[int, dict[int, int]], own: dict[int, int]) -> Bits:
    """`size` nodes around one, always adding the one nearest to all so far."""
    chosen = 1 << seed
    added = {node: own[node] + row[seed] for node, row in pairs.items() if node != seed}
    for _ in range(size - 1):
        node = min(added, key=lambda other: (added[other], other))
        del added[node]
        chosen |= 1 << node
        for other in added:
            added[other] += pairs[other][node]
    return chosen


def _exchanges(
    mask: Bits, nodes: Bits, pairs: dict[int, dict[int, int]], own: dict[int, int]
) -> Iterator[tuple[int, Bits]]:
    """Every set with one node of `mask` exchanged that is better, with the change of the distance sum."""
    members = list(iter_bits(mask))
    sums = {node: own[node] + sum([row[member] for member in members if member != node]) for node, row in pairs.items()}
    for node in members:
        rest = mask & ~(1 << node)
        for other in iter_bits(nodes & ~mask):
            change = sums[other] - pairs[other][node] - sums[node]
            found = rest | 1 << other
            if change < 0 or (change == 0 and found < mask):
                yield change, found
