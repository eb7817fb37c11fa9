"""Merging described hints: the best mask that one hint of every resource has in common (docs/merge.md).

`preferred` looks for a mask that all resources prefer; `nearest` for the best intersection of any hints. Neither lists
hints: sets are searched in the order of preference, with the needs of all resources as bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from podslice.core.hints.hintset import HintSet
from podslice.core.hints.needs import Need, all_met
from podslice.core.hints.search import Purse, Size, Span, lowest
from podslice.core.merge.fit import Fit
from podslice.core.merge.split import Split
from podslice.core.values.cpuset import Bits, bits_of, iter_bits, lowest_bits


class BestMask(msgspec.Struct, frozen=True):
    """A mask, 0 where none was found; `proven`: no search for a better one was given up."""

    mask: Bits
    proven: bool


NOT_FOUND = BestMask(0, True)


def preferred(sets: Sequence[HintSet], fit: Fit, purse: Purse) -> BestMask:
    """The best mask that every resource prefers, if there is one. At most one resource looks at sockets."""
    sizes: set[int] = set()
    aligned = None
    for one in sets:
        if one.alignment is None:
            sizes.add(one.smallest)
        else:
            aligned = aligned or one
    if len(sizes) > 1:
        return NOT_FOUND
    before = purse.left
    if aligned is None:
        mask = _common(sets, sizes.pop(), fit, purse)
        return BestMask(mask, not purse.ended_since(before))
    widest, proven = _widest_need(sets)
    mask = _aligned(sets, aligned, sizes or range(widest, len(aligned.nodes) + 1), fit, purse)
    return BestMask(mask, proven and not purse.ended_since(before))


def _aligned(sets: Sequence[HintSet], aligned: HintSet, sizes: Collection[int], fit: Fit, purse: Purse) -> Bits:
    for any_smallest in (False, True) if aligned.sockets_first else (True,):
        for size in sizes:
            free = any_smallest and size == aligned.smallest
            mask = _common(sets, size, fit, purse, None if free else aligned.alignment)
            if mask:
                return mask
    return 0


def _widest_need(sets: Sequence[HintSet]) -> Size:
    """How many nodes the smallest hint of a resource has at most."""
    widest, proven = 0, True
    for one in sets:
        nodes, surely = one.narrowest
        widest, proven = max(widest, nodes), proven and surely
    return Size(widest, proven)


def _common(sets: Sequence[HintSet], size: int, fit: Fit, purse: Purse, span: Span | None = None) -> Bits:
    """The best mask of one size that is a hint of every resource and has the right `span`, 0 if there is none."""
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
        mask = fit.best(nodes, size, lambda some, more: lowest(some, size, [*needs, *more], purse, span=span), purse)
        if mask is not None:
            found.add(mask)
    return fit.best_of(found) if found else 0


def nearest(sets: Sequence[HintSet], all_nodes: Bits, fit: Fit, purse: Purse) -> BestMask:
    """The best mask that is an intersection of one hint of every resource, if any has a node.

    Best are as many nodes as the resource with the widest smallest hint needs, then fewer, then more.
    """
    before = purse.left
    target, proven = _widest_need(sets)
    if len(sets) == 1 and (mask := _common(sets, target, fit, purse)):
        return BestMask(mask, proven and not purse.ended_since(before))
    found = set()
    alone = touched = 0
    for place, one in enumerate(sets):
        alone |= one.singles
        touched = one.support if place == 0 else touched & one.support
    if alone & touched:
        found.add(fit.best_single(alone & touched))
    for fixed, opened in _branches(sets, all_nodes):
        found.add(_widest(fixed, opened, target, fit, purse))
    proven = proven and not purse.ended_since(before)
    found.discard(0)
    if len(found) <= 1:
        return BestMask(found.pop() if found else 0, proven)
    size = min({mask.bit_count() for mask in found}, key=lambda count: (count > target, abs(count - target)))
    return BestMask(fit.best_of({mask for mask in found if mask.bit_count() == size}), proven)


def _branches(sets: Sequence[HintSet], all_nodes: Bits) -> set[tuple[Bits, tuple[HintSet, ...]]]:
    """Every way to take sets of several nodes or the rule of each resource: what the former have in common, and the
    resources whose rule is used."""
    branches: set[tuple[Bits, tuple[HintSet, ...]]] = {(all_nodes, ())}
    for one in sets:
        following = {(fixed & mask, opened) for fixed, opened in branches for mask in one.multis}
        following |= {(fixed, (*opened, one)) for fixed, opened in branches if fixed & one.open_nodes}
        branches = {branch for branch in following if branch[0]}
    return branches


def _widest(fixed: Bits, opened: Sequence[HintSet], target: int, fit: Fit, purse: Purse) -> Bits:
    """The best intersection of `fixed` with one set from the rule of each of `opened`, 0 if there is none."""
    room = fixed
    for one in opened:
        room &= one.open_nodes
    if not room or not opened:
        return room
    for size in range(min(target, room.bit_count()), room.bit_count()):
        mask = _of_size(room, size, opened, fit, purse)
        if mask is not None:
            return mask
    return room


def _of_size(room: Bits, size: int, opened: Sequence[HintSet], fit: Fit, purse: Purse) -> Bits | None:
    """The best intersection of `size` nodes of `room`."""
    split = Split(opened, purse) if len(opened) > 1 else None
    alone = [
        [need.beside(gone) for need in one.needs] if (gone := one.open_nodes & ~room) else one.needs
        for one in _distinct(opened)
    ]

    def find(nodes: Bits, needs: Sequence[Need]) -> Bits | None:
        if nodes.bit_count() == size:
            spared = any(all_met(own, nodes) for own in alone) or (split and split.possible(room & ~nodes))
            return nodes if spared and all_met(needs, nodes) else None
        best: Bits | None = None
        for own in alone:
            mask = lowest(nodes, size, [*own, *needs], purse, below=best)
            if mask is not None:
                best = mask
        if split is None or best == lowest_bits(nodes, size):
            return best
        lower = lowest(
            nodes,
            size,
            needs,
            purse,
            may_leave_out=lambda left_out: split.possible(left_out | room & ~nodes),
            below=best,
        )
        return best if lower is None else lower

    return fit.best(room, size, find, purse)


def _distinct(sets: Sequence[HintSet]) -> list[HintSet]:
    """Without repetitions: the memory resources of a pod share one hint set."""
    return list({id(one): one for one in sets}.values())
