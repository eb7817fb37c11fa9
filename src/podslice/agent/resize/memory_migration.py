"""Memory migration in a resize that leaves NUMA nodes (`memoryNodes: follow`).

Writing `cpuset.mems` makes the kernel migrate the pages of other nodes. Without enough free memory on the remaining
nodes it would swap or kill, so the container then keeps its nodes. The write returns only when the pages have moved, so
it runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from podslice.agent.moves.memory_moves import LONGEST_MIGRATION, FreeBytes, RunInThread, bytes_used_on, free_bytes_on
from podslice.agent.records import ContainerRecord, Pinning
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.node.cpu.state import Intent, PodMemory, numa_nodes
from podslice.values.cpuset import Bits, format_bits


class MemoryMigration:
    """Migrates memory of containers below one cgroup root."""

    def __init__(self, tree: CgroupTree, free: FreeBytes, *, run_in_thread: RunInThread = asyncio.to_thread) -> None:
        self._tree = tree
        self._free = free
        self._run_in_thread = run_in_thread

    def reason_to_stay(self, intent: Intent, records: Iterable[ContainerRecord]) -> str:
        """Return why the containers' memory has to stay on nodes that the resize would leave; empty where it may
        move."""
        pages: dict[tuple[Bits, Bits], int] = {}
        for record in records:
            had, gets = (_nodes(side.memory, record.member) for side in intent.sides)
            path = cgroup_path(record.cgroups_path)
            if path is not None and gets and had & ~gets:
                used = bytes_used_on(self._tree, path, had & ~gets)
                pages[had & ~gets, gets] = pages.get((had & ~gets, gets), 0) + used
        # Containers that leave the same nodes for the same others compete for the same free memory, so they are summed.
        for (left, kept), used in pages.items():
            room = free_bytes_on(self._free, kept)
            if used and room is not None and used >= room:
                text = f"{used} bytes are used on NUMA {format_bits(left)}, {room} are free on {format_bits(kept)}"
                return f"memory stays: {text}"
        return ""

    async def migrate(self, steps: Iterable[tuple[ContainerRecord, Pinning]]) -> None:
        """Restrict containers to the NUMA nodes they keep, which migrates their pages.

        A failed write is left to the reconcile loop, which reads every cgroup back.
        """
        for record, wanted in steps:
            path, had = cgroup_path(record.cgroups_path), record.applied.mems
            if path is not None and record.started and wanted.mems and had & ~wanted.mems:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(LONGEST_MIGRATION):
                        await self._run_in_thread(self._tree.write_mems, path, wanted.mems)


def _nodes(memory: PodMemory, name: str) -> Bits:
    return numa_nodes(memory.containers.get(name, ()) or memory.whole)
