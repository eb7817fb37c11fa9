"""Memory that follows a container to other NUMA nodes.

On cgroup v2 a write of `cpuset.mems` moves pages, and lasts until they are moved; so it happens beside the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from podslice.agent.records import ContainerRecord, Pinning
from podslice.core.values.cpuset import Bits, format_bits, iter_bits
from podslice.host.cgroup2 import CgroupTree, cgroup_path
from podslice.host.filesystem import FileSystem
from podslice.host.kernel_text import kilobytes

LARGEST_FOLLOWING = 4 << 30
"""Bytes of one container that are moved at most."""
LONGEST_FOLLOWING = 30.0
Aside = Callable[..., Awaitable[Any]]
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
    """Below a cgroup root. `free` knows the free bytes of a NUMA node, None where nothing says."""

    def __init__(
        self, tree: CgroupTree, free: Callable[[int], int | None], *, aside: Aside = asyncio.to_thread
    ) -> None:
        self._tree = tree
        self._free = free
        self._aside = aside

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
            await self._aside(self._tree.write_mems, path, nodes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{path}/cpuset.mems") from None

    def _check_room(self, change: _Change) -> None:
        """Raises `OSError`."""
        here = self._tree.memory_by_node(change.path)
        bytes_ = sum(here.get(node, 0) for node in iter_bits(change.before & ~change.after))
        free = [self._free(node) for node in iter_bits(change.after & ~change.before)]
        room = sum(one or 0 for one in free)
        place = f"{change.path}/memory.numa_stat"
        if bytes_ > LARGEST_FOLLOWING:
            raise OSError(0, f"{bytes_} bytes would have to move, at most {LARGEST_FOLLOWING} are moved", place)
        if None not in free and bytes_ >= room:
            nodes = format_bits(change.after & ~change.before)
            raise OSError(0, f"{bytes_} bytes would have to move, on NUMA {nodes} {room} are free", place)


def _changes(steps: Iterable[Following]) -> Iterator[_Change]:
    for step in steps:
        path = cgroup_path(step.record.cgroups_path)
        before, after = step.before.mems, step.after.mems
        if path is not None and before and after and before != after:
            yield _Change(step.record.name, path, before, after)


def free_memory(files: FileSystem, node: int) -> int | None:
    """Free bytes of a NUMA node, None where nothing says; `files` has `/sys` at its root."""
    try:
        return kilobytes(files.read(f"devices/system/node/node{node}/meminfo"), "MemFree")
    except OSError:
        return None
