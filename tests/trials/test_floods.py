"""Peers that do too much at the sockets that podslice serves: an honest caller beside them is answered, connections and
streams have bounds, and descriptors come back afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.certificates import OPENSSL, make

from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.runtime.ttrpc import (
    HEADER,
    MOST_CALLS,
    MOST_UNSENT,
    REQUEST,
    RESOURCE_EXHAUSTED,
    Call,
    Message,
    MessageDecoder,
    Mux,
    RPCError,
    TTRPCServer,
    decode_response,
    encode_frames,
    encode_message,
    encode_request,
)
from podslice.cluster.journal.callers import CallerError
from podslice.cluster.journal.journals import Journals
from podslice.cluster.journal.listener import MOST_STRANGERS
from podslice.replica.rulebook import Rulebook
from podslice.replica.stream_messages import METHOD
from podslice.service.pacing import RateLimit
from podslice.service.proto import deviceplugin_pb2 as plugin_api
from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import MOST_CONNECTIONS, open_channel
from tests.agent.helpers import World, in_world
from tests.agent.test_grpc import COUNTS, ask
from tests.clock import until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 1, 3, 4, 6, 8
LIST = "/v1.PodResourcesLister/List"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    """A header field, literal and not indexed, with lengths below 127 or as HPACK continues them."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    if size < 127:
        return bytes([size])
    size, found = size - 127, bytearray([127])
    while size >= 128:
        found.append(size % 128 + 128)
        size //= 128
    return bytes([*found, size])


def call(path: str, *more: tuple[bytes, bytes]) -> bytes:
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"localhost"),
              (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more)  # fmt: skip
    return b"".join(field(name, value) for name, value in fields)


BEGIN = PREFACE + frame(SETTINGS)
EMPTY_MESSAGE = frame(0, 1, 1, b"\0\0\0\0\0")


def rapid_reset(path: str) -> Iterator[bytes]:
    yield BEGIN
    for number in range(1, 20_000, 2):
        yield frame(HEADERS, 4, number, call(path)) + frame(RST_STREAM, 0, number, struct.pack("!I", 8))


def pings(path: str) -> Iterator[bytes]:
    yield BEGIN
    for _ in range(100):
        yield frame(PING, payload=b"12345678") * 200


def settings(path: str) -> Iterator[bytes]:
    yield BEGIN
    for _ in range(100):
        yield frame(SETTINGS, payload=struct.pack("!HI", 4, 65535)) * 200


def many_streams(path: str) -> Iterator[bytes]:
    """Begun and never finished."""
    yield BEGIN
    for number in range(1, 10_000, 2):
        yield frame(HEADERS, 4, number, call(path))


def large_headers(path: str) -> Iterator[bytes]:
    yield BEGIN
    block = call(path, (b"x-big", b"x" * 16_000))
    for number in range(1, 200, 2):
        yield frame(HEADERS, 0, number, block[:16_000])
        yield from (frame(9, 0, number, b"\x00\x01a\x7f" + b"x" * 1000) for _ in range(100))


def windows(path: str) -> Iterator[bytes]:
    yield BEGIN + frame(HEADERS, 4, 1, call(path))
    for _ in range(100):
        yield frame(WINDOW_UPDATE, payload=struct.pack("!I", 1)) * 200


def slow_reader(path: str) -> Iterator[bytes]:
    """A window of nothing: answers have nowhere to go."""
    yield PREFACE + frame(SETTINGS, payload=struct.pack("!HI", 4, 0))
    for number in range(1, 2000, 2):
        yield frame(HEADERS, 4, number, call(path)) + frame(0, 1, number, b"\0\0\0\0\0")


FLOODS = (rapid_reset, pings, settings, many_streams, large_headers, windows, slow_reader)
Flood = Callable[[str], Iterator[bytes]]


