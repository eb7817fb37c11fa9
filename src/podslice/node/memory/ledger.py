"""Rebuild the Memory Manager's ledgers from the blocks that pods hold (memory-device 1.4, 1.14)."""

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


def empty_ledger(machine: MachineState) -> MachineState:
    """Return the same nodes and sizes with nothing reserved."""
    return {
        node: NUMANodeState(0, {name: _free(table) for name, table in (state.memory_map or {}).items()}, [node])
        for node, state in machine.items()
    }


def _free(table: MemoryTable) -> MemoryTable:
    return MemoryTable(table.total, table.system_reserved, table.allocatable, 0, table.allocatable)


def iter_blocks(checkpoint: MemoryCheckpoint, *, pod_level: bool) -> Iterator[tuple[str, str, Block]]:
    """Yield every (pod UID, container, block) that counts; a pod entry counts instead of its containers."""
    for pod, containers in (checkpoint.entries or {}).items():
        own = (checkpoint.pod_entries or {}).get(pod) if pod_level else None
        if own:
            yield from ((pod, "", block) for block in own)
            continue
        for name, blocks in (containers or {}).items():
            yield from ((pod, name, block) for block in blocks or ())


def find_misplaced(machine: MachineState, block: Block) -> str:
    """Return the place in a block that the machine does not have, in words; empty if it has all."""
    for node in block.numa_affinity or ():
        if node not in machine:
            return f"NUMA node {node}"
        if block.type not in (machine[node].memory_map or {}):
            return f"{block.type} on NUMA node {node}"
    return ""


def rebuild_from_blocks(machine: MachineState, checkpoint: MemoryCheckpoint, *, pod_level: bool) -> MachineState:
    """Return the ledgers of `machine` charged with everything that `checkpoint` holds; no block may be misplaced."""
    ledger = empty_ledger(machine)
    for _, _, block in iter_blocks(checkpoint, pod_level=pod_level):
        charge(ledger, bits_of(block.numa_affinity or ()), block.type, block.size)
    return ledger
