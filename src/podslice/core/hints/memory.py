"""Memory hints: which sets of NUMA nodes could hold a container's memory and huge pages (spec memory-device 1.6).

All resources of a request share one list of masks, so a mask is looked at once: its sums over all subsets come from
tables, and what its nodes' groups forbid from three bit sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.hint import Hint
from podslice.core.hints.masks import enumerate_masks, sums
from podslice.core.machine.memory import MachineState
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

MAX_NODES = 16
"""Every set of nodes is listed, so more nodes than this cannot be served in time."""

Request = Mapping[str, int]
"""Bytes by resource: `memory` and huge page resources."""
Reuse = Mapping[Bits, Request]
"""Bytes that init containers leave to the pod's next container, by exact mask and resource."""


class Groups(NamedTuple):
    """Which nodes are used together. `used`: nodes with assignments. `grouped`: nodes that belong to a group of
    several. `members`: the used nodes of each group, by the mask of the group."""

    used: Bits
    grouped: Bits
    members: Mapping[Bits, Bits]

    @classmethod
    def of(cls, machine: MachineState) -> Groups:
        used = grouped = 0
        members: dict[Bits, Bits] = {}
        for node, state in machine.items():
            cells = state.cells or ()
            if len(cells) > 1:
                grouped |= 1 << node
            if state.number_of_assignments > 0:
                used |= 1 << node
                group = bits_of(cells)
                members[group] = members.get(group, 0) | 1 << node
        return cls(used, grouped, members)

    def violated_by(self, mask: Bits) -> bool:
        """True when several nodes are asked for and one is in use alone or in another group (1.6 e, 1.8.3)."""
        return mask.bit_count() > 1 and mask & self.used != mask & self.members.get(mask, 0)

    def broken_by(self, mask: Bits) -> bool:
        """True for a single node of a group (1.6 d)."""
        return mask.bit_count() == 1 and mask & self.grouped != 0


def memory_masks(machine: MachineState, request: Request, reuse: Reuse, *, crash: bool) -> list[Hint]:
    """The hints that every requested resource shares, in upstream's order; empty when nothing fits.

    A mask must be large enough when empty (this alone decides what the smallest, preferred size is), must respect
    the groups, and must have enough free. `crash` raises `UpstreamDefectError` for a resource that a node does not
    have; otherwise it counts as nothing.
    """
    if not request:
        return []
    if crash:
        _check_tables(machine, request)
    nodes = tuple(sorted(machine))
    masks = list(enumerate_masks(nodes))
    for name, amount in request.items():
        table = sums([_amount(machine, node, name, "allocatable") for node in nodes])
        masks = [entry for entry in masks if table[entry[0]] >= amount]
    if not masks:
        return []
    smallest = masks[0][1].bit_count()
    groups = Groups.of(machine)
    masks = [entry for entry in masks if not (groups.violated_by(entry[1]) or groups.broken_by(entry[1]))]
    for name, amount in request.items():
        table = sums([_amount(machine, node, name, "free") for node in nodes])
        left = {mask: amounts[name] for mask, amounts in reuse.items() if amounts.get(name)}
        masks = [entry for entry in masks if table[entry[0]] + left.get(entry[1], 0) >= amount]
    return [Hint(mask, mask.bit_count() == smallest) for _, mask in masks]


def _check_tables(machine: MachineState, request: Request) -> None:
    for name in request:
        for node, state in machine.items():
            if name not in (state.memory_map or {}):
                raise UpstreamDefectError("missing_hugepages_crash", f"NUMA node {node} has no {name}")


def _amount(machine: MachineState, node: int, name: str, field: str) -> int:
    table = (machine[node].memory_map or {}).get(name)
    return 0 if table is None else int(getattr(table, field))


def free_on(machine: MachineState, mask: Bits, name: str) -> int:
    """Free bytes of a resource on the nodes of a mask."""
    return sum(_amount(machine, node, name, "free") for node in iter_bits(mask) if node in machine)


def best(hints: list[Hint]) -> Hint:
    """Preferred before not, then fewer nodes, then the lower mask."""
    return min(hints, key=lambda hint: (not hint.preferred, (hint.mask or 0).bit_count(), hint.mask or 0))
