"""Choosing NUMA nodes for memory, and the books of the nodes (spec memory-device 1.4, 1.8, 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from podslice.core.config.reservation import hugepage_resource
from podslice.core.errors import AdmissionError
from podslice.core.hints.hint import Hint
from podslice.core.hints.memory import Request, best, free_on, violates_groups
from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.machine.model import Machine
from podslice.core.values.cpuset import Bits, iter_bits

U64 = (1 << 64) - 1


def default_machine_state(machine: Machine, reserved: Mapping[int, Mapping[str, int]]) -> MachineState:
    """The books of an empty machine; subtractions wrap at 64 bits as upstream's do (spec 1.4)."""
    state: MachineState = {}
    for node in machine.nodes:
        kept = reserved.get(node.id, {})
        tables: dict[str, MemoryTable] = {}
        for pool in node.hugepages:
            name = hugepage_resource(pool.page_size_ki)
            tables[name] = _table(pool.bytes, kept.get(name, 0), 0)
        pages = sum(pool.bytes for pool in node.hugepages)
        tables["memory"] = _table(node.memory, kept.get("memory", 0), pages)
        state[node.id] = NUMANodeState(0, tables, [node.id])
    return state


def _table(total: int, reserved: int, elsewhere: int) -> MemoryTable:
    allocatable = (total - reserved - elsewhere) & U64
    return MemoryTable(total, reserved & U64, allocatable, 0, allocatable)


def resolve(
    machine: MachineState, affinity: Hint, request: Request, hints: Callable[[], list[Hint]], *, whole_groups: bool
) -> Bits:
    """The nodes an allocation uses: the affinity, a default without one, or a superset that is large enough.

    `whole_groups` refuses a single node of a group as well. Raises `AdmissionError` with upstream's text (spec 1.8).
    """
    if affinity.mask is None:
        affinity = _checked(
            hints(),
            affinity.preferred,
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            "[memorymanager] failed to find the default preferred hint",
        )
    mask = affinity.mask or 0
    if any(free_on(machine, mask, name) < amount for name, amount in request.items()):
        affinity = _checked(
            [hint for hint in hints() if (hint.mask or 0) & mask == mask],
            affinity.preferred,
            "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
            "[memorymanager] failed to find the extended preferred hint",
        )
        mask = affinity.mask or 0
    alone_in_group = mask.bit_count() == 1 and len(machine[mask.bit_length() - 1].cells or ()) > 1
    if violates_groups(machine, mask) or (whole_groups and alone_in_group):
        raise AdmissionError("[memorymanager] preferred hint violates NUMA node allocation")
    return mask


def _checked(hints: list[Hint], preferred: bool, none: str, worse: str) -> Hint:
    if not hints:
        raise AdmissionError(none)
    found = best(hints)
    if preferred and not found.preferred:
        raise AdmissionError(worse)
    return found


def charge(machine: MachineState, mask: Bits, name: str, size: int) -> None:
    """Book `size` bytes on the nodes of a mask, lower ids first; what does not fit is lost (spec 1.9)."""
    cells = list(iter_bits(mask))
    for node in cells:
        state = machine[node]
        state.number_of_assignments += 1
        state.cells = list(cells)
        table = (state.memory_map or {}).get(name)
        if table is not None and size > 0:
            taken = min(table.free, size)
            table.reserved += taken
            table.free -= taken
            size -= taken


def release(machine: MachineState, blocks: Iterable[Block]) -> None:
    """Give back what blocks hold, in their stored node order (spec 1.9)."""
    for block in blocks:
        remaining = block.size
        for node in block.numa_affinity or ():
            state = machine.get(node)
            if state is None:
                continue
            state.number_of_assignments -= 1
            if state.number_of_assignments == 0:
                state.cells = [node]
            table = (state.memory_map or {}).get(block.type)
            if table is not None:
                given = min(table.reserved, remaining)
                table.free += given
                table.reserved -= given
                remaining -= given
