"""The table of candidates: for every set of NUMA nodes, the amounts needed and free, and the reasons against it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

import msgspec

from podslice.advise.explain.columns import MOST_CANDIDATES, Cell, Column, columns_of, node_sets
from podslice.advise.trial.record import HintRound
from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits

ALL_IN_TABLE = MOST_CANDIDATES.bit_length() - 1
"""Up to so many NUMA nodes the table has every set."""
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
    sets; on a machine with more, the chosen one and all nodes after them."""
    columns = columns_of(node, pod, step)
    single = node.config.topology_manager_policy == "single-numa-node"
    nodes = tuple(sorted(one.id for one in node.machine.nodes))
    sets = node_sets(nodes)
    beyond = _beyond(nodes, chosen) if len(nodes) > ALL_IN_TABLE else ()
    if not columns:
        return tuple(_candidate(mask, members, (), single=single) for mask, members in (*sets, *beyond))
    tables = [_cells(column, columns, nodes, [mask for mask, _ in beyond]) for column in columns]
    return tuple(
        _candidate(mask, members, cells, single=single)
        for (mask, members), cells in zip((*sets, *beyond), zip(*tables, strict=True), strict=True)
    )


def _beyond(nodes: tuple[int, ...], chosen: Bits | None) -> tuple[tuple[Bits, CPUSet], ...]:
    """Return the sets that stand after those of a table that cannot have all: the chosen one, and all nodes."""
    known = {mask for mask, _ in node_sets(nodes)}
    return tuple(
        (mask, CPUSet.from_bits(mask)) for mask in dict.fromkeys((chosen, bits_of(nodes))) if mask and mask not in known
    )


def single_nodes(table: Sequence[Candidate]) -> list[Candidate]:
    """Return the rows of single NUMA nodes, which come first in a table."""
    return list(takewhile(lambda row: len(row.nodes) == 1, table))


def _candidate(mask: Bits, nodes: CPUSet, cells: tuple[Cell, ...], *, single: bool) -> Candidate:
    killers, verdict = _judged(tuple([(cell.resource, cell.verdict) for cell in cells]))
    if single and mask & (mask - 1) and verdict in ("fits", "wide"):
        verdict = "wide-single"
    return Candidate(nodes, cells, verdict, killers)


@lru_cache(maxsize=4096)
def _judged(verdicts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], str]:
    """Return the resources that speak against a set, and the worst verdict, of verdicts by resource."""
    killers = tuple(resource for resource, verdict in verdicts if verdict != "fits")
    return killers, min((verdict for _, verdict in verdicts), key=_BADNESS.__getitem__, default="fits")


def _cells(column: Column, columns: list[Column], nodes: tuple[int, ...], beyond: list[Bits]) -> list[Cell]:
    """Return the cells of one resource for all sets of the table, and for those beyond it."""
    # A hint for a set means that it has enough, but for a set on which the pod holds something already.
    quick, need = column.hints is None or not column.held, column.need
    masks = [*(mask for mask, _ in node_sets(nodes)), *beyond]
    free = [*column.free_on_all(nodes), *map(column.free_on, beyond)]
    capacity = [*column.capacity_on_all(nodes), *map(column.capacity_on, beyond)]
    cells = []
    for mask, there, size in zip(masks, free, capacity, strict=True):
        if there < need and quick:
            verdict = "small" if size < need else "short"
        else:
            verdict = _verdict(mask, column, columns, there, size)
        cells.append(column.cell(there, size, verdict))
    return cells


def _verdict(mask: Bits, column: Column, columns: list[Column], free: int, capacity: int) -> str:
    need, hints = column.need, column.hints
    if hints is None:
        return "small" if capacity < need else "group" if column.is_tied(mask) else "fits"
    if mask in hints:
        return "fits" if hints.prefers(mask) else "wide"
    if capacity < need:
        return "small"
    return "short" if free < need else _why_no_hint(mask, column, columns)


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
