"""The HTTP server of the agent: GET only, small requests, short waits, no dependencies.

One listener serves `/metrics`, `/healthz` and `/readyz`; another one serves what only this machine or clients with the
token may read (`agent.status.statusport`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from podslice.service.health import Health
from podslice.service.http import connections
from podslice.service.http.connections import ConnectionTable, is_reserved

_LONGEST_REQUEST = 8 << 10
_PATIENCE = 5.0
_MOST_CONNECTIONS, _MOST_OF_PEER = 64, 16
# asyncio accepts up to `backlog` connections in one turn of its loop, and three turns pass before `_serve` can hang up
# on the first of them: a flood takes 24 of the RESERVED_DESCRIPTORS, where the default of 100 would take all. Fewer
# would be too few for honest bursts: a client that finds the queue full tries again only after a second.
_BACKLOG = 8
_PLAIN = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_PHRASES = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


class HTTPAnswer(NamedTuple):
    """Status code, content type and body."""

    code: int
    kind: str
    body: bytes


Route = Callable[[], Awaitable[HTTPAnswer]]
Refusal = Callable[[Mapping[str, str]], HTTPAnswer | None]
"""From a request's headers, by lower-case name, to the answer where it is not permitted, None where it is."""


def plain(code: int, text: str) -> HTTPAnswer:
    """Return an answer of plain text."""
    return HTTPAnswer(code, _PLAIN, text.encode("utf-8", "replace"))


def metrics_routes(
    metrics: Callable[[], bytes], healthy: Callable[[], Health], ready: Callable[[], Health]
) -> dict[str, Route]:
    """Return the routes of `/metrics`, `/healthz` and `/readyz`. The two checks answer 503 where `healthy` or `ready`
    is not good."""

    async def text() -> HTTPAnswer:
        return HTTPAnswer(200, _METRICS, metrics())

    def check(look: Callable[[], Health]) -> Route:
        async def answer() -> HTTPAnswer:
            found = look()
            return plain(200 if found.good else 503, found.text)

        return answer

    return {"/metrics": text, "/healthz": check(healthy), "/readyz": check(ready)}


class WebServer:
    """Serves `routes` by path; `refusal` may refuse a request by its headers."""

    def __init__(self, routes: Mapping[str, Route], *, refusal: Refusal | None = None) -> None:
        self._routes = routes
        self._refusal = refusal
        self._server: asyncio.Server | None = None
        self._table: ConnectionTable[asyncio.StreamWriter] = ConnectionTable(_MOST_CONNECTIONS, _MOST_OF_PEER)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port, which port 0 leaves to the system. Raises `OSError`."""
        self._server = await asyncio.start_server(
            self._serve,
            host,
            port,
            limit=_LONGEST_REQUEST,
            backlog=_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=connections.HANDSHAKE_SECONDS if tls else None,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and wait for the connections to end."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, listener = writer.get_extra_info("peername"), writer.get_extra_info("socket")
        if is_reserved(listener.fileno()):
            writer.transport.abort()
            return
        for one in self._table.add(writer, str(peer[0]) if peer else ""):
            one.transport.abort()
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            self._table.prove(writer)
            writer.write(_response(await self._answer(head)))
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self._table.remove(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> HTTPAnswer:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return plain(400, "bad request\n")
        if words[0] != "GET":
            return plain(405, "only GET\n")
        refused = None if self._refusal is None else self._refusal(_headers(lines[1:]))
        if refused is not None:
            return refused
        route = self._routes.get(words[1].partition("?")[0])
        if route is None:
            *others, last = self._routes
            return plain(404, f"try {', '.join(others)} or {last}\n")
        return await route()


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}


def _response(answer: HTTPAnswer) -> bytes:
    head = f"HTTP/1.1 {answer.code} {_PHRASES[answer.code]}\r\nContent-Type: {answer.kind}\r\n"
    return f"{head}Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n".encode() + answer.body
