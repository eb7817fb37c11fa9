"""Who writes into the cgroups of pods beside us: found at once, not at the next pass.

systemd, where it is the driver of cgroups, restores at every `daemon-reload` and at some changes of a unit what it was
told of that unit. It was told by kubelet and runtime, not by us: the quota of a pod whose containers own CPUs comes
back, and a container that we moved off CPUs which are owned by now is put back on them.
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
"""So often it is looked whether there are other cgroups than before."""
PAUSE_SECONDS = 1.0
"""Between two answers, so that somebody who insists is not answered without end."""


class WriteWatcher:
    """Follows the CPU sets and quotas of all containers that run, and the quotas of pods. Without `writes` nobody is
    ever found; then only the passes over everything find what differs."""

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

    async def during(self, seconds: float) -> AsyncGenerator[frozenset[str]]:
        """The containers by id and pods by UID whose cgroups were written, whenever that happens; ours are among
        them. Ends after so many seconds."""
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
                    yield self._taken()
                    await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, end - loop.time())))
                files = dict(self._files())
                if files.keys() != self._numbers.keys():
                    self._follow(self._writes, files)
        finally:
            loop.remove_reader(self._writes.fileno())

    def _read(self, writes: FileWrites) -> None:
        self._written |= writes.read()
        if self._written:
            self._changed.set()

    def _taken(self) -> frozenset[str]:
        written, self._written = self._written, set()
        self._changed.clear()
        if LOST in written:
            return self.followed
        return frozenset(self._whose[number] for number in written if number in self._whose)

    @property
    def followed(self) -> frozenset[str]:
        """The containers and pods of which a file is followed."""
        return frozenset(self._whose.values())

    def _follow(self, writes: FileWrites, files: dict[str, str]) -> None:
        """These files, as far as they are there, and no others. A cgroup that was made again has other files with the
        same names."""
        for path in self._numbers.keys() - files.keys():
            writes.forget(self._numbers.pop(path))
        for path, whose in files.items():
            try:
                self._numbers[path] = writes.follow(Path(path))
            except FileNotFoundError:
                self._numbers.pop(path, None)
            except OSError as error:
                self._trouble("overwritten", f"{path}: cannot be followed: {error.strerror}")
                break
            else:
                self._whose[self._numbers[path]] = whose
        kept = set(self._numbers.values())
        self._whose = {number: whose for number, whose in self._whose.items() if number in kept}

    def _files(self) -> Iterator[tuple[str, str]]:
        """With whose they are."""
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
