"""A kernel's interrupt files in memory; managed interrupts refuse, and the agent can be killed before any write."""

from __future__ import annotations

import errno

from podslice.agent.guards import IrqGuard
from podslice.core.guards.masks import Form, MaskFile, SavedFile, bits_in, text_of
from podslice.core.values.cpuset import Bits, parse_bits

DEFAULT = "proc/irq/default_smp_affinity"
ONLINE = parse_bits("0-7")


class KilledError(BaseException):
    """The agent is gone."""


def irq(number: int) -> str:
    return f"proc/irq/{number}/smp_affinity_list"


class GuardedKernel:
    """CPUs 0-7 on two NUMA nodes. `store` survives a kill; `kill_at` counts down stores and writes."""

    def __init__(self, lists: dict[int, str], managed: frozenset[int] = frozenset()) -> None:
        self.files = {irq(number): text for number, text in lists.items()} | {DEFAULT: "ff"}
        self.managed = frozenset(map(irq, managed))
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
        return self.files[path] + "\n"

    def write(self, path: str, text: str) -> None:
        self._step()
        self.writes.append((path, text))
        assert path in self.stored, "an old value is stored before its file is written"
        if path in self.managed:
            raise OSError(errno.EIO, "Input/output error")
        bits = bits_in(text, form_of(path))
        assert bits, "no mask is ever empty"
        assert not bits & ~ONLINE, "no mask names a CPU that is offline"
        self.files[path] = text_of(bits, form_of(path)).lstrip("0") if path == DEFAULT else text

    def load(self) -> dict[str, SavedFile]:
        return dict(self.stored)

    def save(self, files: dict[str, SavedFile]) -> None:
        self._step()
        self.stored = dict(files)

    def found(self) -> list[MaskFile]:
        near = {irq(131): parse_bits("0-3"), irq(132): parse_bits("4-7")}
        return [MaskFile(path, form_of(path), text + "\n", near.get(path, 0)) for path, text in self.files.items()]

    def guard(self) -> IrqGuard:
        """An agent that has just started."""
        guard = IrqGuard(self, self, clock=lambda: self.now)
        guard.load()
        return guard

    def sets(self) -> dict[str, Bits]:
        return {path: bits_in(text, form_of(path)) for path, text in self.files.items()}


def form_of(path: str) -> Form:
    return "list" if path.endswith("_list") else "mask"
