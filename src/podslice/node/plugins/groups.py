"""Order CPUs by the points that plugins give them."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.machine.model import whole_objects
from podslice.node.cpu.picking.distribute import Pick
from podslice.node.cpu.picking.picker import Picker
from podslice.node.plugins.api import CPUMachine, Layer
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, union


def score_groups(cpus: Bits, layers: Sequence[Layer]) -> list[Bits]:
    """Return the CPUs in groups of equal points over all layers, most points first."""
    groups = {0: cpus}
    for there, points in layers:
        if not points or not there & cpus:
            continue
        split: dict[int, Bits] = {}
        for score, group in groups.items():
            inside = group & there
            if inside:
                split[score + points] = split.get(score + points, 0) | inside
            if inside != group:
                split[score] = split.get(score, 0) | group & ~inside
        groups = split
    return [groups[score] for score in sorted(groups, reverse=True)]


def whole_cores(machine: CPUMachine, groups: Sequence[Bits]) -> list[Bits]:
    """Return the same groups, with every core in the group of its worst CPU."""
    left, found = union(groups), []
    for group in reversed(groups):
        cores = whole_objects(machine.cores, group) & left
        left &= ~cores
        found.append(cores)
    return found[::-1]


def take_by_groups(
    picker: Picker, groups: Sequence[Bits], count: int, near: Bits, search_budget: SearchBudget | None
) -> Pick:
    """Take whole groups as long as they fit, and of the next one as many CPUs as are missing; first those that are
    `near`. Raises `AdmissionError`."""
    chosen, proven = 0, True
    for place in (near, ~near):
        for group in groups:
            free = group & place
            missing = count - chosen.bit_count()
            if not missing:
                return Pick(chosen, proven)
            if free.bit_count() <= missing:
                chosen |= free
            else:
                pick = picker.take(free, missing, search_budget)
                chosen, proven = chosen | pick.cpus, proven and pick.proven
    if chosen.bit_count() < count:
        return picker.take(chosen, count, search_budget)
    return Pick(chosen, proven)
