"""The table of candidates: for every set of NUMA nodes, the amounts needed and free, and the reasons against it."""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations, islice

import msgspec

from podslice.advise.explain.columns import Cell, Column, columns_of
from podslice.advise.trial.record import HintRound
from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits

MOST_CANDIDATES = 1024
_BADNESS = {
    verdict: place
    for place, verdict in enumerate(
        ("small", "short", "pool", "group", "joint", "apart", "bare", "unhinted", "wide", "fits")
    )
}
"""Verdicts, the worst first: a set gets the worst of its resources' verdicts."""


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """A set of NUMA nodes. `verdict` is the worst of its resources' verdicts; `killers` names all resources that speak
    against the set."""

    nodes: CPUSet
    cells: tuple[Cell, ...]
    verdict: str
    killers: tuple[str, ...]


def candidates(node: NodeView, pod: AdmissionPod, step: HintRound, chosen: Bits | None = None) -> tuple[Candidate, ...]:
    """Return sets of the machine's NUMA nodes with a verdict for each, single nodes first, up to `MOST_CANDIDATES`
    sets, and the chosen one."""
    columns = columns_of(node, pod, step)
    single = node.config.topology_manager_policy == "single-numa-node"
    sets = node_sets(tuple(sorted(one.id for one in node.machine.nodes)))
    if chosen and all(mask != chosen for mask, _ in sets):
        sets = (*sets, (chosen, CPUSet.from_bits(chosen)))
    if not columns:
        return tuple(_candidate(mask, nodes, (), single=single) for mask, nodes in sets)
    tables = [[_cell(mask, column, columns) for mask, _ in sets] for column in columns]
    return tuple(
        _candidate(mask, nodes, cells, single=single)
        for (mask, nodes), cells in zip(sets, zip(*tables, strict=True), strict=True)
    )


@cache
def node_sets(nodes: tuple[int, ...]) -> tuple[tuple[Bits, CPUSet], ...]:
    """Return sets of these NUMA nodes, smaller ones first, up to `MOST_CANDIDATES`."""
    members = chain.from_iterable(combinations(nodes, size) for size in range(1, len(nodes) + 1))
    masks = [bits_of(one) for one in islice(members, MOST_CANDIDATES)]
    return tuple((mask, CPUSet.from_bits(mask)) for mask in masks)


def _candidate(mask: Bits, nodes: CPUSet, cells: tuple[Cell, ...], *, single: bool) -> Candidate:
    killers = tuple([cell.resource for cell in cells if cell.verdict != "fits"])
    verdict = "fits" if not killers else min([cell.verdict for cell in cells], key=_BADNESS.__getitem__)
    if single and mask & (mask - 1) and verdict in ("fits", "wide"):
        verdict = "wide-single"
    return Candidate(nodes, cells, verdict, killers)


def _cell(mask: Bits, column: Column, columns: list[Column]) -> Cell:
    free, capacity = column.free_on(mask), column.capacity_on(mask)
    need, hints = column.need, column.hints
    if hints is None:
        verdict = (
            "small" if capacity < need else "short" if free < need else "group" if column.is_tied(mask) else "fits"
        )
    elif column.offers(mask, free):
        verdict = "fits" if hints.prefers(mask) else "wide"
    elif capacity < need:
        verdict = "small"
    elif free < need:
        verdict = "short"
    else:
        verdict = _why_no_hint(mask, column, columns)
    return column.cell(free, capacity, verdict)


def _why_no_hint(mask: Bits, column: Column, columns: list[Column]) -> str:
    """Return the verdict for a set that has enough free and yet no hint."""
    if column.pool_empty:
        return "pool"
    if not column.countable:
        # The Memory Manager hints at memory and huge pages together: one that lacks room takes the hint from the other.
        for other in columns:
            if not other.countable and other is not column and other.free_on(mask) < other.need:
                return "joint"
        return "group"
    if column.held:
        return "apart"
    return "bare" if any(not column.capacity.get(node) for node in iter_bits(mask)) else "unhinted"
