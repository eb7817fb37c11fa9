"""`/metrics`, `/healthz` and `/readyz` over HTTP: GET only, small requests, short waits, no dependencies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from podslice.agent.health import Health

_LONGEST_REQUEST = 8 << 10
_PATIENCE = 5.0
_PLAIN = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class WebServer:
    """Serves the text of `metrics`; `/healthz` and `/readyz` say what `healthy` and `ready` find, with code 503 where
    that is bad."""

    def __init__(
        self, metrics: Callable[[], bytes], healthy: Callable[[], Health], ready: Callable[[], Health]
    ) -> None:
        self._metrics = metrics
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which port 0 leaves to the system. Raises `OSError`."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LONGEST_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            code, kind, body = self._answer(head)
            writer.write(_response(code, kind, body))
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> tuple[int, str, bytes]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, _PLAIN, b"bad request\n"
        if words[0] != "GET":
            return 405, _PLAIN, b"only GET\n"
        path = words[1].partition("?")[0]
        if path == "/metrics":
            return 200, _METRICS, self._metrics()
        if path in self._checks:
            found = self._checks[path]()
            return 200 if found.good else 503, _PLAIN, found.text.encode("utf-8", "replace")
        return 404, _PLAIN, b"try /metrics, /healthz or /readyz\n"


def _response(code: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {code} {_PHRASES[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
