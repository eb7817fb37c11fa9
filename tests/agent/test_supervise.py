"""Loops that die are started again, and the agent says so."""

from __future__ import annotations

import asyncio

from podslice.service.pacing import BackOff
from podslice.service.supervise import Supervisor
from tests.clock import PATIENCE


class Time:
    """A clock that the sleeps move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def test_a_loop_that_dies_is_started_again() -> None:
    """With growing pauses; each death is told, health says it until the loop has run steadily for a minute."""

    async def main() -> None:
        time, told, runs = Time(), [], 0
        ready = asyncio.Event()

        async def loop() -> None:
            nonlocal runs
            runs += 1
            if runs < 4:
                raise ValueError("no good")
            if runs == 4:
                return
            ready.set()
            await asyncio.Event().wait()

        supervisor = Supervisor(
            lambda name, why: told.append((name, why)),
            clock=lambda: time.now,
            sleep=time.sleep,
            back_off=lambda: BackOff(1.0, 30.0),
        )
        assert supervisor.problem() == ""
        supervisor.start("events", loop)
        await asyncio.wait_for(ready.wait(), PATIENCE)
        assert told == [("events", "ValueError: no good")] * 3 + [("events", "it ended")]
        assert all(later > 1.2 * before for before, later in zip(time.slept, time.slept[1:], strict=False))
        assert supervisor.problem() == "events was started again: it ended"
        time.now += 61
        assert supervisor.problem() == ""
        await supervisor.stop()

    asyncio.run(main())


def test_one_loop_does_not_stop_another() -> None:
    """While one dies again and again, the others go on."""

    async def main() -> None:
        time, turns = Time(), 0

        async def bad() -> None:
            raise KeyError("x")

        async def good() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        supervisor = Supervisor(lambda name, why: None, clock=lambda: time.now, sleep=time.sleep)
        supervisor.start("bad", bad)
        supervisor.start("good", good)
        while turns < 100:
            await asyncio.sleep(0)
        assert "bad was started again: KeyError: 'x'" in supervisor.problem()
        assert "good" not in supervisor.problem()
        await supervisor.stop()

    asyncio.run(main())
