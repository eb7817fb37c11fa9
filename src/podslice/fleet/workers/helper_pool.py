"""Helper processes that work for a process that waits: how a worker of a Dask cluster simulates cells.

In a thread of the worker a cell would share the interpreter lock with an event loop and with a profiler that samples
the stacks of all threads a hundred times a second: it takes a quarter longer. So the event loop itself waits, without a
thread, and each task has a process for its work. It is a plain process, because workers started by a nanny may not have
children of `multiprocessing`. Nothing is imported here that a waiting worker does not need.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple

from podslice.fleet.workers.frames import pack, receive_async

HELPER = "podslice.fleet.workers.helper"
"""The program of the helper processes."""


class FileParcel(NamedTuple):
    """Files that work needs in a folder: their digest, and pickled pairs of name and contents."""

    digest: str
    data: bytes


NO_FILES = FileParcel("", b"")


class HelperProcess:
    """A process that works on one task at a time. It ends with the process that started it."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        self._files = ""
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", HELPER], stdin=theirs.fileno())
        self._sock.setblocking(False)

    async def ask(
        self, question: bytes, files: FileParcel, report: Callable[[str, float], None] | None
    ) -> tuple[bytes, Any]:
        """Return the pickled answer, or the exception that was raised; `report` gets the progress. Raises
        `BrokenExecutor` where the process is gone."""
        loop = asyncio.get_running_loop()
        try:
            # The helper keeps the files of its last task; most tasks are of one scenario.
            if files.digest and files.digest != self._files:
                await loop.sock_sendall(self._sock, pack(("files", files.data)))
                self._files = files.digest
            await loop.sock_sendall(self._sock, pack(("question", question)))
            while True:
                kind, first, second = await receive_async(self._sock)
                if kind == "answer":
                    return first, second
                if report is not None:
                    report(first, second)
        except (OSError, EOFError):
            raise BrokenExecutor(f"a process of a worker ended with {self.stop()}") from None

    def kill(self) -> None:
        """Kill the process in the middle of its work; a waiting `ask` raises `BrokenExecutor`."""
        self._process.kill()

    def stop(self) -> int:
        """Kill the process and return its exit code, or the one with which it ended before."""
        self.kill()
        self._sock.close()
        return self._process.wait()


_IDLE: list[HelperProcess] = []
"""Helper processes of this process without work."""


class HelperPool:
    """Helper processes at work for one run, which may be cancelled."""

    def __init__(self) -> None:
        self._busy: set[HelperProcess] = set()
        self._ended = False

    async def ask(
        self,
        question: bytes,
        files: FileParcel = NO_FILES,
        report: Callable[[str, float], None] | None = None,
    ) -> bytes:
        """Return the pickled result of a pickled (function, argument), computed in a helper process.

        With `files` their folder replaces the argument's field `folder`. Raises what the function raises, and
        `BrokenExecutor` where the process is lost.
        """
        if self._ended:
            raise BrokenExecutor("the run was cancelled")
        helper = _IDLE.pop() if _IDLE else HelperProcess()
        self._busy.add(helper)
        try:
            answer, error = await helper.ask(question, files, report)
        except BaseException:
            # An exception here also is a cancelled task: its process may still compute, so it cannot be used again.
            helper.stop()
            raise
        finally:
            self._busy.discard(helper)
        _IDLE.append(helper)
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """Kill the processes at work, and refuse further work."""
        self._ended = True
        for helper in self._busy:
            helper.kill()
