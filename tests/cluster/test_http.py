"""The extender's HTTP server: connections that stay open, bounds, and clients that do not behave."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from podslice.service.http.post_server import MOST_OF_PEER, PostAnswer, PostServer

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def serving(
    **handlers: Callable[[bytes], PostAnswer | Awaitable[PostAnswer]],
) -> AsyncIterator[tuple[PostServer, int]]:
    failures: list[str] = []
    named = {f"/v1/{verb}": handler for verb, handler in handlers.items()}
    server = PostServer(named, largest=1000, failed=lambda path, error: failures.append(f"{path} {error!r}"))
    server.failures = failures  # type: ignore[attr-defined]
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


def request(verb: str, body: bytes = b"{}", *more: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = b"POST /v1/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d" % (verb.encode(), size)
    return b"\r\n".join([head, *more]) + b"\r\n\r\n" + body


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    return int(head.split(b" ")[1]), await reader.readexactly(size)


def echo(body: bytes) -> PostAnswer:
    return PostAnswer(body)


async def later(body: bytes) -> PostAnswer:
    await asyncio.sleep(0)
    return PostAnswer(body[::-1])


def test_kept_connection() -> None:
    """Many requests go over one connection, answered at once or later, also when two arrive together."""

    async def main() -> None:
        async with serving(echo=echo, later=later) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(3):
                writer.write(request("echo", b"%d" % number))
                assert await answered(reader) == (200, b"%d" % number)
            writer.write(request("later", b"abc") + request("echo", b"d"))
            assert [await answered(reader), await answered(reader)] == [(200, b"cba"), (200, b"d")]
            slow = request("echo", b"in pieces")
            for place in range(0, len(slow), 7):
                writer.write(slow[place : place + 7])
                await writer.drain()
                await asyncio.sleep(0)
            assert await answered(reader) == (200, b"in pieces")
            assert len(server.connections) == 1
            writer.close()

    asyncio.run(main())


def test_standard_client() -> None:
    """Python's client is served too, and gets 404 for an unknown path."""

    async def main() -> None:
        async with serving(echo=echo) as (_, port):

            def ask() -> list[tuple[int, bytes]]:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                found = []
                for method, path in (("POST", "/v1/echo?x=1"), ("POST", "/v1/none"), ("GET", "/v1/echo")):
                    connection.request(method, path, b"body" if method == "POST" else None)
                    answer = connection.getresponse()
                    found.append((answer.status, answer.read()))
                connection.close()
                return found

            assert await asyncio.to_thread(ask) == [(200, b"body"), (404, b""), (405, b"")]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(request("echo", b"", length=1001), 413, id="large"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\n\r\n", 411, id="no-length"),
        pytest.param(request("echo", b"", b"Content-Length: 3"), 411, id="two-lengths"),
        pytest.param(request("echo", b"", b"Transfer-Encoding: chunked"), 411, id="chunked"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411, id="negative"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", 400, id="tls"),
        pytest.param(b"x" * 17_000, 431, id="long-head"),
    ],
)
def test_no_request(sent: bytes, status: int) -> None:
    """A malformed request gets its status, and the connection ends."""

    async def main() -> None:
        async with serving(echo=echo) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await answered(reader) == (status, b"")
            assert await reader.read() == b""
            writer.close()
            while server.connections:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_failing_handler() -> None:
    """A handler that raises, at once or later, is status 500 and reported; the connection goes on."""

    def broken(body: bytes) -> PostAnswer:
        raise ValueError("x")

    async def broken_later(body: bytes) -> PostAnswer:
        raise ValueError("y")

    async def main() -> None:
        async with serving(broken=broken, later=broken_later, echo=echo) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for verb, answer in (("broken", (500, b"")), ("later", (500, b"")), ("echo", (200, b"{}"))):
                writer.write(request(verb))
                assert await answered(reader) == answer
            assert server.failures == ["/v1/broken ValueError('x')", "/v1/later ValueError('y')"]  # type: ignore[attr-defined]
            writer.close()

    asyncio.run(main())


def test_client_that_leaves() -> None:
    """A client that disconnects during a call ends the call, and nothing is left."""
    ended: list[str] = []

    async def waits(body: bytes) -> PostAnswer:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return PostAnswer(b"")

    async def main() -> None:
        async with serving(waits=waits) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("waits"))
            await writer.drain()
            while not server.connections:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            writer.close()
            while server.connections or not ended:
                await asyncio.sleep(0.001)

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_too_many_connections() -> None:
    """A client that opens very many connections loses the oldest that have sent nothing; one that has sent a request
    stays, and a new one is accepted."""

    async def main() -> None:
        async with serving(echo=echo) as (server, port):
            clients: list[Client] = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_OF_PEER)]
            for reader, writer in clients[:2]:
                writer.write(request("echo"))
                await answered(reader)
            clients += [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            ends = []
            for number, (reader, writer) in enumerate(clients):
                try:
                    writer.write(request("echo"))
                    await answered(reader)
                except (ConnectionError, asyncio.IncompleteReadError):
                    ends.append(number)
            assert ends == [2, 3, 4]
            assert len(server.connections) == MOST_OF_PEER
            for _, writer in clients:
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(5))
def test_a_client_that_came_while_it_closed_is_hung_up_on(steps: int) -> None:
    """No client stays connected to a server that is closed, at whatever step of connecting it was."""

    async def main() -> bytes:
        server = PostServer({}, largest=1000, failed=lambda path, error: None)
        port = await server.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(steps):
                await asyncio.sleep(0)
            await server.close()
            client.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                return await asyncio.to_thread(client.recv, 1)
            return b""

    assert asyncio.run(main()) == b""
