"""Long work on the event loop in short pieces, so that the scheduler's calls are answered in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

# A scheduler waits for its extender at every pod; this bounds what a page adds to that, unless a step takes longer.
SLICE_SECONDS = 0.005


async def _let_others() -> None:
    await asyncio.sleep(0)


class Slices:
    """A piece of long work; `turn` is called after each small step. `longest` is the longest slice so far, in
    seconds."""

    def __init__(
        self,
        seconds: float = SLICE_SECONDS,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[], Awaitable[None]] = _let_others,
    ) -> None:
        self._seconds, self._clock, self._pause = seconds, clock, pause
        self._began = clock()
        self.longest = 0.0

    async def turn(self) -> None:
        """End a step; let other work run where the slice is over."""
        took = self._clock() - self._began
        # A step is never cut, so the longest slice may be longer than `seconds`.
        self.longest = max(self.longest, took)
        if took >= self._seconds:
            await self._pause()
            # The next slice begins after the pause, so that time which others took is not counted.
            self._began = self._clock()
