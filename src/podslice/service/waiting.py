"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio
import contextlib


async def or_after(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but no longer than that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
