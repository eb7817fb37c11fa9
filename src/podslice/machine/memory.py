"""The ledger of a machine's memory: the amounts of each NUMA node, and the blocks held of them (memory-device 1.4).

The structs are those of the Memory Manager's state file, so that decisions and files cannot differ. They are immutable
values without reference cycles, so the garbage collector can skip them.
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
        """Return the block as the kubelet's state file spells it."""
        return {"numaAffinity": list(self.numa_affinity or ()), "type": self.type, "size": self.size}


class MemoryTable(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Bytes of one memory type on one NUMA node."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


NO_TABLE = MemoryTable()
"""The table of a memory type that a NUMA node does not have."""


class NUMANodeState(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The ledger of one NUMA node: `cells` is the group it belongs to, its own id alone when single."""

    number_of_assignments: int = 0
    memory_map: dict[str, MemoryTable] | None = msgspec.field(default_factory=dict)
    cells: list[int] | None = None


MachineState = dict[int, NUMANodeState]
