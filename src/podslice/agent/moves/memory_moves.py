"""Memory that follows a container to other NUMA nodes.

On cgroup v2 a write of `cpuset.mems` moves pages, and lasts until they are moved; so it happens beside the event loop.
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

LARGEST_FOLLOWING = 4 << 30
"""Bytes of one container that are moved at most."""
LONGEST_FOLLOWING = 30.0
FreeBytes = Callable[[int], int | None]
"""The free bytes of a NUMA node, None where nothing says."""
RunInThread = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments beside the event loop, as `asyncio.to_thread`."""


class Following(Protocol):
    """A container, what it had and what it is to have."""

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
    """Below a cgroup root."""

    def __init__(self, tree: CgroupTree, free: FreeBytes, *, run_in_thread: RunInThread = asyncio.to_thread) -> None:
        self._tree = tree
        self._free = free
        self._run_in_thread = run_in_thread

    async def widen(self, steps: Iterable[Following]) -> None:
        """Containers may take memory from both places. Raises `OSError`, also where it cannot follow."""
        for change in _changes(steps):
            self._check_room(change)
            await self._bind(change.path, change.before | change.after)

    async def follow(self, steps: Iterable[Following]) -> str:
        """Their memory is where it is to be; else what is not. Raises `OSError`."""
        late = []
        for change in _changes(steps):
            try:
                async with asyncio.timeout(LONGEST_FOLLOWING):
                    await self._bind(change.path, change.after)
            except TimeoutError:
                late.append(change.name)
        return f"the memory of container {late[0]} still moves after {LONGEST_FOLLOWING:.0f} s" if late else ""

    async def back(self, steps: Iterable[Following]) -> None:
        """Their memory is where it was. Raises `OSError`; a cgroup that is gone needs nothing."""
        for change in _changes(steps):
            if self._tree.exists(change.path):
                await self._bind(change.path, change.before)

    async def _bind(self, path: str, nodes: Bits) -> None:
        try:
            await self._run_in_thread(self._tree.write_mems, path, nodes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{path}/cpuset.mems") from None

    def _check_room(self, change: _Change) -> None:
        """Raises `OSError`."""
        bytes_ = bytes_on(self._tree, change.path, change.before & ~change.after)
        nodes = change.after & ~change.before
        room = room_on(self._free, nodes)
        place = f"{change.path}/memory.numa_stat"
        if bytes_ > LARGEST_FOLLOWING:
            raise OSError(0, f"{bytes_} bytes would have to move, at most {LARGEST_FOLLOWING} are moved", place)
        if room is not None and bytes_ >= room:
            text = f"{bytes_} bytes would have to move, on NUMA {format_bits(nodes)} {room} are free"
            raise OSError(0, text, place)


def _changes(steps: Iterable[Following]) -> Iterator[_Change]:
    for step in steps:
        path = cgroup_path(step.record.cgroups_path)
        before, after = step.before.mems, step.after.mems
        if path is not None and before and after and before != after:
            yield _Change(step.record.name, path, before, after)


def bytes_on(tree: CgroupTree, path: str, nodes: Bits) -> int:
    """Bytes that a cgroup uses on NUMA nodes; none where the kernel does not say."""
    here = tree.memory_by_node(path)
    return sum(here.get(node, 0) for node in iter_bits(nodes))


def room_on(free: FreeBytes, nodes: Bits) -> int | None:
    """Free bytes of NUMA nodes together, None where nothing says of one of them."""
    found = [free(node) for node in iter_bits(nodes)]
    return None if None in found else sum(one or 0 for one in found)


def free_memory(files: FileSystem, node: int) -> int | None:
    """Free bytes of a NUMA node, None where nothing says; `files` has `/sys` at its root."""
    try:
        return kilobytes(files.read(f"devices/system/node/node{node}/meminfo"), "MemFree")
    except OSError:
        return None
