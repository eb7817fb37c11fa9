"""Time in tests: a clock that jumps to whatever is due next, and waiting for what others do in their own time.

Tests of what happens after a while, or when something takes too long, run on `VirtualTime`: nobody waits, and a busy
machine changes nothing. Where threads, processes or sockets of the kernel are involved, tests run in real time and wait
with `until`, which only a failure makes long.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which something that should have happened has not."""


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock stands while there is something to do, and jumps to the next timer otherwise."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        """So much time passes."""
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop.jump(timeout)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time; for what happens in this thread alone."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(main)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that others do."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
