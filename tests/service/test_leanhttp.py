"""The short way to an API server: answers in any cut, connections that go, and what is not an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from podslice.service.http.leanhttp import LeanAnswer, LeanClient

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Test = Callable[[LeanClient, "Server"], Awaitable[None]]


class Server:
    """Answers each request with the next of `answers`, in pieces of `cut` bytes; None hangs up instead, and so does an
    answer that ends with `!`, afterwards. `requests` are those that came, `at_once` how many at a time at most."""

    def __init__(self, answers: list[bytes | None], cut: int = 1 << 20) -> None:
        self.answers, self.cut = answers, cut
        self.requests: list[bytes] = []
        self.connections = self.now = self.at_once = 0
        self.hold: asyncio.Event | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
        self.requests.append(head + await reader.readexactly(length))
        self.now += 1
        self.at_once = max(self.at_once, self.now)
        if self.hold is not None:
            await self.hold.wait()
        self.now -= 1
        answer = self.answers.pop(0)
        if answer is None:
            return False
        for start in range(0, len(answer), self.cut):
            writer.write(answer[start : start + self.cut])
            await writer.drain()
            await asyncio.sleep(0)
        return not answer.endswith(b"!")


def plain(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def with_server(server: Server, test: Test, *, limit: int = 4, tokens: tuple[str, ...] = ("Bearer t",)) -> None:
    told = iter(tokens)

    async def authorization(again: bool) -> str:
        return next(told)

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        client = LeanClient(f"http://127.0.0.1:{port}/base/", None, authorization, limit=limit)
        try:
            await test(client, server)
        finally:
            await client.close()
            listening.close()
            await listening.wait_closed()

    asyncio.run(main())


async def post(client: LeanClient, path: str = "/x") -> LeanAnswer:
    return await client.call("POST", path, b"{}", timeout=30)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(plain(b"abcdef"), b"abcdef", id="length"),
        pytest.param(CHUNKED, b"abc0123456789", id="chunks"),
        pytest.param(OK + b"Connection: close\r\n\r\nabc!", b"abc!", id="until the end"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b"abc"), b"abc", id="continue first"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="nothing"),
    ],
)
def test_answers_in_any_cut(answer: bytes, body: bytes, cut: int) -> None:
    """An answer is the same however its bytes arrive, and the next one on the connection is not touched by it."""

    async def test(client: LeanClient, server: Server) -> None:
        for _ in range(2):
            assert (await post(client)).body == body
        assert server.connections == (2 if answer.endswith(b"!") else 1)

    with_server(Server([answer, answer], cut), test)


def test_request() -> None:
    """A request has the prefix of the server's address, who asks, and its body's kind and length."""

    async def test(client: LeanClient, server: Server) -> None:
        await client.call("PATCH", "/a?b=c", b"[1]", kind="application/x", timeout=30)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        assert (first, body) == (b"PATCH /base/a?b=c HTTP/1.1", b"[1]")
        assert {b"Authorization: Bearer t", b"Content-Type: application/x", b"Content-Length: 3"} <= set(lines)

    with_server(Server([plain(b"{}")]), test)


def test_kept_connection_is_gone() -> None:
    """A connection that was kept and is gone is replaced; a new one that ends without an answer is an error."""

    async def test(client: LeanClient, server: Server) -> None:
        assert (await post(client)).status == 200
        assert (await post(client)).status == 200
        assert server.connections == 2
        with pytest.raises(ConnectionError, match="hung up"):
            await post(client)

    with_server(Server([plain(b"{}"), None, plain(b"{}"), None, None]), test)


def test_limit() -> None:
    """No more requests are under way than allowed, and the others follow on the same connections."""

    async def test(client: LeanClient, server: Server) -> None:
        server.hold = asyncio.Event()
        calls = asyncio.gather(*[post(client) for _ in range(12)])
        while server.now < 3:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        server.hold.set()
        assert {answer.status for answer in await calls} == {200}
        assert (server.at_once, server.connections) == (3, 3)

    with_server(Server([plain(b"{}")] * 12), test, limit=3)


def test_token_is_read_again() -> None:
    """After a 401 the token is asked for anew, once, and the new one is used from then on."""

    async def test(client: LeanClient, server: Server) -> None:
        refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        server.answers[:] = [plain(b""), refused, plain(b""), plain(b"")]
        assert [(await post(client)).status for _ in range(3)] == [200] * 3
        tokens = [request.partition(b"Authorization: ")[2].partition(b"\r\n")[0] for request in server.requests]
        assert tokens == [b"old", b"old", b"new", b"new"]

    with_server(Server([]), test, tokens=("old", "new"))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-x\r\n\r\n!", id="another protocol"),
        pytest.param(b"HTTP/1.1 2x0 OK\r\n\r\n!", id="no status"),
        pytest.param(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na!", id="two lengths"),
        pytest.param(OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na!", id="length and chunks"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + b"z" * 80 + b"!", id="no size of a chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n!", id="longer than its chunk"),
        pytest.param(OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na!", id="compressed"),
        pytest.param(OK + b"Content-Length: 9\r\n\r\nab!", id="too short"),
        pytest.param(OK + b"X: " + b"x" * (40 << 10) + b"!", id="a head without end"),
    ],
)
def test_no_answer(answer: bytes) -> None:
    """An invalid answer is an error of its call, and the next call has a connection of its own."""

    async def test(client: LeanClient, server: Server) -> None:
        with pytest.raises(ConnectionError):
            await post(client)
        assert (await post(client)).status == 200

    with_server(Server([answer, plain(b"{}")]), test)


def test_stream() -> None:
    """A stream gives what comes, waits for who reads it, and ends with the answer."""
    chunk = b"x" * 65536

    async def test(client: LeanClient, server: Server) -> None:
        parts = client.stream("/w", begin=30, quiet=30)
        head = await anext(parts)
        assert isinstance(head, LeanAnswer)
        assert head.status == 200
        size = 0
        async for part in parts:
            assert isinstance(part, bytes)
            size += len(part)
        assert size == 64 * len(chunk)

    whole = OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + chunk + b"\r\n") * 64 + b"0\r\n\r\n"
    with_server(Server([whole]), test)


def test_quiet_stream() -> None:
    """A stream that says nothing for too long is a `TimeoutError`, and its connection ends."""

    async def test(client: LeanClient, server: Server) -> None:
        parts = client.stream("/w", begin=30, quiet=0.01)
        await anext(parts)
        with pytest.raises(TimeoutError):
            await anext(parts)

    with_server(Server([OK + b"Transfer-Encoding: chunked\r\n\r\n"]), test)


def test_path() -> None:
    """A path with a line break in it is never sent."""

    async def test(client: LeanClient, server: Server) -> None:
        with pytest.raises(ValueError, match="not a path"):
            await post(client, "/x\r\nHost: other")
        assert server.requests == []

    with_server(Server([]), test)
