"""The books of memory on a machine whose memory changed: everything that is held, booked again (memory-device 1.4).

What a kubelet would compute at its next start. Blocks that no longer fit make their NUMA nodes short: nothing new goes
there until pods have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.machine.memory_accounts import charge, default_machine_state, settle
from podslice.core.machine.model import Machine
from podslice.core.managers.memory_state import MemoryState
from podslice.core.values.cpuset import bits_of
from podslice.core.values.golang import U64


def rebooked(
    host: Machine, reserved: Mapping[int, Mapping[str, int]], state: MemoryState, *, pod_level: bool
) -> MemoryState:
    """The state with the books of this machine, of which bytes are reserved by NUMA node and resource."""
    machine = {node: _possible(books) for node, books in default_machine_state(host, reserved).items()}
    for block in _held(state, pod_level=pod_level):
        charge(machine, bits_of(block.numa_affinity or ()), block.type, block.size)
    settle(machine)
    return replace(state, machine_state=machine, short=_short(machine, state, pod_level=pod_level))


def fits(host: Machine, reserved: Mapping[int, Mapping[str, int]], state: MemoryState) -> bool:
    """True where the books are of this machine already, and nothing is short."""
    machine = {node: _possible(books) for node, books in default_machine_state(host, reserved).items()}
    return not state.short and _sizes(machine) == _sizes(state.machine_state)


def _possible(books: NUMANodeState) -> NUMANodeState:
    """Without amounts below nothing, which wrap at 64 bits: more is reserved than there is."""
    tables = {name: table if table.allocatable <= U64 >> 1 else _none(table) for name, table in _tables(books)}
    return replace(books, memory_map=tables)


def _none(table: MemoryTable) -> MemoryTable:
    return MemoryTable(table.total, table.system_reserved)


def _tables(books: NUMANodeState) -> list[tuple[str, MemoryTable]]:
    return list((books.memory_map or {}).items())


def _sizes(machine: MachineState) -> dict[int, dict[str, tuple[int, int, int]]]:
    return {
        node: {name: (table.total, table.system_reserved, table.allocatable) for name, table in _tables(books)}
        for node, books in machine.items()
    }


def _held(state: MemoryState, *, pod_level: bool) -> Iterator[Block]:
    for uid, named in state.assignments.items():
        yield from state.booked(uid, named, pod_level=pod_level)


def _short(machine: MachineState, state: MemoryState, *, pod_level: bool) -> dict[int, int]:
    """Bytes that are held and not booked, under the lowest NUMA node of those that hold them."""
    short: dict[int, int] = {}
    wanted: dict[tuple[tuple[int, ...], str], int] = {}
    for block in _held(state, pod_level=pod_level):
        nodes = tuple(sorted(node for node in block.numa_affinity or () if node in machine))
        if nodes:
            wanted[nodes, block.type] = wanted.get((nodes, block.type), 0) + block.size
    reserved = {(node, name): table.reserved for node, books in machine.items() for name, table in _tables(books)}
    for (nodes, name), size in sorted(wanted.items()):
        for node in nodes:
            booked = min(size, reserved.get((node, name), 0))
            reserved[node, name] = reserved.get((node, name), 0) - booked
            size -= booked
        if size:
            short[nodes[0]] = short.get(nodes[0], 0) + size
    return short
