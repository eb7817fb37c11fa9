"""Merge hints given as rules: the best mask that one hint of every resource has in common (docs/development/merge.md).

`find_preferred` looks for a mask that all resources prefer; `find_nearest` for the best intersection of any hints.
Neither lists hints: sets are searched in the order of preference, with the needs of all resources as bounds. A `Fit`
orders masks of the same size: with the option those that are closer together first, then the lower ones (cpu-topology
9.4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

import msgspec

from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import Need, all_met
from podslice.node.topology.search import SearchBudget, Size, Span, lowest
from podslice.node.topology.split import Split
from podslice.node.topology.spreads import Spreads
from podslice.values.cpuset import Bits, bits_of, iter_bits, lowest_bits
from podslice.values.errors import UpstreamDefectError


class BestMask(msgspec.Struct, frozen=True):
    """A mask, 0 where none was found; `proven`: no search for a better one was cut short."""

    mask: Bits
    proven: bool


NOT_FOUND = BestMask(0, True)


def find_preferred(sets: Sequence[HintSet], fit: Fit, search_budget: SearchBudget) -> BestMask:
    """Return the best mask that every resource prefers, if there is one. At most one resource has an alignment to
    sockets."""
    sizes: set[int] = set()
    aligned = None
    for one in sets:
        if one.alignment is None:
            sizes.add(one.smallest)
        else:
            aligned = aligned or one
    # All resources prefer sets of one size only; two sizes have no mask in common.
    if len(sizes) > 1:
        return NOT_FOUND
    before = search_budget.left
    if aligned is None:
        mask = _find_common(sets, sizes.pop(), fit, search_budget)
        return BestMask(mask, not search_budget.has_ended_since(before))
    widest, proven = _widest_need(sets)
    mask = _find_aligned(sets, aligned, sizes or range(widest, len(aligned.nodes) + 1), fit, search_budget)
    return BestMask(mask, proven and not search_budget.has_ended_since(before))


def _find_aligned(
    sets: Sequence[HintSet], aligned: HintSet, sizes: Collection[int], fit: Fit, search_budget: SearchBudget
) -> Bits:
    """Return the best mask with the right sockets, 0 if there is none; sizes are tried in the order given."""
    for any_smallest in (False, True) if aligned.sockets_first else (True,):
        for size in sizes:
            # Sets of the smallest size are preferred whatever sockets they are on; upstream does not put aligned ones
            # first.
            free = any_smallest and size == aligned.smallest
            mask = _find_common(sets, size, fit, search_budget, None if free else aligned.alignment)
            if mask:
                return mask
    return 0


def _widest_need(sets: Sequence[HintSet]) -> Size:
    """Return the largest of the resources' smallest hint sizes."""
    widest, proven = 0, True
    for one in sets:
        nodes, surely = one.narrowest
        widest, proven = max(widest, nodes), proven and surely
    return Size(widest, proven)


def _find_common(
    sets: Sequence[HintSet], size: int, fit: Fit, search_budget: SearchBudget, span: Span | None = None
) -> Bits:
    """Return the best mask of one size that is a hint of every resource and has the right `span`, 0 if there is
    none."""
    if size == 1:
        nodes = -1
        for one in sets:
            nodes &= one.singles
        if span is not None:
            nodes &= bits_of(node for node in iter_bits(nodes) if span.holds(1 << node))
        return fit.best_single(nodes) if nodes else 0
    found = {
        mask
        for one in sets
        for mask in one.multis
        if mask.bit_count() == size and all(mask in other for other in sets) and (span is None or span.holds(mask))
    }
    nodes = -1
    needs: list[Need] = []
    for one in _distinct(sets):
        nodes &= one.open_nodes
        needs += one.needs
    if nodes.bit_count() >= size:
        mask = fit.best(
            nodes, size, lambda some, more: lowest(some, size, [*needs, *more], search_budget, span=span), search_budget
        )
        if mask is not None:
            found.add(mask)
    return fit.best_of(found) if found else 0


def find_nearest(sets: Sequence[HintSet], all_nodes: Bits, fit: Fit, search_budget: SearchBudget) -> BestMask:
    """Return the best mask that is an intersection of one hint of every resource, 0 if none has a node.

    Best are as many nodes as the resource with the widest smallest hint needs, then fewer, then more.
    """
    before = search_budget.left
    target, proven = _widest_need(sets)
    if len(sets) == 1 and (mask := _find_common(sets, target, fit, search_budget)):
        return BestMask(mask, proven and not search_budget.has_ended_since(before))
    found = set()
    alone = touched = 0
    for place, one in enumerate(sets):
        alone |= one.singles
        touched = one.support if place == 0 else touched & one.support
    # A single node is reached as soon as one resource can use it alone and every other in some set.
    if alone & touched:
        found.add(fit.best_single(alone & touched))
    for fixed, opened in _branches(sets, all_nodes):
        found.add(_find_widest(fixed, opened, target, fit, search_budget))
    proven = proven and not search_budget.has_ended_since(before)
    found.discard(0)
    if len(found) <= 1:
        return BestMask(found.pop() if found else 0, proven)
    size = min({mask.bit_count() for mask in found}, key=lambda count: (count > target, abs(count - target)))
    return BestMask(fit.best_of({mask for mask in found if mask.bit_count() == size}), proven)


