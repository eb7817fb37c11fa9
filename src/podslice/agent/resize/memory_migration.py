"""Memory that leaves NUMA nodes in a resize (`memoryNodes: follow`).

A write of `cpuset.mems` has the kernel move the pages that are elsewhere. Without room for them on the nodes that stay
it would swap or kill, so the container then keeps its nodes. The write lasts until the pages are moved, and happens
beside the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from podslice.agent.moves.memory_moves import LONGEST_FOLLOWING, FreeBytes, RunInThread, bytes_on, room_on
from podslice.agent.records import ContainerRecord, Pinning
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.node.cpu.state import Intent, PodMemory, numa_nodes
from podslice.values.cpuset import Bits, format_bits


class MemoryMigration:
    """Below a cgroup root."""

    def __init__(self, tree: CgroupTree, free: FreeBytes, *, run_in_thread: RunInThread = asyncio.to_thread) -> None:
        self._tree = tree
        self._free = free
        self._run_in_thread = run_in_thread

    def stays(self, intent: Intent, records: Iterable[ContainerRecord]) -> str:
        """Why the memory of a pod's containers has to stay on NUMA nodes that it is to leave; empty where it need
        not."""
        pages: dict[tuple[Bits, Bits], int] = {}
        for record in records:
            had, gets = (_nodes(side.memory, record.member) for side in intent.sides)
            path = cgroup_path(record.cgroups_path)
            if path is not None and gets and had & ~gets:
                used = bytes_on(self._tree, path, had & ~gets)
                pages[had & ~gets, gets] = pages.get((had & ~gets, gets), 0) + used
        for (left, kept), used in pages.items():
            room = room_on(self._free, kept)
            if used and room is not None and used >= room:
                text = f"{used} bytes are used on NUMA {format_bits(left)}, {room} are free on {format_bits(kept)}"
                return f"memory stays: {text}"
        return ""

    async def leave(self, steps: Iterable[tuple[ContainerRecord, Pinning]]) -> None:
        """Containers have their memory on the nodes that they are to have, as far as it left some. What cannot be
        written is for who reads back."""
        for record, wanted in steps:
            path, had = cgroup_path(record.cgroups_path), record.applied.mems
            if path is not None and record.started and wanted.mems and had & ~wanted.mems:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(LONGEST_FOLLOWING):
                        await self._run_in_thread(self._tree.write_mems, path, wanted.mems)


def _nodes(memory: PodMemory, name: str) -> Bits:
    return numa_nodes(memory.containers.get(name, ()) or memory.whole)
