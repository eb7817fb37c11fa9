"""Recovery from safe mode, where only the disk was the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from podslice.agent.admitting import Admitting
from podslice.service.pacing import BackOff

LONGEST = 60.0


async def heal(
    admitting: Admitting,
    reconnect: Callable[[], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    back_off: BackOff | None = None,
) -> None:
    """Try the disk again and again, less and less often. Once it works, reconnect: the runtime then lists what runs,
    which opens the state."""
    back_off = back_off or BackOff(1.0, LONGEST)
    while True:
        await sleep(back_off.next())
        if not admitting.may_heal:
            back_off.reset()
        elif admitting.disk_works():
            # The state can be opened only against the runtime's list, which comes with a new connection.
            reconnect()