def descriptors() -> int:
    """Those that somebody needs: an error that was caught keeps its channel until garbage is looked for."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def pour(flood: Iterator[bytes], connect: Callable[[], Awaitable[tuple[Any, asyncio.StreamWriter]]]) -> Any:
    """Send it all, or as much as the other side takes; the writer is left open."""
    _, writer = await connect()
    with contextlib.suppress(OSError):
        for data in flood:
            writer.write(data)
            async with asyncio.timeout(1):
                await writer.drain()
    return writer


async def register(folder: Path) -> str:
    """An honest plugin that registers something odd is told so."""
    async with open_channel(folder / "kubelet.sock") as channel:
        method = channel.unary_unary("/v1beta1.Registration/Register")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(plugin_api.RegisterRequest(version="v9").SerializeToString(), timeout=30)
        return str(caught.value.details())


class Served:
    """PodResources and the registration of plugins, each on its socket."""

    def __init__(self, world: World, folder: Path) -> None:
        self.sockets = {LIST: folder / "pr.sock", "/v1beta1.Registration/Register": folder / "plugins" / "kubelet.sock"}
        self.resources = PodResources(world.owner, dict.fromkeys(COUNTS, 0), limit=RateLimit(burst=1e9))
        self.plugins = DevicePlugins(folder / "plugins", lambda: world.owner.node, trouble=lambda what, why: None,
            registered=lambda resource: None, allocated=lambda resource, seconds: None)  # fmt: skip

    async def __aenter__(self) -> Served:
        await self.resources.start(self.sockets[LIST])
        await self.plugins.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.resources.close()
        await self.plugins.close()

    async def answers(self) -> None:
        """Both serve an honest caller."""
        request = api.ListPodResourcesRequest()
        assert isinstance(
            await ask(self.sockets[LIST], "List", request, api.ListPodResourcesResponse), api.ListPodResourcesResponse
        )
        folder = self.sockets["/v1beta1.Registration/Register"].parent
        assert 'version "v9" is not supported' in await register(folder)


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
def test_local_floods(tmp_path: Path, flood: Flood) -> None:
    """Whatever one peer pours into a socket of the agent's, others are answered meanwhile and afterwards."""

    async def test(world: World) -> None:
        async with Served(world, tmp_path) as served:
            await served.answers()
            before = descriptors()
            writers = []
            for path, place in served.sockets.items():
                writers.append(await pour(flood(path), lambda place=place: asyncio.open_unix_connection(str(place))))
                await served.answers()
            for writer in writers:
                writer.transport.abort()
            await until(lambda: descriptors() <= before + 1)
            await served.answers()

    in_world(tmp_path, test, real_time=True)