def _branches(sets: Sequence[HintSet], all_nodes: Bits) -> set[tuple[Bits, tuple[HintSet, ...]]]:
    """Return every combination of one listed set or the rule per resource, as a pair: the intersection of the listed
    sets, and the resources that are searched by their rules."""
    branches: set[tuple[Bits, tuple[HintSet, ...]]] = {(all_nodes, ())}
    for one in sets:
        following = {(fixed & mask, opened) for fixed, opened in branches for mask in one.multis}
        # Groups are disjoint: intersections of two different ones are empty and drop out.
        following |= {(fixed, (*opened, one)) for fixed, opened in branches if fixed & one.open_nodes}
        branches = {branch for branch in following if branch[0]}
    return branches


def _find_widest(fixed: Bits, opened: Sequence[HintSet], target: int, fit: Fit, search_budget: SearchBudget) -> Bits:
    """Return the best intersection of `fixed` with one set from the rule of each of `opened`, 0 if there is none."""
    room = fixed
    for one in opened:
        room &= one.open_nodes
    if not room or not opened:
        return room
    # Sizes that are reached are all from some smallest one up, so the target size or the next larger is best
    # (docs/development/merge.md, corollary).
    for size in range(min(target, room.bit_count()), room.bit_count()):
        mask = _find_of_size(room, size, opened, fit, search_budget)
        if mask is not None:
            return mask
    return room


def _find_of_size(
    room: Bits, size: int, opened: Sequence[HintSet], fit: Fit, search_budget: SearchBudget
) -> Bits | None:
    """Return the best intersection of `size` nodes of `room`, None if there is none."""
    split = Split(opened, search_budget) if len(opened) > 1 else None
    alone = [
        [need.remaining_after(gone) for need in one.needs] if (gone := one.open_nodes & ~room) else one.needs
        for one in _distinct(opened)
    ]

    def find(nodes: Bits, needs: Sequence[Need]) -> Bits | None:
        if nodes.bit_count() == size:
            spared = any(all_met(own, nodes) for own in alone) or (split and split.is_possible(room & ~nodes))
            return nodes if spared and all_met(needs, nodes) else None
        best: Bits | None = None
        for own in alone:
            mask = lowest(nodes, size, [*own, *needs], search_budget, below=best)
            if mask is not None:
                best = mask
        if split is None or best == lowest_bits(nodes, size):
            return best
        lower = lowest(
            nodes,
            size,
            needs,
            search_budget,
            may_leave_out=lambda left_out: split.is_possible(left_out | room & ~nodes),
            below=best,
        )
        return best if lower is None else lower

    return fit.best(room, size, find, search_budget)


def _distinct(sets: Sequence[HintSet]) -> list[HintSet]:
    """Return the hint sets without repetitions: the memory resources of a pod share one."""
    return list({id(one): one for one in sets}.values())


# The order of masks of one size

_FEW_STEPS = 1 << 11
"""Longest best-first walk. Beyond it, all spreads are listed if there are at most `_MOST_LISTED`; otherwise the walk
starts again from a locally improved set."""
_MOST_LISTED = 1 << 14
_STEPS_PER_WAY = 4
_STEPS_PER_EXCHANGE = 2
Find = Callable[[Bits, Sequence[Need]], "Bits | None"]
"""Return the lowest acceptable mask among some nodes that meets some needs, None if there is none."""


class Fit:
    """The order of masks of one size: by their numeric value."""

    def key(self, mask: Bits) -> tuple[int, Bits]:
        """Return the sort key of a mask among masks of its size; the best has the lowest."""
        return 0, mask

    def best(self, nodes: Bits, size: int, find: Find, search_budget: SearchBudget) -> Bits | None:
        """Return the best mask of `size` of the `nodes` that `find` accepts, within the search budget."""
        return find(nodes, ())

    def best_single(self, nodes: Bits) -> Bits:
        """Return the best of single nodes."""
        return nodes & -nodes

    def best_of(self, masks: Iterable[Bits]) -> Bits:
        """Return the best of several masks of one size."""
        # A single candidate gets no key: with quirk `distances_by_node_id` computing one can be upstream's crash.
        candidates = list(masks)
        return candidates[0] if len(candidates) == 1 else min(candidates, key=self.key)


