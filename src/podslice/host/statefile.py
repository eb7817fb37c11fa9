"""State files on disk: the only place that reads and writes them.

A decision that is not on disk was not made, so a write either happens whole or not at all: a temporary file beside the
target, written and synced, renamed over it, and the directory synced. The steps go through `Disk`, so that tests can
stop at each of them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from podslice.core.errors import InputError

MODE = 0o600
MAX_SIZE = 64 << 20


class Disk(Protocol):
    """The system calls an atomic write consists of."""

    def write(self, path: Path, data: bytes) -> None:
        """Create `path` with mode 0600, or empty it, write `data` and sync the file."""

    def rename(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target` in one step."""

    def sync_directory(self, path: Path) -> None:
        """Make renames in a directory last."""

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""


class LocalDisk:
    """The disk of this machine."""

    def write(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fchmod(descriptor, MODE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


LOCAL = LocalDisk()


def read_state_file(path: Path) -> bytes:
    """The bytes of a state file. Raises `InputError`."""
    try:
        if path.stat().st_size > MAX_SIZE:
            raise InputError(f"is larger than {MAX_SIZE >> 20} MiB and no state file", source=str(path))
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def load_state_file(path: Path) -> bytes | None:
    """The bytes of a state file, None where there is none. Raises `InputError`."""
    return read_state_file(path) if path.exists() else None


def write_state_file(path: Path, data: bytes, disk: Disk = LOCAL) -> None:
    """Put `data` in the place of `path`, whole or not at all; a missing directory is made. Raises `OSError`, and then
    the old file is still there unless only the last sync failed."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        disk.write(temporary, data)
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        raise
    disk.sync_directory(path.parent)


def back_up(path: Path) -> Path:
    """Copy a file beside itself as `.bak`, or the first free of `.bak.1`, `.bak.2` …; never overwrites. Raises
    `OSError`."""
    data = path.read_bytes()
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.bak.{number}" if number else f"{path.name}.bak")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        LOCAL.sync_directory(path.parent)
        return backup
