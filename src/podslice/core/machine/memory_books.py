"""The Memory Manager's books: what of each NUMA node's memory is whose (spec memory-device 1.4).

Hints read them, allocation changes them, the state file holds them; so the types live below all three.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import msgspec


class Block(msgspec.Struct, frozen=True, rename="camel"):
    """`size` bytes of `type` (`memory` or `hugepages-…`) on the NUMA nodes of `numa_affinity`."""

    numa_affinity: tuple[int, ...] | None
    type: str
    size: int

    def to_json(self) -> dict[str, Any]:
        return {"numaAffinity": list(self.numa_affinity or ()), "type": self.type, "size": self.size}


class MemoryTable(msgspec.Struct, rename="camel"):
    """Bytes of one memory type on one NUMA node."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NUMANodeState(msgspec.Struct, rename="camel"):
    """One NUMA node: `cells` is the group it belongs to, its own id alone when single."""

    number_of_assignments: int = 0
    memory_map: dict[str, MemoryTable] | None = msgspec.field(default_factory=dict)
    cells: list[int] | None = None

    def copied(self) -> NUMANodeState:
        """A copy that shares nothing that can change."""
        tables = None if self.memory_map is None else {name: copy(table) for name, table in self.memory_map.items()}
        return NUMANodeState(self.number_of_assignments, tables, None if self.cells is None else list(self.cells))


MachineState = dict[int, NUMANodeState]
ContainerBlocks = dict[str, dict[str, list[Block] | None] | None]
PodBlocks = dict[str, list[Block] | None]