class ClosestFit(Fit):
    """The order with `prefer-closest-numa-nodes`: by the sum of the distances between all ordered pairs of nodes, then
    by value.

    `distances` by node id; `position` is the index of a node in the lists of the others.
    """

    def __init__(self, distances: dict[int, Sequence[int]], position: dict[int, int]) -> None:
        self._distances = distances
        self._position = position

    def key(self, mask: Bits) -> tuple[int, Bits]:
        nodes = list(iter_bits(mask))
        return sum([self._distance(node, other) for node in nodes for other in nodes]), mask

    def best_single(self, nodes: Bits) -> Bits:
        if nodes & (nodes - 1) == 0:
            return nodes
        return 1 << min(iter_bits(nodes), key=lambda node: (self._distance(node, node), node))

    def best(self, nodes: Bits, size: int, find: Find, search_budget: SearchBudget) -> Bits | None:
        """Walk over the ways to spread `size` nodes over groups of interchangeable nodes, closest first; within a way,
        the lowest mask wins. Where the search budget runs out first, return the best set that exchanging single nodes
        leads to."""
        groups = self._group_interchangeable(nodes)
        known = find(nodes, ())
        if known is None or len(groups) == 1:
            return known
        spreads = self._make_spreads(groups)
        # Most machines have few groups, and the walk ends at once; the other ways cost more to begin.
        few = SearchBudget(_FEW_STEPS)
        known = self._find_closest(groups, spreads.walk(size, self.key(known)[0], few), find, known)
        if few.left >= 0:
            return known
        ways = spreads.count_ways(size)
        if ways <= _MOST_LISTED and search_budget.affords(_STEPS_PER_WAY * ways):
            return self._find_closest(groups, spreads.list_all(size), find, known)
        if search_budget.affords(_STEPS_PER_EXCHANGE * nodes.bit_count() ** 2):
            known = self._improve_by_exchange(nodes, known, find)
        return self._find_closest(groups, spreads.walk(size, self.key(known)[0], search_budget), find, known)

    def _find_closest(
        self, groups: Sequence[Sequence[int]], ways: Iterable[tuple[int, tuple[int, ...]]], find: Find, known: Bits
    ) -> Bits:
        """Return the best mask among `known` and the masks that these ways lead to. `ways` are pairs of the sum of
        distances and the number of nodes from each group, in ascending order."""
        best = self.key(known)
        masks = [bits_of(group) for group in groups]
        sizes = [len(group) for group in groups]
        for cost, counts in ways:
            # Ways of equal cost are all compared, since the lowest mask wins among them.
            if cost > best[0]:
                break
            used = [place for place, count in enumerate(counts) if count]
            nodes = sum([masks[place] for place in used])
            whole = all(counts[place] == sizes[place] for place in used)
            found = find(nodes, [] if whole else [Need.nodes(masks[place], counts[place]) for place in used])
            if found is not None:
                best = min(best, (cost, found))
        return best[1]

    def _improve_by_exchange(self, nodes: Bits, mask: Bits, find: Find) -> Bits:
        """Return the best set that exchanging single nodes leads to, beginning with `mask` and with the neighbourhoods
        of all nodes."""
        pairs = {
            node: {other: self._round_trip(node, other) for other in iter_bits(nodes)} for node in iter_bits(nodes)
        }
        own = {node: self._distance(node, node) for node in iter_bits(nodes)}
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

    def _distance(self, node: int, other: int) -> int:
        """Return the distance from one node to another. Raises `UpstreamDefectError`."""
        distances = self._distances[node]
        position = self._position[other]
        # Upstream reads past the end of the list here, and crashes.
        if position >= len(distances):
            raise UpstreamDefectError(
                "distances_by_node_id", f"NUMA node {node} lists {len(distances)} distances, not one for {other}"
            )
        return distances[position]

    def _round_trip(self, node: int, other: int) -> int:
        return self._distance(node, other) + self._distance(other, node)

    def _group_interchangeable(self, nodes: Bits) -> list[list[int]]:
        """Return the nodes in groups whose members are interchangeable: as far from every other node, and all as far
        from themselves."""
        groups = [[node for node in group if nodes >> node & 1] for group in self._interchangeable_groups]
        return [group for group in groups if group]

    @cached_property
    def _interchangeable_groups(self) -> list[list[int]]:
        """All nodes, in the groups of `_group_interchangeable`."""
        ids = sorted(self._position)
        both = {node: {other: self._round_trip(node, other) for other in ids} for node in ids}
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

    def _make_spreads(self, groups: Sequence[Sequence[int]]) -> Spreads:
        """Return the ways to take nodes from these groups."""
        firsts = [group[0] for group in groups]
        inner = [self._round_trip(group[0], group[1]) if len(group) > 1 else 0 for group in groups]
        cross = [[self._round_trip(node, other) for other in firsts] for node in firsts]
        own = [self._distance(node, node) for node in firsts]
        return Spreads([len(group) for group in groups], own, inner, cross)


def _neighbourhood(seed: int, size: int, pairs: dict[int, dict[int, int]], own: dict[int, int]) -> Bits:
    """Return `size` nodes around one, always adding the one nearest to all so far."""
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
    """Yield every better set that exchanges one node of `mask`, with the change of the sum of distances."""
    members = list(iter_bits(mask))
    sums = {node: own[node] + sum([row[member] for member in members if member != node]) for node, row in pairs.items()}
    for node in members:
        rest = mask & ~(1 << node)
        for other in iter_bits(nodes & ~mask):
            change = sums[other] - pairs[other][node] - sums[node]
            found = rest | 1 << other
            if change < 0 or (change == 0 and found < mask):
                yield change, found
