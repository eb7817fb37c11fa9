"""Calls over a socket pair: deadlines, refusals and broken peers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from podslice.agent.runtime.ttrpc import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    REMOTE_CLOSED,
    REMOTE_OPEN,
    REQUEST,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    Call,
    Client,
    Message,
    Mux,
    RPCError,
    TTRPCServer,
    WireError,
    encode_frames,
    encode_message,
    encode_request,
)
from tests import clock


async def slow(payload: bytes) -> bytes:
    await asyncio.sleep(0.5)
    return payload


def failing(payload: bytes) -> bytes:
    raise RPCError(9, "not now")


def broken(payload: bytes) -> bytes:
    raise KeyError("x")


HANDLERS: dict[tuple[str, str], Any] = {
    ("s", "echo"): lambda payload: payload,
    ("s", "slow"): slow,
    ("s", "failing"): failing,
    ("s", "broken"): broken,
    ("s", "huge"): lambda payload: bytes((4 << 20) + 1),
}


async def pair() -> tuple[Mux, Mux]:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, first = await loop.create_unix_connection(Mux, sock=ours)
    _, second = await loop.create_unix_connection(Mux, sock=theirs)
    return first, second


def with_client(test: Callable[[Client, Mux, Mux], Awaitable[None]]) -> None:
    async def main() -> None:
        here, there = await pair()
        TTRPCServer(there, 1, HANDLERS)
        await test(Client(here, 1), here, there)
        here.close()
        there.close()
        await asyncio.gather(here.closed, there.closed)

    clock.run(main())


def test_large_payload_passes_in_small_frames() -> None:
    """A payload of a megabyte arrives whole, both ways."""

    async def test(client: Client, here: Mux, there: Mux) -> None:
        payload = bytes(range(256)) * 4096
        assert await client.call("s", "echo", payload) == payload

    with_client(test)


@pytest.mark.parametrize(
    ("method", "code"),
    [("failing", 9), ("broken", INTERNAL), ("missing", UNIMPLEMENTED), ("huge", RESOURCE_EXHAUSTED)],
)
def test_errors_carry_their_code(method: str, code: int) -> None:
    """A handler's refusal, its crash, an unknown method and an answer too large have distinct codes."""

    async def test(client: Client, here: Mux, there: Mux) -> None:
        with pytest.raises(RPCError) as caught:
            await client.call("s", method, b"")
        assert caught.value.code == code
        assert await client.call("s", "echo", b"still there") == b"still there"

    with_client(test)


def test_deadline_is_kept_on_both_sides() -> None:
    """A slow handler ends at the caller's deadline; calls beside it go on, and a late answer does no harm."""

    async def test(client: Client, here: Mux, there: Mux) -> None:
        slow_call = asyncio.ensure_future(client.call("s", "slow", b"", timeout=0.05))
        assert await client.call("s", "echo", b"fast") == b"fast"
        with pytest.raises(RPCError) as caught:
            await slow_call
        assert caught.value.code == DEADLINE_EXCEEDED
        await asyncio.sleep(0.1)
        assert await client.call("s", "echo", b"after") == b"after"

    with_client(test)


def test_too_many_calls_at_once_are_refused() -> None:
    """The number of calls in flight is bounded."""

    async def test(client: Client, here: Mux, there: Mux) -> None:
        calls = [asyncio.ensure_future(client.call("s", "slow", b"", timeout=2)) for _ in range(140)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [r for r in results if isinstance(r, RPCError)]
        assert len(refused) == 12
        assert {r.code for r in refused} == {RESOURCE_EXHAUSTED}

    with_client(test)


def test_lost_connection_ends_waiting_calls() -> None:
    """A lost connection fails the calls that wait for an answer, at once."""

    async def test(client: Client, here: Mux, there: Mux) -> None:
        waiting = asyncio.ensure_future(client.call("s", "slow", b""))
        await asyncio.sleep(0.01)
        there.close()
        with pytest.raises(RPCError) as caught:
            await waiting
        assert caught.value.code == UNAVAILABLE

    with_client(test)


REQUEST_BODY = encode_request(Call("s", "echo", b"", None))


@pytest.mark.parametrize(
    "data",
    [
        encode_frames(7, b"x"),
        struct.pack(">II", 1, 1 << 30),
        encode_frames(1, encode_message(Message(2, REQUEST, REMOTE_CLOSED, REQUEST_BODY))),
        encode_frames(1, encode_message(Message(1, 9, REMOTE_CLOSED, REQUEST_BODY))),
        encode_frames(1, encode_message(Message(1, REQUEST, REMOTE_CLOSED, b"\xff\xff\xff"))),
        encode_frames(1, struct.pack(">IIBB", 1 << 30, 1, 1, 1)),
    ],
    ids=["unknown-connection", "huge-frame", "even-stream", "unknown-type", "no-request", "huge-message"],
)
def test_hostile_peer_is_hung_up_on(data: bytes) -> None:
    """Bytes outside the protocol close the connection and nothing else."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        _, there = await asyncio.get_running_loop().create_unix_connection(Mux, sock=theirs)
        TTRPCServer(there, 1, HANDLERS)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 2) == b""
        assert await there.closed
        writer.close()

    clock.run(main())


def test_streaming_request_is_declined() -> None:
    """A request that announces more data is answered with unimplemented; the connection stays."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        _, there = await asyncio.get_running_loop().create_unix_connection(Mux, sock=theirs)
        TTRPCServer(there, 1, HANDLERS)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(encode_frames(1, encode_message(Message(1, REQUEST, REMOTE_OPEN, REQUEST_BODY))))
        assert b"streaming is not supported" in await asyncio.wait_for(reader.read(4096), 2)
        writer.write(encode_frames(1, encode_message(Message(3, REQUEST, REMOTE_CLOSED, REQUEST_BODY))))
        assert await asyncio.wait_for(reader.read(4096), 2)
        writer.close()
        there.close()
        await there.closed

    clock.run(main())


@pytest.mark.parametrize("flags", [0, REMOTE_CLOSED], ids=["containerd", "closed"])
def test_plain_call_with_or_without_flag(flags: int) -> None:
    """containerd sends a plain call without any flag, other clients say that nothing follows."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        _, there = await asyncio.get_running_loop().create_unix_connection(Mux, sock=theirs)
        TTRPCServer(there, 1, HANDLERS)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        body = encode_request(Call("s", "echo", b"payload", None))
        writer.write(encode_frames(1, encode_message(Message(1, REQUEST, flags, body))))
        assert b"payload" in await asyncio.wait_for(reader.read(4096), 2)
        writer.close()
        there.close()
        await there.closed

    clock.run(main())


def test_peer_that_does_not_read_is_hung_up_on() -> None:
    """The bytes kept for a peer that never reads are bounded."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        _, there = await asyncio.get_running_loop().create_unix_connection(Mux, sock=theirs)
        for _ in range(16):
            there.send(1, bytes((1 << 20) - 1024))
        with pytest.raises(WireError, match="does not read"):
            there.send(1, bytes(2 << 20))
        await there.closed
        ours.close()

    clock.run(main())
