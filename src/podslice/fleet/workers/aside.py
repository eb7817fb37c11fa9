"""Work in processes of their own beside the process that waits for it: what a worker of a Dask cluster does.

In a thread of the worker a cell would share one interpreter lock with an event loop and with a profiler that looks at
the stacks of all threads a hundred times a second: it takes a quarter longer. So the event loop itself waits, without
a thread, and each task has a process for its work. It is a plain one, because workers that a nanny started may have no
children of `multiprocessing`. Nothing is imported here that a worker would need for waiting only.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple

from podslice.fleet.workers.frames import arrived, packed

HELPER = "podslice.fleet.workers.helper"
"""The program of the processes that work."""


class FileParcel(NamedTuple):
    """Files that work needs in a folder: a digest of them, and pickled pairs of name and contents."""

    digest: str
    data: bytes


NO_FILES = FileParcel("", b"")


class Helper:
    """A process that works for one task at a time. It ends with the process that made it."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        self._files = ""
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", HELPER], stdin=theirs.fileno())
        self._sock.setblocking(False)

    async def ask(self, question: bytes, files: FileParcel, tell: Callable[[str, float], None]) -> tuple[bytes, Any]:
        """The pickled answer, or what was raised; `tell` is told how far it is. Raises `BrokenExecutor` where the
        process is gone."""
        loop = asyncio.get_running_loop()
        try:
            if files.digest and files.digest != self._files:
                await loop.sock_sendall(self._sock, packed(("files", files.data)))
                self._files = files.digest
            await loop.sock_sendall(self._sock, packed(("question", question)))
            while True:
                kind, first, second = await arrived(self._sock)
                if kind == "answer":
                    return first, second
                tell(first, second)
        except (OSError, EOFError):
            raise BrokenExecutor(f"a process of a worker ended with {self.end()}") from None

    def kill(self) -> None:
        """It ends now, whatever it does, and whoever asks is told."""
        self._process.kill()

    def end(self) -> int:
        """It ends now, and nobody asks; how it ended, if it has already."""
        self.kill()
        self._sock.close()
        return self._process.wait()


_IDLE: list[Helper] = []
"""Helpers of this process that have nothing to do."""


class Crew:
    """Helpers that work for somebody who may give up."""

    def __init__(self) -> None:
        self._busy: set[Helper] = set()
        self._ended = False

    async def ask(
        self,
        question: bytes,
        files: FileParcel = NO_FILES,
        tell: Callable[[str, float], None] = lambda key, share: None,
    ) -> bytes:
        """The pickled answer to a pickled (function, argument), worked out in another process; where there are `files`
        their folder is the argument's `folder`. Raises what the function raises, and `BrokenExecutor` where that
        process is lost."""
        if self._ended:
            raise BrokenExecutor("nobody waits for it")
        helper = _IDLE.pop() if _IDLE else Helper()
        self._busy.add(helper)
        try:
            answer, error = await helper.ask(question, files, tell)
        except BaseException:
            helper.end()
            raise
        finally:
            self._busy.discard(helper)
        _IDLE.append(helper)
        if error is not None:
            raise error
        return answer

    def end(self) -> None:
        """Nobody waits for an answer any more: what works ends, what comes is refused."""
        self._ended = True
        for helper in self._busy:
            helper.kill()
