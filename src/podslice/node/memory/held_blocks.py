"""The Memory Manager's accounts, computed from the blocks that are held (memory-device 1.4, 1.14)."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.machine.memory_accounts import charge
from podslice.node.memory.checkpoint import (
    Block,
    MachineState,
    MemoryCheckpoint,
    MemoryTable,
    NUMANodeState,
)
from podslice.values.cpuset import bits_of


def emptied(machine: MachineState) -> MachineState:
    """The same nodes and sizes with nothing reserved."""
    return {
        node: NUMANodeState(0, {name: _free(table) for name, table in (state.memory_map or {}).items()}, [node])
        for node, state in machine.items()
    }


def _free(table: MemoryTable) -> MemoryTable:
    return MemoryTable(table.total, table.system_reserved, table.allocatable, 0, table.allocatable)


def held_blocks(checkpoint: MemoryCheckpoint, *, pod_level: bool) -> Iterator[tuple[str, str, Block]]:
    """Every (pod UID, container, block) that counts; a pod entry counts instead of its containers."""
    for pod, containers in (checkpoint.entries or {}).items():
        own = (checkpoint.pod_entries or {}).get(pod) if pod_level else None
        if own:
            yield from ((pod, "", block) for block in own)
            continue
        for name, blocks in (containers or {}).items():
            yield from ((pod, name, block) for block in blocks or ())


def misplaced(machine: MachineState, block: Block) -> str:
    """What of a block does not exist on the machine, empty if all does."""
    for node in block.numa_affinity or ():
        if node not in machine:
            return f"NUMA node {node}"
        if block.type not in (machine[node].memory_map or {}):
            return f"{block.type} on NUMA node {node}"
    return ""


def rebuilt(machine: MachineState, checkpoint: MemoryCheckpoint, *, pod_level: bool) -> MachineState:
    """The ledgers of `machine` with everything booked that `checkpoint` holds; blocks must not be misplaced."""
    ledger = emptied(machine)
    for _, _, block in held_blocks(checkpoint, pod_level=pod_level):
        charge(ledger, bits_of(block.numa_affinity or ()), block.type, block.size)
    return ledger