@pytest.mark.slow
def test_connections_have_a_bound(tmp_path: Path) -> None:
    """Connections opened one after the other are bounded, whether anything is sent on them or not; all slots are
    free again after them."""

    async def test(world: World) -> None:
        async with Served(world, tmp_path) as served:
            await served.answers()
            before = descriptors()
            for said in (b"", PREFACE, BEGIN):
                for place in served.sockets.values():
                    clients = [socket.socket(socket.AF_UNIX) for _ in range(MOST_CONNECTIONS * 2)]
                    for client in clients:
                        client.connect(str(place))
                        with contextlib.suppress(OSError):
                            client.send(said)
                        await asyncio.sleep(0)
                    await until(lambda: descriptors() <= before + MOST_CONNECTIONS * 3 + 8)
                    for client in clients:
                        client.close()
                    await until(lambda: descriptors() <= before + 1)
                    await served.answers()

    in_world(tmp_path, test, real_time=True)


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
@pytest.mark.slow
@pytest.mark.parametrize("flood", [*FLOODS, None])
@pytest.mark.process
def test_floods_of_the_service(tmp_path: Path, flood: Flood | None) -> None:
    """The same for the streams of agents, over TLS; without a flood, connections on which nothing is said."""
    certificates = make(tmp_path, name="DNS:localhost")

    async def nobody(token: str) -> str:
        raise CallerError("is not an agent")

    async def main() -> None:
        lines: list[str] = []
        journals = Journals(Rulebook(), {"0"}, caller=nobody, trouble=lambda where, what: lines.append(what))
        port = await journals.start(
            "127.0.0.1", 0, certificates.certificate.read_bytes(), certificates.key.read_bytes()
        )
        context = ssl.create_default_context(cafile=str(certificates.authority))
        context.set_alpn_protocols(["h2"])

        async def connect() -> Any:
            return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")

        async def answers() -> None:
            trusted = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
            options = (("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1))
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted, options=options) as channel:
                stream = channel.stream_stream(METHOD)(timeout=30)
                with pytest.raises(grpc.aio.AioRpcError, match="is not an agent"):
                    await stream.read()

        await answers()
        before = descriptors()
        if flood is None:
            half = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            await answers()
            for one in half:
                one.close()
        else:
            writer = await pour(flood(METHOD), connect)
            await answers()
            writer.transport.abort()
        await until(lambda: descriptors() <= before + 1)
        await answers()
        # The service forgets a stranger a moment after it has answered.
        await until(lambda: journals._admission._strangers == {})
        assert journals.nodes == {}
        assert len(lines) <= 20
        await journals.close()

    assert MOST_STRANGERS < 100
    asyncio.run(main())


class Runtime(asyncio.Protocol):
    """The other end of an NRI socket. `answers` are messages of connection 1."""

    def __init__(self) -> None:
        self.answers: list[Message] = []
        self.gone = False
        self._frames, self._messages = bytearray(), MessageDecoder()

    def data_received(self, data: bytes) -> None:
        self._frames += data
        while len(self._frames) >= 8:
            _, length = struct.unpack_from(">II", self._frames)
            if len(self._frames) < 8 + length:
                return
            self.answers += self._messages.feed(bytes(self._frames[8 : 8 + length]))
            del self._frames[: 8 + length]

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True


def request(stream: int, method: str) -> bytes:
    body = encode_request(Call("s", method, b"", None))
    return encode_frames(1, encode_message(Message(stream, REQUEST, 0, body)))


async def with_runtime(test: Callable[[Runtime, asyncio.Transport, Mux, asyncio.Event], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    _, mux = await loop.create_connection(Mux, sock=ours)
    transport, runtime = await loop.create_connection(Runtime, sock=theirs)
    held = asyncio.Event()

    async def wait(payload: bytes) -> bytes:
        await held.wait()
        return b"waited"

    TTRPCServer(
        mux, 1, {("s", "wait"): wait, ("s", "now"): lambda payload: b"n", ("s", "big"): lambda _: bytes(1 << 20)}
    )
    try:
        await test(runtime, transport, mux, held)
    finally:
        transport.abort()
        await mux.closed


def test_calls_of_a_runtime_have_a_bound() -> None:
    """More calls at once than allowed are refused one by one; the next is answered, and those that wait are too."""

    async def test(runtime: Runtime, transport: asyncio.Transport, mux: Mux, held: asyncio.Event) -> None:
        for number in range(5000):
            transport.write(request(number * 2 + 1, "wait"))
        await until(lambda: len(runtime.answers) == 5000 - MOST_CALLS)
        for answer in runtime.answers:
            with pytest.raises(RPCError) as caught:
                decode_response(answer.body)
            assert caught.value.code == RESOURCE_EXHAUSTED
        held.set()
        await until(lambda: len(runtime.answers) == 5000)
        transport.write(request(10_001, "now"))
        await until(lambda: runtime.answers[-1].stream == 10_001)
        assert decode_response(runtime.answers[-1].body) == b"n"
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(with_runtime(test))


@pytest.mark.parametrize("data", [
    encode_frames(7, b"x"), struct.pack(">II", 1, 1 << 31), encode_frames(1, HEADER.pack(1 << 30, 1, REQUEST, 0)),
    encode_frames(1, HEADER.pack(0, 2, REQUEST, 0)), encode_frames(1, HEADER.pack(4, 1, REQUEST, 0) + b"\xff" * 4),
    request(1, "wait") * 2,
])  # fmt: skip
def test_a_runtime_that_breaks_the_protocol_is_left(data: bytes) -> None:
    """The connection ends, and with it the calls that were under way."""

    async def test(runtime: Runtime, transport: asyncio.Transport, mux: Mux, held: asyncio.Event) -> None:
        transport.write(request(3, "wait") + data)
        await until(lambda: runtime.gone)
        assert await mux.closed
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(with_runtime(test))


def test_a_runtime_that_does_not_read_is_left() -> None:
    """The bytes that wait for it stay within their bound."""

    async def test(runtime: Runtime, transport: asyncio.Transport, mux: Mux, held: asyncio.Event) -> None:
        transport.pause_reading()
        for number in range(64):
            transport.write(request(number * 2 + 1, "big"))
        async with asyncio.timeout(60):
            assert await mux.closed == "the peer does not read what we send"
        assert sum(len(answer.body) for answer in runtime.answers) <= MOST_UNSENT

    asyncio.run(with_runtime(test))
