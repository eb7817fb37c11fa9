"""systemd's readiness and watchdog protocol (sd_notify)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping


def notify(message: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell the service manager, if one listens; `READY=1`, `WATCHDOG=1`, `STATUS=…`, `STOPPING=1`."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.sendto(message.encode(), address if address[0] == "/" else "\0" + address[1:])


def watchdog_interval(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the seconds between two watchdog messages, half of what systemd allows; None without watchdog."""
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdecimal() and int(text) > 0 else None


async def feed_watchdog() -> None:
    """Send the service manager signs of life for as long as the event loop runs."""
    interval = watchdog_interval()
    while True:
        if interval is not None:
            notify("WATCHDOG=1")
        await asyncio.sleep(interval or 1.0)
