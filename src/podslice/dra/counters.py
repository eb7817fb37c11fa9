"""Counters of partitions: a device that is taken excludes those that it overlaps (KEP-4815, cluster-integration A.10).

The CPUs are cut into cells, which every partition contains whole or not at all; each cell has a counter that only one
device can take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from podslice.dra.devices import OfferedPart
from podslice.node.plugins.claim_parts import PARTITIONS
from podslice.values.cpuset import Bits, iter_bits

Json = dict[str, Any]
_MOST_OF_A_SET = 32
_MOST_SETS = 2
"""Counter sets that one device can consume."""


def add_counters(offered: Sequence[OfferedPart]) -> tuple[list[Json], list[Json]]:
    """Return the counter sets of a pool and its devices; no sets where there are no partitions. Where there are more
    cells than counters, the smallest partitions are left out."""
    kinds = list(PARTITIONS)
    while True:
        whole = [one for one in offered if _is_partition(one) and one.part.kind in kinds]
        cells = _cells([one.part.cpus for one in whole])
        if len(cells) <= _MOST_OF_A_SET * _MOST_SETS:
            break
        # PARTITIONS begins with the smallest kind, which needs most cells.
        kinds.pop(0)
    sets = [cells[first : first + _MOST_OF_A_SET] for first in range(0, len(cells), _MOST_OF_A_SET)]
    devices = [one.device | {"consumesCounters": _consumed_counters(sets, one.part.cpus)} for one in whole]
    devices += [one.device for one in offered if not _is_partition(one)]
    # A device consumes at most two sets of at most 32 counters (cluster-integration A.1.1, A.1.2).
    return [{"name": _set_name(place), "counters": _format_counters(one)} for place, one in enumerate(sets)], devices


def _is_partition(one: OfferedPart) -> bool:
    return one.part.kind in PARTITIONS and not one.device.get("allowMultipleAllocations")


def _cells(partitions: Sequence[Bits]) -> list[Bits]:
    """Return the largest sets of CPUs that are in the same partitions, by lowest CPU."""
    members: defaultdict[tuple[int, ...], int] = defaultdict(int)
    around: defaultdict[int, list[int]] = defaultdict(list)
    for place, cpus in enumerate(partitions):
        for cpu in iter_bits(cpus):
            around[cpu].append(place)
    for cpu, places in around.items():
        members[tuple(places)] |= 1 << cpu
    return sorted(members.values(), key=lambda cell: cell & -cell)


def _consumed_counters(sets: Sequence[Sequence[Bits]], cpus: Bits) -> list[Json]:
    found = [(place, [cell for cell in cells if cell & cpus]) for place, cells in enumerate(sets)]
    return [{"counterSet": _set_name(place), "counters": _format_counters(cells)} for place, cells in found if cells]


def _set_name(place: int) -> str:
    return f"cpus-{place}"


def _format_counters(cells: Sequence[Bits]) -> Json:
    """Return a counter for each cell, named by its lowest CPU, with the number of its CPUs."""
    return {f"from-{(cell & -cell).bit_length() - 1}": {"value": str(cell.bit_count())} for cell in cells}
