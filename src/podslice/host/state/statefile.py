"""Write state files so that they survive a kill at any moment.

A file is replaced as a whole: write a temporary file beside it, sync it, rename it over the old one, sync the
directory. A reader finds the old content or the new, never a mixture. The four steps go through
`FileOperations`, so that a test can stop the process before and after every one of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from podslice.reading.files import read_limited
from podslice.values.errors import InputError

_LARGEST = 16 << 20
_PLATFORM_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Windows has the second instead of the first: without it every line end gets a carriage return."""


class StateReadError(InputError):
    """Raised where the disk, not the content, is at fault."""


class FileOperations(Protocol):
    """The steps of one atomic write."""

    def write(self, path: Path, data: bytes) -> None:
        """Create `path` (mode 0600) with this content and sync it to the disk."""

    def rename(self, source: Path, target: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...


class RealFiles:
    """The steps on a real disk. Without `durable` nothing waits for the disk: for files that are made again after a
    reboot."""

    def __init__(self, *, mode: int = 0o600, durable: bool = True) -> None:
        self._mode = mode
        self._durable = durable

    def write(self, path: Path, data: bytes) -> None:
        descriptor = create(path, self._mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if self._durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        # Windows opens no directory, and needs no sync of one: NTFS keeps a journal of names.
        if not self._durable or not hasattr(os, "O_DIRECTORY"):
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def create(path: Path, mode: int) -> int:
    """Create a file and return its descriptor. A file that a killed process left under this name is removed; a symbolic
    link there is not followed. Raises `OSError`."""
    # O_EXCL and O_NOFOLLOW: what appears under the name between the two calls is an error, not a target.
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLATFORM_FLAGS, mode)


@contextmanager
def open_replacement(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Open a file beside `path` that replaces it at the end, and is removed where the block fails. `mode` is that of
    the file, without the bits of the umask. It is not synced: for content that can be made again. Raises `OSError`."""
    beside = _beside(path)
    os.close(create(beside, mode))
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def write_atomically(path: Path, data: bytes, files: FileOperations | None = None, *, settled: bool = True) -> None:
    """Replace `path` by `data`, completely or not at all. Unless `settled`, the replacement may be lost when the
    machine goes down before the directory is synced. Raises `OSError`."""
    files = files or RealFiles()
    temporary = _beside(path)
    try:
        # Synced before the rename: otherwise a crash may leave the new name with an empty file.
        files.write(temporary, data)
        files.rename(temporary, path)
    except OSError:
        _discard(temporary)
        raise
    if settled:
        files.sync_directory(path.parent)


def remove_file(path: Path, files: RealFiles) -> None:
    """Remove a file so that it stays removed after a crash. Raises `OSError`."""
    if path.exists():
        files.remove(path)
        files.sync_directory(path.parent)


def remove_temporaries(folder: Path, pattern: str) -> None:
    """Remove temporary files that a killed process left beside files of this name; errors are ignored: they do no
    harm."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f".{pattern}.new"):
            path.unlink(missing_ok=True)


def read_state(path: Path) -> bytes | None:
    """Return the content of a state file; None if there is none. Raises `InputError`."""
    try:
        return read_limited(str(path), _LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateReadError(f"cannot be read: {error.strerror}", source=str(path)) from None


def back_up(path: Path) -> Path:
    """Copy a file beside itself as `.bak`, or the first free of `.bak.2`, `.bak.3` …; never overwrites. Raises
    `OSError`, `InputError`."""
    data = read_limited(str(path), _LARGEST)
    number = 1
    while True:
        backup = path.with_name(f"{path.name}.bak.{number}" if number > 1 else f"{path.name}.bak")
        # O_EXCL finds the first free name without a race with another backup.
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            number += 1
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            RealFiles().sync_directory(path.parent)
        except OSError:
            _discard(backup)
            raise
        return backup


def replace_with_backups(contents: Mapping[Path, bytes]) -> dict[Path, Path]:
    """Replace or create files, in that order, and return the backups of those that were there. Raises `InputError`;
    everything is then as before, without backups or temporary files, as far as the disk allows."""
    files, backups, renamed = RealFiles(), dict[Path, Path](), list[Path]()
    try:
        # The new files are whole before the first backup is made: a full disk is noticed while nothing has changed.
        for path, data in contents.items():
            files.write(_beside(path), data)
        for path in contents:
            if path.exists():
                backups[path] = back_up(path)
        for path in contents:
            files.rename(_beside(path), path)
            renamed.append(path)
        for path in contents:
            files.sync_directory(path.parent)
    except (OSError, InputError) as error:
        for written in contents:
            _discard(_beside(written))
        for new in renamed:
            _put_back(backups.pop(new), new) if new in backups else _discard(new)
        for backup in backups.values():
            _discard(backup)
        if isinstance(error, OSError):
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
        raise
    return backups


def replace_files(contents: Mapping[Path, bytes], kept: Mapping[Path, Path], files: RealFiles | None = None) -> None:
    """Replace several files by `contents`, in that order, and keep old ones under another name: `kept` maps a path to
    the name of its copy. Files of `kept` that get no new content are removed. Raises `OSError`; everything is then as
    before, as far as the disk allows.

    All contents and copies are written beside before the first file changes, so that a full disk changes nothing.
    """
    files = files or RealFiles()
    copies = {copy: path.read_bytes() for path, copy in kept.items()}
    before = {path: read_state(path) for path in (*contents, *kept, *copies)}
    # A file of its own is replaced by one rename. Several belong together, and a kill between their renames must not
    # leave a new one beside an old one: those that have a copy are removed before.
    removed = [path for path in kept if path not in contents or len(contents) > 1]
    try:
        for path, data in {**copies, **contents}.items():
            files.write(_beside(path), data)
        for path in copies:
            files.rename(_beside(path), path)
        for path in removed:
            files.remove(path)
        for path in contents:
            files.rename(_beside(path), path)
    except OSError:
        for path in (*contents, *copies):
            _discard(_beside(path))
        for path, copy in kept.items():
            if not path.exists():
                _put_back(copy, path)
        missing = {copy for path, copy in kept.items() if not path.exists()}
        for path, old in before.items():
            # A copy whose original could not be put back is the only one there is.
            if path not in missing:
                _restore(path, old)
        raise
    for folder in {path.parent for path in before}:
        files.sync_directory(folder)


def _put_back(copy: Path, path: Path) -> None:
    """Rename a copy to the file that it is of: that takes no space on a full disk."""
    with contextlib.suppress(OSError):
        copy.replace(path)


def _restore(path: Path, old: bytes | None) -> None:
    if old is None:
        _discard(path)
        return
    with contextlib.suppress(OSError):
        if not path.exists() or path.read_bytes() != old:
            write_atomically(path, old)


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
