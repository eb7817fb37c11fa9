"""The ledgers of a machine's memory: what each NUMA node has, and who holds blocks of it (memory-device 1.4).

The structs are those of the Memory Manager's state file, so that what is decided and what is written cannot differ.
They are values: nobody changes what is in them, and no cycle goes through them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Block(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`size` bytes of `type` (`memory` or `hugepages-…`) on the NUMA nodes of `numa_affinity`."""

    numa_affinity: tuple[int, ...] | None
    type: str
    size: int

    def to_json(self) -> dict[str, Any]:
        """As the kubelet's state file spells it."""
        return {"numaAffinity": list(self.numa_affinity or ()), "type": self.type, "size": self.size}


class MemoryTable(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Bytes of one memory type on one NUMA node."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


NO_TABLE = MemoryTable()
"""Of a memory type that a NUMA node does not have."""


class NUMANodeState(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One NUMA node: `cells` is the group it belongs to, its own id alone when single."""

    number_of_assignments: int = 0
    memory_map: dict[str, MemoryTable] | None = msgspec.field(default_factory=dict)
    cells: list[int] | None = None


MachineState = dict[int, NUMANodeState]
