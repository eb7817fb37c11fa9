"""A kernel's interrupt files in memory; managed interrupts refuse, and the agent can be killed before any write."""

from __future__ import annotations

import errno

from podslice.agent.guards.guards import FileGuard
from podslice.node.checkpoints.guard_files import Form, GuardedFile, SavedFile, bits_in, text_of
from podslice.values.cpuset import Bits, parse_bits

DEFAULT = "proc/irq/default_smp_affinity"
ONLINE = parse_bits("0-7")
CGROUPS = "sys/fs/cgroup"


class KilledError(BaseException):
    """The agent is gone."""


def irq(number: int) -> str:
    return f"proc/irq/{number}/smp_affinity_list"


class FakeKernel:
    """Files in memory. `stored` survives a kill; `kill_at` counts down stores and writes."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.stored: dict[str, SavedFile] = {}
        self.kill_at = 0
        self.writes: list[tuple[str, str]] = []
        self.now = 0.0

    def _step(self) -> None:
        if self.kill_at:
            self.kill_at -= 1
            if not self.kill_at:
                raise KilledError

    def read(self, path: str) -> str:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path] + "\n"

    def write(self, path: str, text: str) -> None:
        self._step()
        self.writes.append((path, text))
        assert path in self.stored, "an old value is stored before its file is written"
        self.take(path, text)

    def take(self, path: str, text: str) -> None:
        """Store a write as the kernel does; raises `OSError` where it refuses."""
        self.files[path] = text

    def load(self) -> dict[str, SavedFile]:
        return dict(self.stored)

    def save(self, files: dict[str, SavedFile]) -> None:
        self._step()
        self.stored = dict(files)

    def guard(self) -> FileGuard:
        """An agent that has just started."""
        guard = FileGuard(self, self, clock=lambda: self.now)
        guard.load()
        return guard

    def saved(self) -> list[GuardedFile]:
        """Files that were changed and are there, as they are."""
        there = [one for one in self.stored.values() if one.path in self.files]
        return [GuardedFile(one.path, one.form, self.files[one.path], guard=one.guard) for one in there]


class GuardedKernel(FakeKernel):
    """Interrupts on CPUs 0-7 of two NUMA nodes."""

    def __init__(self, lists: dict[int, str], managed: frozenset[int] = frozenset()) -> None:
        super().__init__({irq(number): text for number, text in lists.items()} | {DEFAULT: "ff"})
        self.managed = frozenset(map(irq, managed))

    def take(self, path: str, text: str) -> None:
        if path in self.managed:
            raise OSError(errno.EIO, "Input/output error")
        bits = bits_in(text, form_of(path))
        assert bits, "no mask is ever empty"
        assert not bits & ~ONLINE, "no mask names a CPU that is offline"
        self.files[path] = text_of(bits, form_of(path)).lstrip("0") if path == DEFAULT else text

    def found(self, avoid: Bits | str = 0) -> list[GuardedFile]:
        """The files, which are to leave some CPUs alone."""
        near = {irq(131): parse_bits("0-3"), irq(132): parse_bits("4-7")}
        guarded = parse_bits(avoid) if isinstance(avoid, str) else avoid
        return [
            GuardedFile(path, form_of(path), text + "\n", avoid=guarded, rest=near.get(path, 0))
            for path, text in self.files.items()
        ]

    def sets(self) -> dict[str, Bits]:
        return {path: bits_in(text, form_of(path)) for path, text in self.files.items()}


def form_of(path: str) -> Form:
    return "list" if path.endswith("_list") else "mask"
