"""A small HTTP/1.1 client for the calls that an agent makes for every pod, and for the streams of watches.

httpx takes 1.5 ms of CPU time for a call, which ends at some hundred pods a second; this takes 0.1 ms. It does what an
API server needs and no more: connections that stay open, one request at a time on each, answers with a length, in
chunks or up to the end, all within bounds. What cannot be an answer is a `ConnectionError`. An idle connection that
turns out to be closed is replaced once, silently.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from podslice.values.errors import PodsliceError

LARGEST_HEAD = 32 << 10
_MOST_COMING = 16
"""Most interim answers (1xx) before the final one."""
LARGEST_ANSWER = 4 << 20
KEPT_SECONDS = 60.0
"""Seconds that an idle connection is kept; an API server hangs up after 90."""
_MOST_BUFFERED = 1 << 20
"""Bytes of a stream that may wait for its reader, before the connection is paused."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*(?=\r\n)")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n)")
_CLOSING = re.compile(rb"(?i)\r\nconnection:[ \t]*close[ \t]*(?=\r\n)")
_PACKED = re.compile(rb"(?i)\r\ncontent-encoding:[ \t]*(?!identity)")
_LATER = re.compile(rb"(?i)\r\nretry-after:[ \t]*([0-9]{1,4})[ \t]*(?=\r\n)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_TARGET = re.compile(r"/[!-~]*\Z")

Authorization = Callable[[bool], Awaitable[str]]
"""Returns the Authorization header; called with True after a 401, for the token may have been rotated."""


class LeanAnswer(NamedTuple):
    """An answer. `later`: seconds after which the server wants to be asked again (Retry-After), 0 where it has none."""

    status: int
    phrase: str
    body: bytes
    later: int = 0


class _Head(NamedTuple):
    status: int
    phrase: str
    later: int
    closing: bool


class HungUpError(PodsliceError, ConnectionError):
    """Raised when the connection ended before any byte of the answer."""


class LeanConnection(asyncio.Protocol):
    """One connection. `begin` sends a request, `head` returns the head of its answer, and `take` returns the body piece
    by piece, b"" at its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.used = loop.time()
        self.open = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._left = -1
        """Bytes that the body, or its chunk, still has; -1: not known yet, -2: all up to the end of the connection, -3:
        the line end after a chunk."""
        self._coming = 0
        """Interim answers so far."""
        self._chunked = self._paused = self._ended = self._closing = False
        self._error: BaseException | None = None
        self._head: _Head | None = None
        self._waiter: asyncio.Future[None] | None = None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._error is not None:
            pass
        elif self._left == -2 and error is None:
            self._ended = True
        elif self._head is None and not self._data:
            self._error = HungUpError("it hung up without an answer")
        else:
            self._error = error or ConnectionResetError("it hung up in the middle of an answer")
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            self._read()
        except ConnectionError as error:
            self._error = error
            self.abort()
        self._wake()

    # Requests

    def begin(self, request: bytes) -> None:
        """Send a request. The answer to the last one must be read to its end."""
        assert self._transport is not None
        self._head, self._left, self._coming = None, -1, 0
        self._ended = self._chunked = False
        self._transport.write(request)

    async def head(self) -> _Head:
        """Wait for the head of the answer. Raises `ConnectionError`."""
        while self._head is None:
            await self._wait()
        return self._head

    async def take(self) -> bytes:
        """Wait for the next piece of the body, b"" at its end. Raises `ConnectionError`."""
        while not self._pieces:
            if self._ended:
                self.used = self._loop.time()
                return b""
            await self._wait()
        piece = self._pieces.popleft()
        self._buffered -= len(piece)
        if self._paused and self._buffered < _MOST_BUFFERED and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    @property
    def reusable(self) -> bool:
        """Whether the answer was read to its end and the connection can take another request."""
        return self.open and self._ended and not self._closing and not self._pieces and not self._data

    def abort(self) -> None:
        """Close the connection at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Answers

    def _read(self) -> None:
        if self._head is None and not self._read_head():
            return
        if self._ended and self._data:
            raise ConnectionError("it says more than its answer")
        if self._ended:
            return
        if self._chunked:
            self._read_chunks()
        else:
            self._read_plain()

    def _read_head(self) -> bool:
        """Read the head of the final answer, past interim ones. Return False while it is not all there."""
        status = 100
        while 100 <= status < 200:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if len(self._data) > LARGEST_HEAD:
                    raise ConnectionError("the head of the answer is too large")
                return False
            head = bytes(self._data[: end + 2])
            del self._data[: end + 4]
            words = head[: head.find(b"\r\n")].split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not (len(words[1]) == 3 and words[1].isdigit()):
                raise ConnectionError("the answer is not HTTP/1.1")
            status = int(words[1])
            self._coming += status < 200
            if self._coming > _MOST_COMING:
                raise ConnectionError(f"more than {_MOST_COMING} times the answer is only said to come")
        if _PACKED.search(head):
            raise ConnectionError("the answer is compressed, which was not asked for")
        # An answer with two lengths is how a proxy and its client are made to disagree where the next answer begins.
        length, later = _LENGTH.findall(head), _LATER.search(head)
        self._chunked = _CHUNKED.search(head) is not None
        if len(set(length)) > 1 or (length and self._chunked):
            raise ConnectionError("the answer has two lengths")
        self._left = -1 if self._chunked else 0 if status in (204, 304) else int(length[0]) if length else -2
        self._closing = _CLOSING.search(head) is not None or self._left == -2
        phrase = words[2].decode("latin-1") if len(words) > 2 else ""
        self._head = _Head(status, phrase, int(later[1]) if later else 0, self._closing)
        return True

    def _read_plain(self) -> None:
        if self._left == -2:
            self._put(bytes(self._data))
            self._data.clear()
            return
        piece = bytes(self._data[: self._left])
        del self._data[: len(piece)]
        self._left -= len(piece)
        self._put(piece)
        self._ended = not self._left

    def _read_chunks(self) -> None:
        data, at = self._data, 0
        while at < len(data):
            if self._left > 0:
                piece = bytes(data[at : at + self._left])
                self._left -= len(piece)
                at += len(piece)
                self._put(piece)
                if not self._left:
                    self._left = -3
                continue
            if self._left == -3:
                if len(data) - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise ConnectionError("the answer's chunks are broken")
                at, self._left = at + 2, -1
                continue
            found = _CHUNK.match(data, at)
            if found is None:
                if len(data) - at > 64:
                    raise ConnectionError("the answer's chunks are broken")
                break
            size = int(found[1], 16)
            if size:
                at, self._left = found.end(), size
                continue
            if data[found.end() : found.end() + 2] == b"\r\n":
                at, self._ended = found.end() + 2, True
            elif len(data) - at > LARGEST_HEAD:
                raise ConnectionError("the answer's trailer is too large")
            elif (trailer := data.find(b"\r\n\r\n", found.end())) >= 0:
                at, self._ended = trailer + 4, True
            break
        del data[:at]

    def _put(self, piece: bytes) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._buffered += len(piece)
        if self._buffered >= _MOST_BUFFERED and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()


def with_query(path: str, parameters: Mapping[str, str]) -> str:
    """Return a path with its query."""
    return f"{path}?{urlencode(parameters)}" if parameters else path


class LeanClient:
    """Calls to one server, at most `limit` at a time; streams do not count. `about`: header lines of every request.
    `tls` returns the context of a new connection."""

    errors: tuple[type[Exception], ...] = (ValueError,)

    def __init__(
        self,
        server: str,
        tls: Callable[[], ssl.SSLContext] | None,
        authorization: Authorization,
        *,
        limit: int = 32,
        about: str = "Accept: application/json\r\nAccept-Encoding: identity\r\n",
    ) -> None:
        where = urlsplit(server)
        self._host = where.hostname or ""
        self._port = where.port or (443 if where.scheme == "https" else 80)
        self._tls = tls if where.scheme == "https" else None
        self._prefix = where.path.rstrip("/")
        self._about = f"Host: {where.netloc.rpartition('@')[2]}\r\n{about}"
        self._authorization = authorization
        self._room = asyncio.Semaphore(limit)
        self._idle: list[LeanConnection] = []
        self._busy: set[LeanConnection] = set()
        self._who = ""

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = "application/json", timeout: float
    ) -> LeanAnswer:
        """Make a call. Raises `OSError`, `TimeoutError`, `ssl.SSLError`, and what `authorization` raises."""
        async with self._room, asyncio.timeout(timeout):
            answer = await self._call(method, path, body, kind)
            if answer.status != 401:
                return answer
            # The token may have been rotated since it was read; a second 401 is the server's answer.
            self._who = await self._authorization(True)
            return await self._call(method, path, body, kind)

    async def _call(self, method: str, path: str, body: bytes | None, kind: str) -> LeanAnswer:
        connection, head = await self._send(method, path, body, kind)
        try:
            found = bytearray()
            while piece := await connection.take():
                found += piece
                if len(found) > LARGEST_ANSWER:
                    raise ConnectionError(f"the answer is larger than {LARGEST_ANSWER} bytes")
            return LeanAnswer(head.status, head.phrase, bytes(found), head.later)
        finally:
            self._release(connection)

    async def stream(self, path: str, *, begin: float, quiet: float) -> AsyncGenerator[bytes | LeanAnswer, None]:
        """GET: yield the answer without its body, then the body as it arrives. Raises as `call` does.

        `begin`: most seconds until the head has arrived. `quiet`: most seconds between two pieces.
        """
        async with asyncio.timeout(begin):
            connection, head = await self._send("GET", path, None, "")
            if head.status == 401:
                self._release(connection)
                self._who = await self._authorization(True)
                connection, head = await self._send("GET", path, None, "")
        try:
            yield LeanAnswer(head.status, head.phrase, b"", head.later)
            while True:
                async with asyncio.timeout(quiet):
                    piece = await connection.take()
                if not piece:
                    return
                yield piece
        finally:
            self._release(connection)

    async def _send(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[LeanConnection, _Head]:
        """Send a request, on an idle connection or a new one. Return the connection and the head of its answer."""
        request = await self._request(method, path, body, kind)
        for kept in (True, False):
            connection = self._take_idle() if kept else await self._connect()
            if connection is None:
                continue
            self._busy.add(connection)
            try:
                connection.begin(request)
                return connection, await connection.head()
            except HungUpError:  # the server closed the idle connection as we wrote: it has not seen the request
                self._release(connection)
                if not kept:
                    raise
            except BaseException:
                self._release(connection)
                raise
        raise AssertionError("a new connection is always tried")

    async def _request(self, method: str, path: str, body: bytes | None, kind: str) -> bytes:
        if not _TARGET.match(path):
            raise ValueError(f"{path[:80]!r} is not a path")
        self._who = self._who or await self._authorization(False)
        who = f"Authorization: {self._who}\r\n" if self._who else ""
        more = "" if body is None else f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._about}{who}{more}\r\n".encode("latin-1")
        return head + (body or b"")

    def _take_idle(self) -> LeanConnection | None:
        """Take the idle connection that was used last, None where there is none; close those that were idle too
        long."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            # The last one first, so that connections beyond the usual number fall idle and the server closes them.
            found = self._idle.pop()
            if found.open and now - found.used < KEPT_SECONDS:
                return found
            found.abort()
        return None

    async def _connect(self) -> LeanConnection:
        loop = asyncio.get_running_loop()
        # asyncio takes a server name only together with TLS.
        tls = self._tls() if self._tls is not None else None
        name = self._host if tls is not None else None
        _, found = await loop.create_connection(LeanConnection, self._host, self._port, ssl=tls, server_hostname=name)
        return found

    def _release(self, connection: LeanConnection) -> None:
        self._busy.discard(connection)
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()

    async def close(self) -> None:
        """Close all connections."""
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)
