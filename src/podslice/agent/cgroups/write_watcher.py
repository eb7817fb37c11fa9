"""Detects writes of other programs into the cgroups of pods at once, not only with the next pass.

systemd as cgroup driver restores the properties it knows of a unit at every `daemon-reload` and at some changes of the
unit. It knows the values of kubelet and runtime, not ours: the quota of a pod with exclusive CPUs comes back, and a
container that was moved off CPUs which another one owns now is put back on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

from podslice.agent.cgroups.reconcile import pod_path
from podslice.agent.owner import Owner
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.host.kernel.filewrites import LOST, FileWrites
from podslice.service.pacing import wait_at_most

FOLLOW_SECONDS = 1.0
"""Seconds between two checks for new or removed cgroups."""
PAUSE_SECONDS = 1.0
"""Seconds between two reactions, so that a program that writes again and again is not answered endlessly."""


class WriteWatcher:
    """Watches CPU sets and quotas of all running containers, and the quotas of pods. Without `writes` it reports
    nothing; only the periodic passes then find differences."""

    def __init__(
        self, owner: Owner, tree: CgroupTree, writes: FileWrites | None, *, trouble: Callable[[str, str], None]
    ) -> None:
        self._owner = owner
        self._tree = tree
        self._writes = writes
        self._trouble = trouble
        self._numbers: dict[str, int] = {}
        self._whose: dict[int, str] = {}
        self._written: set[int] = set()
        self._changed = asyncio.Event()

    async def watch(self, seconds: float) -> AsyncGenerator[frozenset[str]]:
        """Yield the container ids and pod UIDs whose cgroups were written, our own writes included. Ends after
        `seconds`."""
        if self._writes is None:
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(self._writes.fileno(), self._read, self._writes)
        end = loop.time() + seconds
        try:
            self._follow(self._writes, dict(self._files()))
            while (left := end - loop.time()) > 0:
                await wait_at_most(self._changed, min(left, FOLLOW_SECONDS))
                if self._written:
                    yield self._take_changed()
                    await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, end - loop.time())))
                files = dict(self._files())
                # A file that could not be watched stays out of `_numbers` and is tried again here.
                if files.keys() != self._numbers.keys():
                    self._follow(self._writes, files)
        finally:
            loop.remove_reader(self._writes.fileno())

    def _read(self, writes: FileWrites) -> None:
        self._written |= writes.read()
        if self._written:
            self._changed.set()

    def _take_changed(self) -> frozenset[str]:
        written, self._written = self._written, set()
        self._changed.clear()
        # The queue of inotify overflowed: any of the files may have been written.
        if LOST in written:
            return self.followed
        return frozenset(self._whose[number] for number in written if number in self._whose)

    @property
    def followed(self) -> frozenset[str]:
        """Container ids and pod UIDs of which at least one file is watched."""
        return frozenset(self._whose.values())

    def _follow(self, writes: FileWrites, files: dict[str, str]) -> None:
        """Watch exactly these files, as far as they exist. A recreated cgroup has new files with the old names."""
        for path in self._numbers.keys() - files.keys():
            writes.forget(self._numbers.pop(path))
        for path, whose in files.items():
            try:
                self._numbers[path] = writes.follow(Path(path))
            except FileNotFoundError:
                self._numbers.pop(path, None)
            except OSError as error:
                # Mostly the limit of watches of this user: further files would fail in the same way.
                self._trouble("overwritten", f"{path}: cannot be followed: {error.strerror}")
                break
            else:
                self._whose[self._numbers[path]] = whose
        kept = set(self._numbers.values())
        self._whose = {number: whose for number, whose in self._whose.items() if number in kept}

    def _files(self) -> Iterator[tuple[str, str]]:
        """Yield each file to watch with the id or UID of its container or pod."""
        root = self._tree.root
        for record in self._owner.containers.values():
            path = cgroup_path(record.cgroups_path)
            if record.started and path is not None:
                yield f"{root}/{path}/cpuset.cpus", record.id
                yield f"{root}/{path}/cpu.max", record.id
        for uid, pod in self._owner.pods.items():
            path = pod_path(pod.identity)
            if path is not None:
                yield f"{root}/{path}/cpu.max", uid
