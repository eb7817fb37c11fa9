"""Changing files of the kernel for exclusive CPUs (docs/isolation.md).

`node.checkpoints.guard_files` makes the plan; this carries it out. Old values are stored before the first write. A file
that refuses a value is not written again for an hour, and one that another program keeps changing is left to it.
Nothing here fails a container.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from podslice.node.checkpoints.guard_files import (
    FilePlan,
    FileWrite,
    GuardedFile,
    SavedFile,
    plan_files,
    same,
)
from podslice.values.cpuset import Bits

_PAUSE_SECONDS = 3600.0
_CONTEST_SECONDS = 600.0
_MOST_DRIFTS = 3


class Files(Protocol):
    """The kernel's files."""

    def read(self, path: str) -> str:
        """Return a file's text. Raises `OSError`."""

    def write(self, path: str, text: str) -> None:
        """Write a file. Raises `OSError`."""


class Store(Protocol):
    """Persistent store of the old values."""

    def load(self) -> dict[str, SavedFile]:
        """Return the old values by path. Raises `OSError`, `ValueError`."""

    def save(self, files: dict[str, SavedFile]) -> None:
        """Replace the old values. Raises `OSError`."""


class GuardResult(NamedTuple):
    """The result of a pass, by the paths of files.

    `refused`: the kernel does not take the value. `contested`: another program keeps changing the file, which is left
    to it from now on. `left`: another program has written the file since, so it is not restored.
    """

    written: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class FileGuard:
    """Writes files of the kernel, and remembers their old values. Call `load` first, which raises the store's
    errors."""

    def __init__(self, files: Files, store: Store, *, clock: Callable[[], float]) -> None:
        self._files = files
        self._store = store
        self._clock = clock
        self._saved: dict[str, SavedFile] = {}
        self._stored: dict[str, SavedFile] = {}
        self._paused: dict[str, float] = {}
        self._drifts: dict[str, deque[float]] = {}
        self._made: dict[str, str] = {}

    @property
    def changed(self) -> frozenset[str]:
        """The files that do not have their old values."""
        return frozenset(self._saved)

    @property
    def saved(self) -> Mapping[str, SavedFile]:
        """Old and written values of the changed files, by path."""
        return self._saved

    def is_paused(self, path: str) -> bool:
        """Whether this file is suspended: the kernel rejected the last write, or another program owns the file."""
        return self._paused.get(path, 0.0) > self._clock()

    def load(self) -> None:
        """Read the old values from the store."""
        self._saved = self._stored = self._store.load()

    def run(self, found: list[GuardedFile], *, online: Bits) -> GuardResult:
        """Write the wanted values of the files that were found, and restore those that have none.

        Raises `OSError` where old values cannot be stored; then no file has been written.
        """
        now = self._clock()
        # A file that is gone (a CPU offline, a container ended) took its old value with it.
        there = {file.path for file in found}
        self._saved = {path: one for path, one in self._saved.items() if path in there}
        looked = [file for file in found if self._paused.get(file.path, now) <= now]
        plan = plan_files(looked, self._saved, online=online)
        changed = [one.path for one in looked if one.made and not self._is_ours(one)]
        contested = self._find_contested((*plan.drifted, *changed), now)
        if contested:
            looked = [file for file in looked if file.path not in contested]
            plan = plan_files(looked, self._saved, online=online)
        return self._carry_out(plan, {file.path: file for file in looked}, now, contested)

    def _is_ours(self, file: GuardedFile) -> bool:
        """Whether a file that we made is new, or has the value that was written last."""
        last = self._made.get(file.path)
        return last is None or not file.text or same(file.text, last, file.form)

    def _find_contested(self, drifted: tuple[str, ...], now: float) -> frozenset[str]:
        """Return the files that another program has changed back too often in ten minutes; they are left to it."""
        lost = set()
        for path in drifted:
            times = self._drifts.setdefault(path, deque(maxlen=_MOST_DRIFTS + 1))
            times.append(now)
            if len(times) > _MOST_DRIFTS and now - times[0] <= _CONTEST_SECONDS:
                lost.add(path)
                self._paused[path] = now + _PAUSE_SECONDS
                self._drifts.pop(path)
        self._saved = {path: one for path, one in self._saved.items() if path not in lost}
        return frozenset(lost)

    def _carry_out(
        self, plan: FilePlan, files: dict[str, GuardedFile], now: float, contested: frozenset[str]
    ) -> GuardResult:
        # Old values are on the disk before the first write, so that a killed agent's changes can be undone.
        if plan.saved != self._stored:
            self._store_values(plan.saved)
        self._saved = plan.saved
        after = dict(plan.after)
        written: list[str] = []
        restored: list[str] = []
        refused: list[str] = []
        # Some values are only taken once another file is written, so all that failed are tried a second time.
        again = [one for one in plan.writes if not self._write(one, files[one.path])]
        refusing = {one.path for one in again if not self._write(one, files[one.path])}
        for one in plan.writes:
            if one.path not in refusing:
                (restored if one.restores else written).append(one.path)
                if files[one.path].made:
                    self._made[one.path] = one.text
                continue
            refused.append(one.path)
            self._paused[one.path] = now + _PAUSE_SECONDS
            after.pop(one.path, None)
            known = plan.saved.get(one.path)
            # A refused value may have been taken in part, so the old one is written back, and remembered if that fails.
            if known is not None and (one.restores or not self._undo(known)):
                after[one.path] = known
        if after != self._stored:
            self._store_values(after)
        self._saved = after
        return GuardResult(tuple(written), tuple(restored), tuple(refused), tuple(sorted(contested)), plan.left)

    def _store_values(self, files: dict[str, SavedFile]) -> None:
        self._store.save(files)
        self._stored = files

    def _write(self, one: FileWrite, file: GuardedFile) -> bool:
        """Write a file. Return False where the kernel has not taken the value (managed interrupts: EIO)."""
        try:
            self._files.write(one.path, one.text)
            return same(self._files.read(one.path), one.text, file.form)
        except OSError:
            return False

    def _undo(self, saved: SavedFile) -> bool:
        """Write back the old value of a file that took another value than was written. Return whether it has it
        again."""
        try:
            if not same(self._files.read(saved.path), saved.before, saved.form):
                self._files.write(saved.path, saved.before)
            return same(self._files.read(saved.path), saved.before, saved.form)
        except OSError:
            return False
