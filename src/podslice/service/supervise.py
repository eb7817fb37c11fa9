"""Endless loops of a program: one that dies is started again, and the health checks report it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from podslice.service.pacing import BackOff

_STEADY_SECONDS = 60.0
"""A loop that has run for so long since its last failure counts as well again."""


def _default_back_off() -> BackOff:
    return BackOff(0.5, 30.0)


class Supervisor:
    """Runs named loops, and starts those that end again. `died` gets the name and the reason of each."""

    def __init__(
        self,
        died: Callable[[str, str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        back_off: Callable[[], BackOff] = _default_back_off,
    ) -> None:
        self._died = died
        self._clock = clock
        self._sleep = sleep
        self._back_off = back_off
        self._trouble: dict[str, tuple[float, str]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run `loop` for ever, in a task of its own."""
        self._tasks.append(asyncio.ensure_future(self._run(name, loop)))

    async def _run(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        back_off = self._back_off()
        while True:
            started = self._clock()
            try:
                await loop()
                why = "it ended"  # a loop never returns on its own, so this is a failure too
            except Exception as error:
                why = f"{type(error).__name__}: {str(error)[:300]}"
            if self._clock() - started >= _STEADY_SECONDS:
                back_off.reset()
            self._trouble[name] = self._clock(), why
            self._died(name, why)
            await self._sleep(back_off.next())

    def problem(self) -> str:
        """Return which loops died in the last minute, and why; empty while all run steadily."""
        recent = [
            f"{name} was started again: {why}"
            for name, (when, why) in self._trouble.items()
            if self._clock() - when < _STEADY_SECONDS
        ]
        return "; ".join(recent)

    async def stop(self) -> None:
        """Cancel all loops and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
