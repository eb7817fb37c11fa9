"""The HTTP/1.1 server of the scheduler extender. Connections stay open, as kube-scheduler's client keeps them.

A connection has one request at a time; size, number and time are bounded. What cannot be a request ends its own
connection and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from podslice.service.http import connections
from podslice.service.http.connections import ConnectionTable, is_reserved

LARGEST_HEAD = 16 << 10
MOST_CONNECTIONS, MOST_OF_PEER = 256, 64
# asyncio accepts up to `backlog` connections in one turn of its loop, and two turns pass before `connection_made` can
# end the first of them: a flood takes 24 of the RESERVED_DESCRIPTORS, where the default of 100 would take all.
_BACKLOG = 12
IDLE_SECONDS = 300.0
"""Seconds that a connection may be without a whole request; kube-scheduler closes its own after 90."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]{1,9}) *(?=\r\n)")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:")
_CLOSING = re.compile(rb"(?i)\r\nconnection: *close *(?=\r\n)")
_EXPECTING = re.compile(rb"(?i)\r\nexpect: *100-continue *(?=\r\n)")
_PHRASES = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 411: "Length Required",
    413: "Content Too Large", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


class PostAnswer(NamedTuple):
    """A status and a body, JSON where the status is 200."""

    body: bytes
    status: int = 200


Handler = Callable[[bytes], PostAnswer | Awaitable[PostAnswer]]
"""From a request's body to the answer, or an awaitable of it."""


class PostServer:
    """Serves POST by path. `failed` gets path and error of a handler that raises; the client gets status 500."""

    def __init__(
        self, handlers: Mapping[str, Handler], *, largest: int, failed: Callable[[str, Exception], None]
    ) -> None:
        self.handlers = handlers
        self.largest = largest
        self.failed = failed
        self.table: ConnectionTable[_Connection] = ConnectionTable(MOST_CONNECTIONS, MOST_OF_PEER)
        self.connections: set[_Connection] = set()
        self.closed = False
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port, which port 0 leaves to the system. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self),
            host,
            port,
            backlog=_BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=connections.HANDSHAKE_SECONDS if tls else None,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and hang up on all connections, also on those that are accepted and not yet set up."""
        self.closed = True
        if self._server is not None:
            loop = asyncio.get_running_loop()
            for listener in self._server.sockets:
                loop.remove_reader(listener.fileno())
            for _ in range(3):  # asyncio loses a connection that it has accepted and not set up when its server closes
                await asyncio.sleep(0)
            self._server.close()
            for connection in list(self.connections):
                connection.end()
            await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: PostServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._task: asyncio.Future[PostAnswer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends = 0.0
        self._invited = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        peer, listener = transport.get_extra_info("peername"), transport.get_extra_info("socket")
        if self._server.closed or (listener is not None and is_reserved(listener.fileno())):
            self.end()
        for one in self._server.table.add(self, str(peer[0]) if peer else ""):
            one.end()
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.table.remove(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > LARGEST_HEAD + self._server.largest:
            self._refuse(413)
        elif self._task is None:
            self._read()

    def end(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _wait(self) -> None:
        """Begin the idle time anew. The timer is left as it is: a new one for each request would cost more than many
        answers."""
        loop = asyncio.get_running_loop()
        self._ends = loop.time() + IDLE_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(self._ends, self._look_idle)

    def _look_idle(self) -> None:
        """End the connection where it is idle for too long, or look again when it may be."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._ends:
            self.end()
        else:
            self._timer = loop.call_at(self._ends, self._look_idle)

    def _read(self) -> None:
        """Answer the request in the buffer, if it is whole."""
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or end > LARGEST_HEAD:
            if len(self._data) > LARGEST_HEAD:
                self._refuse(431)
            return None
        head = bytes(self._data[: end + 2])
        words = head[: head.find(b"\r\n")].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return self._refuse(400)
        if words[0] != b"POST":
            return self._refuse(405)
        # Two lengths, or a length and chunks, are how requests are smuggled past a proxy: such a request gets no
        # answer.
        length = _LENGTH.findall(head)
        if len(length) != 1 or _CHUNKED.search(head):
            return self._refuse(411)
        size = int(length[0])
        if size > self._server.largest:
            return self._refuse(413)
        start = end + 4
        if len(self._data) < start + size:
            # A client that sends `Expect: 100-continue` waits for this line before it sends the body (RFC 9110,
            # 10.1.1).
            if not self._invited and _EXPECTING.search(head):
                self._invited = True
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body = bytes(self._data[start : start + size])
        del self._data[: start + size]
        self._invited = False
        closing = _CLOSING.search(head) is not None
        return self._handle(words[1].partition(b"?")[0].decode("latin-1"), body, closing=closing)

    def _handle(self, path: str, body: bytes, *, closing: bool) -> None:
        handler = self._server.handlers.get(path)
        if handler is None:
            return self._answer(PostAnswer(b"", 404), closing=closing)
        self._server.table.prove(self)
        try:
            found = handler(body)
        except Exception as error:
            self._server.failed(path, error)
            return self._answer(PostAnswer(b"", 500), closing=closing)
        if isinstance(found, PostAnswer):
            return self._answer(found, closing=closing)
        self._task = asyncio.ensure_future(found)
        self._task.add_done_callback(lambda task: self._finish(path, task, closing=closing))
        return None

    def _finish(self, path: str, task: asyncio.Future[PostAnswer], *, closing: bool) -> None:
        self._task = None
        if task.cancelled():
            return self.end()
        error = task.exception()
        if error is not None:
            self._server.failed(path, error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return self._answer(PostAnswer(b"", 500), closing=closing)
        return self._answer(task.result(), closing=closing)

    def _answer(self, answer: PostAnswer, *, closing: bool) -> None:
        head = f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Type: application/json\r\n"
        last = "Connection: close\r\n\r\n" if closing else "\r\n"
        self._write(f"{head}Content-Length: {len(answer.body)}\r\n{last}".encode() + answer.body)
        if closing and self._transport is not None:
            self._transport.close()
            return
        self._wait()
        if self._data:
            # The next request may be here already; answering it from here would nest calls as deep as there are
            # requests.
            asyncio.get_running_loop().call_soon(self._again)

    def _again(self) -> None:
        if self._transport is not None and self._task is None:
            self._read()

    def _refuse(self, status: int) -> None:
        self._data.clear()
        self._answer(PostAnswer(b"", status), closing=True)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
