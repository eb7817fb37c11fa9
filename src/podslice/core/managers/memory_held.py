"""What a Memory Manager holds already: as hints for the same pod, and as a copy to go back to
(memory-device 1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.hints.hintset import HintSet, ProviderHints
from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.pod.memory_demand import Amounts
from podslice.core.values.cpuset import Bits, bits_of


class Snapshot(NamedTuple):
    """The books as they were before a pod; `MemoryManager.restore` puts them back."""

    machine: MachineState
    entries: dict[str, list[Block]] | None
    pod: list[Block] | None
    reusable: dict[str, dict[Bits, Amounts]]
    revision: int


def held_blocks_as_hints(blocks: list[Block], request: Amounts) -> ProviderHints:
    """Hints from blocks that are held already; None when they do not match the request."""
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: HintSet.only(bits_of(block.numa_affinity or ())) for block in blocks}


def held_by_pod(held: Mapping[str, list[Block]], request: Amounts) -> ProviderHints:
    """The nodes all containers of the pod are on; None when they are on different ones."""
    masks = {bits_of(block.numa_affinity or ()) for blocks in held.values() for block in blocks}
    if len(masks) != 1:
        return None
    return dict.fromkeys(request, HintSet.only(masks.pop()))


def copy_of(state: NUMANodeState) -> NUMANodeState:
    """A node's books that can be changed by themselves."""
    tables = {
        name: MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved, t.free)
        for name, t in (state.memory_map or {}).items()
    }
    return NUMANodeState(state.number_of_assignments, tables, list(state.cells or ()))
