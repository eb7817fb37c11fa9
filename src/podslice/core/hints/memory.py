"""Memory hints: which sets of NUMA nodes could hold a container's memory and huge pages (spec memory-device 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.hint import Hint
from podslice.core.hints.masks import enumerate_masks, sums
from podslice.core.machine.memory import MachineState
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

Request = Mapping[str, int]
"""Bytes by resource: `memory` and huge page resources."""
Reuse = Callable[[Bits, str], int]
"""Bytes of a resource that finished init containers left on exactly this mask."""


def memory_masks(machine: MachineState, request: Request, reuse: Reuse, *, crash: bool) -> list[Hint]:
    """The hints that every requested resource shares, in upstream's order; empty when nothing fits.

    `crash` raises `UpstreamDefectError` for a resource that a node does not have; otherwise it counts as nothing.
    """
    if not request:
        return []
    check_resources(machine, request, crash=crash)
    nodes = tuple(sorted(machine))
    allocatable = {name: sums([_amount(machine, node, name, "allocatable") for node in nodes]) for name in request}
    free = {name: sums([_amount(machine, node, name, "free") for node in nodes]) for name in request}
    smallest = len(nodes)
    fitting = []
    for index, mask in enumerate_masks(nodes):
        if any(allocatable[name][index] < amount for name, amount in request.items()):
            continue
        smallest = min(smallest, mask.bit_count())
        if is_blocked(machine, mask):
            continue
        if all(free[name][index] + reuse(mask, name) >= amount for name, amount in request.items()):
            fitting.append(mask)
    return [Hint(mask, mask.bit_count() == smallest) for mask in fitting]


def check_resources(machine: MachineState, request: Request, *, crash: bool) -> None:
    """Where a node has no table for a requested resource upstream crashes (4.1)."""
    if not crash:
        return
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


def is_blocked(machine: MachineState, mask: Bits) -> bool:
    """True when groups forbid the mask: a single node inside a group, or nodes used alone or in another group."""
    if mask.bit_count() == 1:
        return len(machine[mask.bit_length() - 1].cells or ()) > 1
    return violates_groups(machine, mask)


def violates_groups(machine: MachineState, mask: Bits) -> bool:
    """True when several nodes are asked for and one is in use alone or in another group (1.6 e, 1.8.3)."""
    if mask.bit_count() < 2:
        return False
    for node in iter_bits(mask):
        state = machine.get(node)
        if state is not None and state.number_of_assignments > 0:
            cells = state.cells or ()
            if len(cells) == 1 or bits_of(cells) != mask:
                return True
    return False


def best(hints: list[Hint]) -> Hint:
    """Preferred before not, then fewer nodes, then the lower mask."""
    return min(hints, key=lambda hint: (not hint.preferred, (hint.mask or 0).bit_count(), hint.mask or 0))
