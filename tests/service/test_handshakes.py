"""A client that connects over TLS and says nothing is gone soon, although no table of connections counts it yet."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from e2e.certificates import make

from podslice.service.http import connections
from podslice.service.http.get_server import WebServer
from podslice.service.http.post_server import PostServer

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (apt-get install openssl)"),
]


@pytest.mark.parametrize("kind", ["get", "post"])
def test_silent_clients_are_hung_up_on(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes a connection whose handshake does not come."""
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.1)
    made = make(tmp_path)

    async def main() -> None:
        post = PostServer({}, largest=10, failed=lambda path, error: None)
        server = WebServer({}) if kind == "get" else post
        port = await server.start("127.0.0.1", 0, made.server())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        await server.close()

    asyncio.run(main())
