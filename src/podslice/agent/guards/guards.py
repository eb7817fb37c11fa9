"""Changing files of the kernel for exclusive CPUs (docs/guards.md).

The plan is `node.checkpoints.guard_files`; here it is carried out. Old values are stored before the first write, a file
that refuses is not asked again for an hour, and one that somebody else keeps changing is left to them. Nothing here
fails a container.
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
    """The files: as they are, and writing one."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...


class Store(Protocol):
    """Where old values are kept."""

    def load(self) -> dict[str, SavedFile]: ...
    def save(self, files: dict[str, SavedFile]) -> None: ...


class GuardNews(NamedTuple):
    """What one pass did. `refused`: the kernel takes nothing; `contested`: somebody else keeps changing it and it is
    left to them from now on; `left`: somebody else has written it."""

    written: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class FileGuard:
    """Carries plans out. `load` first; raises what the store raises."""

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
        """The files that do not say what they said at first."""
        return frozenset(self._saved)

    @property
    def saved(self) -> Mapping[str, SavedFile]:
        """What is known of them, by path."""
        return self._saved

    def is_paused(self, path: str) -> bool:
        """The kernel did not take what was written, or it is left to somebody else, for a while."""
        return self._paused.get(path, 0.0) > self._clock()

    def load(self) -> None:
        self._saved = self._stored = self._store.load()

    def run(self, found: list[GuardedFile], *, online: Bits) -> GuardNews:
        """One pass: files of which nothing is wished are given back. Raises `OSError` where old values cannot be
        stored; no file has been written then."""
        now = self._clock()
        there = {file.path for file in found}
        self._saved = {path: one for path, one in self._saved.items() if path in there}
        looked = [file for file in found if self._paused.get(file.path, now) <= now]
        plan = plan_files(looked, self._saved, online=online)
        changed = [one.path for one in looked if one.made and not self._says_ours(one)]
        contested = self._contested((*plan.drifted, *changed), now)
        if contested:
            looked = [file for file in looked if file.path not in contested]
            plan = plan_files(looked, self._saved, online=online)
        return self._carry_out(plan, {file.path: file for file in looked}, now, contested)

    def _says_ours(self, file: GuardedFile) -> bool:
        """It is new, or says what it was told last."""
        told = self._made.get(file.path)
        return told is None or not file.text or same(file.text, told, file.form)

    def _contested(self, drifted: tuple[str, ...], now: float) -> frozenset[str]:
        """Files on which we have been overruled too often lately; they are forgotten and left alone."""
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
    ) -> GuardNews:
        if plan.saved != self._stored:
            self._keep(plan.saved)
        self._saved = plan.saved
        after = dict(plan.after)
        written: list[str] = []
        restored: list[str] = []
        refused: list[str] = []
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
            if known is not None and (one.restores or not self._undone(known)):
                after[one.path] = known
        if after != self._stored:
            self._keep(after)
        self._saved = after
        return GuardNews(tuple(written), tuple(restored), tuple(refused), tuple(sorted(contested)), plan.left)

    def _keep(self, files: dict[str, SavedFile]) -> None:
        self._store.save(files)
        self._stored = files

    def _write(self, one: FileWrite, file: GuardedFile) -> bool:
        """False where the kernel has not taken it (managed interrupts: EIO), or not yet: some values need another file
        to be written first, so everything is tried twice."""
        try:
            self._files.write(one.path, one.text)
            return same(self._files.read(one.path), one.text, file.form)
        except OSError:
            return False

    def _undone(self, saved: SavedFile) -> bool:
        """A file that has not taken a wish as it was meant says what it said before."""
        try:
            if not same(self._files.read(saved.path), saved.before, saved.form):
                self._files.write(saved.path, saved.before)
            return same(self._files.read(saved.path), saved.before, saved.form)
        except OSError:
            return False
