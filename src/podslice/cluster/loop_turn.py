"""Long work on an event loop in slices of a millisecond, so that other work waits for one slice and one step at
most."""

from __future__ import annotations

import asyncio
import time

TURN_SECONDS = 0.001


class LoopTurn:
    """A slice of long work; `await turn.give_way()` after every step."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    async def give_way(self) -> None:
        """Let other work run where the slice is over, and begin another."""
        if time.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + TURN_SECONDS
