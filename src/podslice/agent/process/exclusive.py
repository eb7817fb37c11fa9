"""Locks for resources that only one running agent may use: its state directory and its sockets."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from podslice.values.errors import InputError

_LOCK = "agent.lock"


class DirectoryLock:
    """Locks a state directory. The kernel releases the lock however the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises `InputError` that names the process holding it, `OSError` where the directory is
        unusable."""
        import fcntl  # Linux has it; the help of `podslice agent` is there for everybody

        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"{self._directory} is used by another agent, process {self._holder()}",
                path="stateDirectory",
                remedy="stop that one, or choose another directory",
            ) from None
        # The lock is on the directory; the file only names the process for the message of the next one.
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            (self._directory / _LOCK).write_text(f"{os.getpid()}\n")

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _holder(self) -> str:
        try:
            with (self._directory / _LOCK).open() as file:
                return file.read(32).strip() or "unknown"
        except (OSError, UnicodeDecodeError):
            return "unknown"


class SocketFile:
    """The file of a listening Unix socket. It replaces only that of a dead process, and is removed only while it is
    ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ours: tuple[int, int, int] | None = None

    def clear(self) -> None:
        """Remove the file of a dead process. Raises `OSError` where a living one listens."""
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not self.path.is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1.0)
            try:
                client.connect(str(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                self.path.unlink(missing_ok=True)
                return
        raise OSError(f"another process listens on {self.path}")

    def bound(self) -> None:
        """Remember the file that was just bound as ours."""
        self._ours = self._identity()

    def remove(self) -> None:
        """Remove the file, unless another process has replaced it."""
        with contextlib.suppress(OSError):
            if self._identity() == self._ours:
                self.path.unlink()

    def _identity(self) -> tuple[int, int, int]:
        """Return device, inode and time of the file: inode numbers are reused, but not at the same nanosecond."""
        found = self.path.stat()
        return found.st_dev, found.st_ino, found.st_mtime_ns
