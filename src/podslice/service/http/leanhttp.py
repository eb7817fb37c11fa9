"""A small HTTP/1.1 client for what is asked of an API server for every pod: calls, and streams of a watch.

The client that reads configurations (httpx) takes 1.5 ms of a processor for a call and so ends at some hundred pods a
second; this takes 0.1 ms. It does what an API server needs and no more: connections that stay open, one request at a
time on each, answers with a length, in chunks or up to the end, all within bounds. What cannot be an answer is a
`ConnectionError`; a connection that was kept and is gone when it is used again is replaced once, silently.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

LARGEST_HEAD = 32 << 10
_MOST_COMING = 16
"""Most heads before an answer that only say that it is coming (100 Continue)."""
LARGEST_ANSWER = 4 << 20
KEPT_SECONDS = 60.0
"""An API server hangs up after 90 seconds without a request."""
_ASIDE = 1 << 20
"""Bytes of a stream that wait for whoever reads it, before the server has to wait."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*(?=\r\n)")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n)")
_CLOSING = re.compile(rb"(?i)\r\nconnection:[ \t]*close[ \t]*(?=\r\n)")
_PACKED = re.compile(rb"(?i)\r\ncontent-encoding:[ \t]*(?!identity)")
_LATER = re.compile(rb"(?i)\r\nretry-after:[ \t]*([0-9]{1,4})[ \t]*(?=\r\n)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_TARGET = re.compile(r"/[!-~]*\Z")

Authorization = Callable[[bool], Awaitable[str]]
"""The header that says who asks; called with True after a 401, for the token may have been rotated."""


class LeanAnswer(NamedTuple):
    """`later`: seconds after which the server wants to be asked again, 0 where it says nothing."""

    status: int
    phrase: str
    body: bytes
    later: int = 0


class _Head(NamedTuple):
    status: int
    phrase: str
    later: int
    closing: bool


class HungUpError(ConnectionError):
    """The connection ended before anything was answered."""


class LeanConnection(asyncio.Protocol):
    """One connection. `begin` sends a request; `head` comes with the first words of the answer, and `take` gives the
    body piece by piece, b"" at its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.used = loop.time()
        self.open = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._pieces: deque[bytes] = deque()
        self._aside = 0
        self._left = -1
        """Bytes that the body, or its chunk, still has; -1 before it is known, -2 for all until the end."""
        self._coming = 0
        """Heads that said that the answer is coming."""
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
        """Send a request; the last one's answer was read to its end."""
        assert self._transport is not None
        self._head, self._left, self._coming = None, -1, 0
        self._ended = self._chunked = False
        self._transport.write(request)

    async def head(self) -> _Head:
        """Raises `ConnectionError`."""
        while self._head is None:
            await self._wait()
        return self._head

    async def take(self) -> bytes:
        """Raises `ConnectionError`."""
        while not self._pieces:
            if self._ended:
                self.used = self._loop.time()
                return b""
            await self._wait()
        piece = self._pieces.popleft()
        self._aside -= len(piece)
        if self._paused and self._aside < _ASIDE and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    @property
    def reusable(self) -> bool:
        """True when the answer was read to its end and another may follow."""
        return self.open and self._ended and not self._closing and not self._pieces and not self._data

    def abort(self) -> None:
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
        """True once the whole head is here, after those that only say that it is coming."""
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
        self._aside += len(piece)
        if self._aside >= _ASIDE and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()


def with_query(path: str, parameters: Mapping[str, str]) -> str:
    """A path with what is asked for behind it."""
    return f"{path}?{urlencode(parameters)}" if parameters else path


class LeanClient:
    """Calls to one server, at most `limit` at a time beside its streams. `about`: header lines of every request."""

    errors: tuple[type[Exception], ...] = (ValueError,)

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
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
        """Raises `OSError`, `TimeoutError`, `ssl.SSLError`, and what `authorization` does."""
        async with self._room, asyncio.timeout(timeout):
            answer = await self._call(method, path, body, kind)
            if answer.status != 401:
                return answer
            self._who = await self._authorization(True)
            return await self._call(method, path, body, kind)

    async def _call(self, method: str, path: str, body: bytes | None, kind: str) -> LeanAnswer:
        connection, head = await self._ask(method, path, body, kind)
        try:
            found = bytearray()
            while piece := await connection.take():
                found += piece
                if len(found) > LARGEST_ANSWER:
                    raise ConnectionError(f"the answer is larger than {LARGEST_ANSWER} bytes")
            return LeanAnswer(head.status, head.phrase, bytes(found), head.later)
        finally:
            self._leave(connection)

    async def stream(self, path: str, *, begin: float, quiet: float) -> AsyncGenerator[bytes | LeanAnswer, None]:
        """A GET: first the answer without its body, then the body as it comes. `begin` and `quiet`: seconds until the
        head has come, and without a word afterwards. Raises as `call` does."""
        async with asyncio.timeout(begin):
            connection, head = await self._ask("GET", path, None, "")
            if head.status == 401:
                self._leave(connection)
                self._who = await self._authorization(True)
                connection, head = await self._ask("GET", path, None, "")
        try:
            yield LeanAnswer(head.status, head.phrase, b"", head.later)
            while True:
                async with asyncio.timeout(quiet):
                    piece = await connection.take()
                if not piece:
                    return
                yield piece
        finally:
            self._leave(connection)

    async def _ask(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[LeanConnection, _Head]:
        """A connection on which the answer has begun."""
        request = await self._request(method, path, body, kind)
        for kept in (True, False):
            connection = self._kept() if kept else await self._connect()
            if connection is None:
                continue
            self._busy.add(connection)
            try:
                connection.begin(request)
                return connection, await connection.head()
            except HungUpError:
                self._leave(connection)
                if not kept:
                    raise
            except BaseException:
                self._leave(connection)
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

    def _kept(self) -> LeanConnection | None:
        """The connection that was used last; those that were kept too long go."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            found = self._idle.pop()
            if found.open and now - found.used < KEPT_SECONDS:
                return found
            found.abort()
        return None

    async def _connect(self) -> LeanConnection:
        loop = asyncio.get_running_loop()
        name = self._host if self._tls is not None else None
        _, found = await loop.create_connection(
            LeanConnection, self._host, self._port, ssl=self._tls, server_hostname=name
        )
        return found

    def _leave(self, connection: LeanConnection) -> None:
        self._busy.discard(connection)
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()

    async def close(self) -> None:
        """Every connection ends."""
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)
