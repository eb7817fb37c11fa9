"""What only one living agent may have: its state directory and its sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from podslice.values.errors import InputError

_LOCK = "agent.lock"


class DirectoryLock:
    """Holds a state directory for the life of the process; the kernel lets go of it, however the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises `InputError` with the process that has it, `OSError` where the directory cannot be used."""
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
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            (self._directory / _LOCK).write_text(f"{os.getpid()}\n")

    def release(self) -> None:
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
    """The file of a listening Unix socket: put in place of a dead one's only, and removed only while it is ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ours: tuple[int, int, int] | None = None

    def clear(self) -> None:
        """Remove what a dead agent left. Raises `OSError` where a living process listens."""
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
        """It is there now, and ours."""
        self._ours = self._identity()

    def remove(self) -> None:
        """Take it away, unless somebody has put another there."""
        with contextlib.suppress(OSError):
            if self._identity() == self._ours:
                self.path.unlink()

    def _identity(self) -> tuple[int, int, int]:
        """Numbers of files are used again, but not in the same moment."""
        found = self.path.stat()
        return found.st_dev, found.st_ino, found.st_mtime_ns
