"""Arithmetic of the memory ledger: an empty machine's tables, booking blocks and giving them back (memory-device 1.4,
1.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.machine.memory import NO_TABLE, Block, MachineState, MemoryTable, NUMANodeState
from podslice.machine.model import Machine
from podslice.values.cpuset import Bits, ids_of
from podslice.values.golang import U64
from podslice.values.quantity import hugepage_resource


def default_machine_state(machine: Machine, reserved: Mapping[int, Mapping[str, int]]) -> MachineState:
    """Return the ledger of an empty machine; subtractions wrap at 64 bits as upstream's do (memory-device 1.4)."""
    state: MachineState = {}
    for node in machine.nodes:
        kept = reserved.get(node.id, {})
        tables: dict[str, MemoryTable] = {}
        for pool in node.hugepages:
            name = hugepage_resource(pool.page_size_ki)
            tables[name] = _table(pool.bytes, kept.get(name, 0), 0)
        pages = sum(pool.bytes for pool in node.hugepages)
        # MemTotal includes preallocated huge pages, which no one else can use.
        tables["memory"] = _table(node.memory, kept.get("memory", 0), pages)
        state[node.id] = NUMANodeState(0, tables, [node.id])
    return state


def _table(total: int, reserved: int, elsewhere: int) -> MemoryTable:
    allocatable = (total - reserved - elsewhere) & U64
    return MemoryTable(total, reserved & U64, allocatable, 0, allocatable)


def charge(machine: MachineState, mask: Bits, name: str, size: int) -> None:
    """Book `size` bytes on the nodes of a mask, lower ids first; an amount that does not fit, or is meant for a node
    that does not exist, is lost (memory-device 1.9).

    The nodes' records are replaced, not changed, so a copy of `machine` keeps its content.
    """
    cells = [node for node in ids_of(mask) if node in machine]
    for node in cells:
        state = machine[node]
        table = state.memory_map.get(name) if state.memory_map else None
        taken = min(table.free, max(0, size)) if table else 0
        size -= taken
        machine[node] = NUMANodeState(
            state.number_of_assignments + 1, _move_to_reserved(state, name, taken), list(cells)
        )


def release(machine: MachineState, blocks: Iterable[Block]) -> bool:
    """Give back what blocks hold, in their stored node order (memory-device 1.9), and return whether a block was on
    several nodes. Records are replaced as in `charge`."""
    several = False
    for block in blocks:
        remaining, nodes = block.size, block.numa_affinity or ()
        several = several or len(nodes) > 1
        for node in nodes:
            state = machine.get(node)
            if state is None:
                continue
            table = state.memory_map.get(block.type, NO_TABLE) if state.memory_map else NO_TABLE
            given = min(table.reserved, remaining)
            remaining -= given
            # A group exists as long as it has assignments: the last one that leaves makes the node single again.
            left = state.number_of_assignments - 1
            machine[node] = NUMANodeState(
                left, _move_to_reserved(state, block.type, -given), state.cells if left else [node]
            )
    return several


def settle(machine: MachineState) -> None:
    """Book the reserved amount of every group of nodes on its lower ids first, as if its blocks had just been charged.

    Only a group as a whole counts for admission. Without this, the amount that `release` leaves on each of its nodes
    would depend on the order in which pods came and went.
    """
    for node, state in list(machine.items()):
        cells = tuple(state.cells or ())
        if len(cells) > 1 and node == min(cells) and all(tuple(machine[cell].cells or ()) == cells for cell in cells):
            for name in state.memory_map or {}:
                _settle(machine, sorted(cells), name)


def _settle(machine: MachineState, cells: list[int], name: str) -> None:
    left = sum(_table_of(machine[cell], name).reserved for cell in cells)
    for cell in cells:
        table = _table_of(machine[cell], name)
        here = min(left, table.reserved + table.free)
        left -= here
        if here != table.reserved:
            state = machine[cell]
            tables = _move_to_reserved(state, name, here - table.reserved)
            machine[cell] = NUMANodeState(state.number_of_assignments, tables, state.cells)


def rebook(machine: MachineState, blocks: Iterable[Block], mask: Bits) -> None:
    """Book blocks on the nodes of another mask."""
    blocks = tuple(blocks)
    release(machine, blocks)
    for block in blocks:
        charge(machine, mask, block.type, block.size)


def _table_of(state: NUMANodeState, name: str) -> MemoryTable:
    return (state.memory_map or {}).get(name, NO_TABLE)


def _move_to_reserved(state: NUMANodeState, name: str, size: int) -> dict[str, MemoryTable] | None:
    """Return the tables of a node after `size` bytes went from free to reserved."""
    tables = state.memory_map
    if not size or not tables:
        return tables
    t = tables[name]
    return {**tables, name: MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved + size, t.free - size)}
