"""Back-off, a rate limit, a wait with a limit, and long work in slices of an event loop's time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

_PER_SECOND, _BURST = 100.0, 10.0


class BackOff:
    """Waiting times that double from `first` to `longest` seconds, with a quarter of jitter."""

    def __init__(self, first: float = 0.1, longest: float = 5.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        """Begin again with the first waiting time."""
        self._next = self._first

    def next(self) -> float:
        """Return the seconds to wait now, and double them for the next call."""
        now, self._next = self._next, min(self._next * 2, self._longest)
        # Without jitter the agents of all nodes would come back to a restarted API server in the same moments.
        return now * random.uniform(0.75, 1.25)


class RateLimit:
    """A token bucket of `per_second` calls a second, of which up to `burst` may come at once."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, per_second: float = _PER_SECOND, burst: float = _BURST
    ) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._tokens = burst
        self._last = clock()

    def take(self) -> bool:
        """Take a token; return False where none is left."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._per_second)
        self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, for at most `seconds`. Returns the same way in both cases."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


TURN_SECONDS = 0.001


class LoopTurn:
    """A slice of a millisecond of long work; `await turn.give_way()` after every step, so that other work waits for one
    slice and one step at most."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    async def give_way(self) -> None:
        """Let other work run where the slice is over, and begin another."""
        if time.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + TURN_SECONDS


LOG_SECONDS, MOST_LINES = 60.0, 20
"""Most lines of one node or place in the log, in so many seconds."""


class LineLimit:
    """A limit on the log lines of one node, or of one place; lines beyond it are counted."""

    __slots__ = ("_began", "_left_out", "_lines")

    def __init__(self) -> None:
        self._began = float("-inf")
        self._lines = self._left_out = 0

    def add(self, now: float) -> int | None:
        """Return how many lines were left out before this one; None for a line to leave out itself."""
        if now - self._began >= LOG_SECONDS:
            self._began, self._lines = now, 0
        if self._lines == MOST_LINES:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
