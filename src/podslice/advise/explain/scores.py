"""Scored best-effort in numbers: the worth of each set of NUMA nodes where none suits all resources."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
from msgspec.structs import replace

from podslice.node.topology.hintset import ProviderHints
from podslice.node.topology.merge import Merged, Merger
from podslice.node.topology.scored import ScoredPart
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits

_FEW_NODES = 4
_MOST = 16


class ScoredNodes(msgspec.Struct, frozen=True, rename="camel"):
    """A set of NUMA nodes and its parts; `score` is their weighted sum, in millionths. `upstream`: best-effort without
    scores would choose it; `taken_for`: the resources that have this set, where each resource has its own."""

    nodes: CPUSet
    score: int
    parts: tuple[ScoredPart, ...]
    upstream: bool = False
    taken_for: tuple[str, ...] = ()


def scores_of(merger: Merger, providers: Sequence[ProviderHints], merged: Merged) -> tuple[ScoredNodes, ...]:
    """Return the table of a merge that was scored, best first; empty where all resources prefer a set. On machines with
    more than four NUMA nodes: single nodes, all of them together, and the sets that either way chooses."""
    if merger.scored is None or merged.hint.preferred:
        return ()
    upstream = merger.merge_unscored(providers).mask
    ids = tuple(iter_bits(merger.all_nodes))
    masks = {1 << one for one in ids} | {merger.all_nodes}
    if len(ids) <= _FEW_NODES:
        masks = {bits_of(some) for size in range(1, len(ids) + 1) for some in combinations(ids, size)}
    masks |= {mask for mask in (upstream, merged.hint.mask, *merged.parts.values()) if mask}
    taken_for = {mask: tuple(name for name, mine in merged.parts.items() if mine == mask) for mask in masks}
    rows = [replace(_row(merger, providers, mask, upstream), taken_for=taken_for[mask]) for mask in masks]
    rows.sort(
        key=lambda row: (
            not row.taken_for,
            row.nodes.bits != merged.hint.mask,
            -row.score,
            len(row.nodes),
            row.nodes.bits,
        )
    )
    return tuple(rows[:_MOST])


def _row(merger: Merger, providers: Sequence[ProviderHints], mask: Bits, upstream: Bits | None) -> ScoredNodes:
    assert merger.scored is not None
    parts = merger.scored.qualities(providers, mask)
    score = sum(one.weight * one.millionths for one in parts)
    return ScoredNodes(CPUSet.from_bits(mask), score, parts, mask == upstream)
