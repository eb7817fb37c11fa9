"""Memory migration of a container that moves to other NUMA nodes.

On cgroup v2 a write of `cpuset.mems` migrates the pages and returns only when they have moved; so it runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from podslice.agent.records import ContainerRecord, Pinning
from podslice.host.filesystem import FileSystem
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.host.kernel_text import kilobytes
from podslice.values.cpuset import Bits, format_bits, iter_bits

MOST_MIGRATED_BYTES = 4 << 30
"""Largest memory of one container that is migrated, in bytes."""
LONGEST_MIGRATION = 30.0
FreeBytes = Callable[[int], int | None]
"""Returns the free bytes of a NUMA node, None where unknown."""
RunInThread = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments outside the event loop, as `asyncio.to_thread` does."""


class MemoryStep(Protocol):
    """A container with its pinning before and after the move."""

    @property
    def record(self) -> ContainerRecord: ...
    @property
    def before(self) -> Pinning: ...
    @property
    def after(self) -> Pinning: ...


class _Change(NamedTuple):
    name: str
    path: str
    before: Bits
    after: Bits


class MemoryMoves:
    """Migrates memory of containers below one cgroup root."""

    def __init__(self, tree: CgroupTree, free: FreeBytes, *, run_in_thread: RunInThread = asyncio.to_thread) -> None:
        self._tree = tree
        self._free = free
        self._run_in_thread = run_in_thread

    # Both nodes first, the new ones alone only after the move: a container with CPUs on the new nodes could otherwise
    # not allocate near them, and one that is rolled back would have its pages migrated twice.
    async def widen(self, steps: Iterable[MemoryStep]) -> None:
        """Allow memory on the old and the new nodes. Raises `OSError`, also where the new nodes have no room."""
        for change in _changes(steps):
            self._check_room(change)
            await self._bind(change.path, change.before | change.after)

    async def follow(self, steps: Iterable[MemoryStep]) -> str:
        """Restrict memory to the new nodes; return what is still being migrated, empty if all is done. Raises
        `OSError`."""
        late = []
        for change in _changes(steps):
            try:
                async with asyncio.timeout(LONGEST_MIGRATION):
                    await self._bind(change.path, change.after)
            except TimeoutError:
                late.append(change.name)
        return f"the memory of container {late[0]} still moves after {LONGEST_MIGRATION:.0f} s" if late else ""

    async def restore(self, steps: Iterable[MemoryStep]) -> None:
        """Restrict memory to the old nodes again; a cgroup that has gone is skipped. Raises `OSError`."""
        for change in _changes(steps):
            if self._tree.exists(change.path):
                await self._bind(change.path, change.before)

    async def _bind(self, path: str, nodes: Bits) -> None:
        try:
            await self._run_in_thread(self._tree.write_mems, path, nodes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{path}/cpuset.mems") from None

    def _check_room(self, change: _Change) -> None:
        """Check that the memory fits on the new nodes. Raises `OSError`."""
        bytes_ = bytes_used_on(self._tree, change.path, change.before & ~change.after)
        nodes = change.after & ~change.before
        room = free_bytes_on(self._free, nodes)
        place = f"{change.path}/memory.numa_stat"
        if bytes_ > MOST_MIGRATED_BYTES:
            raise OSError(0, f"{bytes_} bytes would have to move, at most {MOST_MIGRATED_BYTES} are moved", place)
        # Free memory that is used up entirely would make the kernel reclaim or kill.
        if room is not None and bytes_ >= room:
            text = f"{bytes_} bytes would have to move, on NUMA {format_bits(nodes)} {room} are free"
            raise OSError(0, text, place)


def _changes(steps: Iterable[MemoryStep]) -> Iterator[_Change]:
    for step in steps:
        path = cgroup_path(step.record.cgroups_path)
        before, after = step.before.mems, step.after.mems
        if path is not None and before and after and before != after:
            yield _Change(step.record.name, path, before, after)


def bytes_used_on(tree: CgroupTree, path: str, nodes: Bits) -> int:
    """Return the bytes that a cgroup uses on NUMA nodes; 0 where the kernel does not report them."""
    here = tree.memory_by_node(path)
    return sum(here.get(node, 0) for node in iter_bits(nodes))


def free_bytes_on(free: FreeBytes, nodes: Bits) -> int | None:
    """Return the free bytes of the NUMA nodes together, None where that of one is unknown."""
    found = [free(node) for node in iter_bits(nodes)]
    return None if None in found else sum(one or 0 for one in found)


def free_memory(files: FileSystem, node: int) -> int | None:
    """Return the free bytes of a NUMA node, None where unknown. The root of `files` is `/sys`."""
    try:
        return kilobytes(files.read(f"devices/system/node/node{node}/meminfo"), "MemFree")
    except OSError:
        return None
