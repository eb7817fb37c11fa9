"""Merge listed hints: the masks that one hint of every list has in common (cpu-topology 9.4, 11.17)."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.node.topology.hint import Hint
from podslice.values.cpuset import Bits, bits_of, iter_bits

_FEW = 1 << 12
"""Up to so many pairs of masks, intersecting them one by one is faster than counting over all sets."""


def common_preferred(lists: Sequence[Sequence[Hint]], all_nodes: Bits) -> set[Bits]:
    """Return the masks of all preferred merged hints: common preferred masks, cut to the machine's nodes."""
    common: set[Bits] | None = None
    optional: list[set[Bits]] = []
    for hints in lists:
        masks = {hint.mask for hint in hints if hint.preferred}
        known = {mask for mask in masks if mask is not None}
        if None in masks:
            # A list with a preferred "no affinity" hint allows any mask, and its own masks where no other list
            # restricts them.
            optional.append(known)
            continue
        common = known if common is None else common & known
        if not common:
            return set()
    if common is None:
        common = {all_nodes}.union(*optional)
    return {mask & all_nodes for mask in common} - {0}


def reachable(lists: Sequence[Sequence[Hint]], all_nodes: Bits) -> set[Bits]:
    """Return the non-empty masks that are the intersection of the machine's nodes with one hint of every list."""
    reached = {all_nodes}
    for hints in lists:
        masks = {all_nodes if hint.mask is None else hint.mask & all_nodes for hint in hints} - {0}
        # Sets of masks stay below 2ⁿ, so folding list by list is far from upstream's product of all lists.
        if len(reached) * len(masks) <= _FEW:
            reached = {mask & other for mask in reached for other in masks} - {0}
        else:
            reached = _intersections(reached, masks, all_nodes)
        if not reached:
            break
    return reached


def _intersections(some: set[Bits], others: set[Bits], all_nodes: Bits) -> set[Bits]:
    """Return all non-empty intersections of one mask of each set, in n · 2ⁿ steps for n nodes.

    The number of pairs that intersect in a superset of s is the product of the numbers of masks in each set that
    contain s; subtracting the larger supersets leaves the number that intersect in s itself.
    """
    nodes = list(iter_bits(all_nodes))
    place = {1 << node: 1 << i for i, node in enumerate(nodes)}

    def count(masks: set[Bits]) -> list[int]:
        table = [0] * (1 << len(nodes))
        for mask in masks:
            table[sum([place[1 << node] for node in iter_bits(mask)])] += 1
        _over_supersets(table, 1)
        return table

    table = [mine * theirs for mine, theirs in zip(count(some), count(others), strict=True)]
    _over_supersets(table, -1)
    return {bits_of(nodes[i] for i in iter_bits(index)) for index, pairs in enumerate(table) if pairs and index}


def _over_supersets(table: list[int], sign: int) -> None:
    """Add to every entry the entries of all its supersets; with `sign` -1 undo that."""
    bit = 1
    while bit < len(table):
        for base in range(0, len(table), bit * 2):
            for index in range(base, base + bit):
                table[index] += sign * table[index + bit]
        bit *= 2
