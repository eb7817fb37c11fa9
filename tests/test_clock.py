"""The tests' own clock."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests import clock


def test_hours_pass_at_once() -> None:
    """Sleeping takes no time, and what is due earlier comes first."""
    order = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main() -> float:
        await asyncio.gather(after(7200), after(3600), after(0.5))
        return asyncio.get_running_loop().time()

    assert clock.run(main()) == pytest.approx(7200)
    assert order == [0.5, 3600, 7200]


def test_messages_overtake_timers() -> None:
    """A message that a socket has taken arrives before a deadline passes."""

    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.send(b"x")
        theirs.close()
        try:
            return await asyncio.wait_for(reader.read(), 0.001)
        finally:
            writer.close()

    assert clock.run(main()) == b"x"


def test_a_deadline_passes() -> None:
    """A call that takes longer than its deadline fails, however fast the machine is."""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(1.0), 0.999)

    clock.run(main())
