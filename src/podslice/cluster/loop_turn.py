"""Long work on an event loop, in turns: others wait for no more than a millisecond and one step of it."""

from __future__ import annotations

import asyncio
import time

TURN_SECONDS = 0.001


class LoopTurn:
    """`await turn.shared()` after every step lets others have their turn when this one is over."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    async def give_way(self) -> None:
        if time.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + TURN_SECONDS
