"""How far cells are while they run: workers tell it through a pipe, now and then, and nothing depends on it.

A worker never waits for who listens: where the pipe is full, or nobody listens any more, what it would say is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Protocol, runtime_checkable

EVERY = 0.5
"""Seconds between two words about a cell, within one machine."""
_AT_ONCE = 1 << 16
Tell = Callable[[str, float], None]
"""Is told the key of a cell and its share, from 0 to 1."""


class ShareListener(Protocol):
    """Who wants to know how far a run is."""

    def note(self, text: str) -> None:
        """Something to know about it, in a line."""

    def share(self, key: str, share: float) -> None:
        """So much of a cell is done."""

    def idle(self) -> None:
        """Time passes."""


class ShareSource(Protocol):
    """Where it is heard."""

    def heard(self) -> Iterable[tuple[str, float]]:
        """Keys of cells and their shares, as they were told since."""


@runtime_checkable
class TellsShares(Protocol):
    """An executor whose workers tell how far they are."""

    shares: ShareSource

    def look(self) -> str:
        """What is to be known about the workers, in a line; empty for nothing new."""


class SharePipe:
    """The end of the pipe that listens, and the one that is handed to workers."""

    def __init__(self) -> None:
        self._reader, self.writer = Pipe(duplex=False)
        os.set_blocking(self._reader.fileno(), False)
        os.set_blocking(self.writer.fileno(), False)
        self._rest = b""

    def heard(self) -> Iterator[tuple[str, float]]:
        """What was told since."""
        while True:
            try:
                data = os.read(self._reader.fileno(), _AT_ONCE)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                share, _, key = line.decode().partition(" ")
                yield key, float(share)

    def close(self) -> None:
        """Nobody listens any more."""
        self._reader.close()
        self.writer.close()


class _Way:
    """How this process tells others how far its cells are."""

    def __init__(self) -> None:
        self.tell: Tell = lambda key, share: None
        self.every = EVERY


_WAY = _Way()


def tell_with(tell: Tell, *, every: float = EVERY) -> None:
    """From now on this process tells it so, each cell after so many seconds."""
    _WAY.tell, _WAY.every = tell, every


def tell_through(writer: Connection) -> None:
    """From now on this process tells it there."""

    def tell(key: str, share: float) -> None:
        with suppress(OSError):
            os.write(writer.fileno(), f"{share:.4f} {key}\n".encode())

    tell_with(tell)


class ShareTeller:
    """Tells how far one cell is: at once, then now and then. Without `tell` as this process tells it."""

    def __init__(self, key: str, tell: Tell | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = key
        self._tell = tell or _WAY.tell
        self._clock = clock
        self._next = float("-inf")

    def __call__(self, share: float) -> None:
        """It is so far."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _WAY.every
            self._tell(self._key, share)
