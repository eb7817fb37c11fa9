"""Floods of connections: how many descriptors of a server they take before it hangs up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

import pytest

from podslice.service.http import get_server, post_server
from podslice.service.http.connections import RESERVED_DESCRIPTORS
from podslice.service.http.get_server import WebServer
from podslice.service.http.post_server import PostServer

_FLOOD = """
import socket, sys
while True:
    clients = [socket.socket() for _ in range(200)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", int(sys.argv[1])))
    for client in clients:
        client.close()
"""


class Server(Protocol):
    async def start(self, host: str, port: int) -> int: ...

    async def close(self) -> None: ...


def _posts() -> PostServer:
    return PostServer({}, largest=100, failed=lambda path, error: None)


@pytest.mark.process
@pytest.mark.parametrize("make", [pytest.param(lambda: WebServer({}), id="agent"), pytest.param(_posts, id="extender")])
def test_a_flood_leaves_descriptors_for_hooks(make: Callable[[], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """While every descriptor that comes is one of the reserved ones, the connections that are open at once are few."""
    opened = []

    def is_reserved(descriptor: int) -> bool:
        opened.append(len(os.listdir("/proc/self/fd")))
        return True

    monkeypatch.setattr(get_server, "is_reserved", is_reserved)
    monkeypatch.setattr(post_server, "is_reserved", is_reserved)

    async def flood() -> int:
        server = make()
        port = await server.start("127.0.0.1", 0)
        before = len(os.listdir("/proc/self/fd"))
        client = subprocess.Popen([sys.executable, "-c", _FLOOD, str(port)])
        try:
            end = time.monotonic() + 20
            while len(opened) < 500 and time.monotonic() < end:
                await asyncio.sleep(0.01)
        finally:
            client.kill()
            client.wait()
            await server.close()
        return max(opened) - before

    assert asyncio.run(flood()) <= RESERVED_DESCRIPTORS - 4
    assert len(opened) >= 500
