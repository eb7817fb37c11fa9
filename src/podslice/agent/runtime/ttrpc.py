"""The ttrpc protocol as NRI uses it: a small relative of gRPC, in one of several byte streams over one socket.

A frame of NRI's multiplexer is an 8-byte header (connection id, payload length; unsigned 32-bit, big endian) and the
payload. Frames of different connections interleave; the bytes of one connection arrive in order. Towards the runtime no
payload exceeds 4096 bytes, because containerd drops a plugin that sends a larger frame, and its containers then run
unpinned.

A message of ttrpc is a 10-byte header (body length u32, stream id u32, type u8, flags u8, big endian) and the body.
Clients open streams with odd ids. Only unary calls are needed here: a request that announces more data is refused.
Codes are gRPC's.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, cast

from google.protobuf.message import DecodeError

from podslice.service.proto import ttrpc_pb2
from podslice.values.errors import PodsliceError

# Streams over one socket

FRAME_HEADER = struct.Struct(">II")
LARGEST_SENT = 4096
"""Largest payload of a frame that is sent, in bytes."""
LARGEST_RECEIVED = (4 << 20) + 10
"""Largest payload of a frame that is accepted, in bytes: the largest ttrpc message with its header."""
MOST_UNSENT = 16 << 20
"""Bytes buffered for a peer that does not read; beyond that the connection is closed."""


class WireError(PodsliceError):
    """The peer violated the protocol; the connection cannot be used any more."""


class FrameDecoder:
    """Splits a byte stream into frames. Holds at most one incomplete frame."""

    __slots__ = ("_buffer", "_largest")

    def __init__(self, largest: int = LARGEST_RECEIVED) -> None:
        self._buffer = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that `data` completes, as (connection id, payload). Raises `WireError` for one too
        large."""
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        end = len(buffer)
        while end - position >= FRAME_HEADER.size:
            connection, length = FRAME_HEADER.unpack_from(buffer, position)
            if length > self._largest:
                raise WireError(f"frame of {length} bytes on connection {connection}; at most {self._largest} allowed")
            start = position + FRAME_HEADER.size
            # The rest of the frame is yet to come; the header is read again with it.
            if end - start < length:
                break
            frames.append((connection, bytes(buffer[start : start + length])))
            position = start + length
        if position:
            del buffer[:position]
        return frames


def encode_frames(connection: int, data: bytes) -> bytes:
    """Return `data` as frames of one connection, each with at most `LARGEST_SENT` bytes of payload."""
    if len(data) <= LARGEST_SENT:
        return FRAME_HEADER.pack(connection, len(data)) + data
    parts: list[bytes] = []
    for start in range(0, len(data), LARGEST_SENT):
        piece = data[start : start + LARGEST_SENT]
        parts += (FRAME_HEADER.pack(connection, len(piece)), piece)
    return b"".join(parts)


Receiver = Callable[[bytes], None]


class Mux(asyncio.Protocol):
    """The asyncio protocol of one socket. Register a receiver per connection id with `receive`, send with `send`.

    The socket is closed when a receiver raises `WireError`, a frame names an unknown connection, or the peer does not
    read. `closed` is done when the socket is gone; its result is the reason, None after `close`.
    """

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._receivers: dict[int, Receiver] = {}
        self._on_close: list[Callable[[], None]] = []
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None
        self.closed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def receive(self, connection: int, receiver: Receiver, on_close: Callable[[], None] | None = None) -> None:
        """Pass the bytes of a connection to `receiver`, and call `on_close` when the socket is gone."""
        self._receivers[connection] = receiver
        if on_close is not None:
            self._on_close.append(on_close)

    def send(self, connection: int, data: bytes) -> None:
        """Send bytes on a connection. Raises `WireError` when the socket is gone or the peer stopped reading."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise WireError("the connection is closed")
        if transport.get_write_buffer_size() + len(data) > MOST_UNSENT:
            self._abort("the peer does not read what we send")
            raise WireError("the peer does not read what we send")
        transport.write(encode_frames(connection, data))

    def close(self) -> None:
        """Close the socket after sending what is buffered."""
        if self._transport is not None:
            self._transport.close()

    def _abort(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for connection, payload in self._decoder.feed(data):
                receiver = self._receivers.get(connection)
                if receiver is None:
                    raise WireError(f"data for connection {connection}, which is not open")
                receiver(payload)
        except WireError as error:
            self._abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reason is None and exc is not None:
            self._reason = str(exc)
        for callback in self._on_close:
            callback()
        if not self.closed.done():
            self.closed.set_result(self._reason)


# Calls in a stream

HEADER = struct.Struct(">IIBB")
LARGEST_BODY = 4 << 20
"""Largest body of one message in bytes, as in the reference implementation."""
MOST_CALLS = 128
"""Limit of concurrent calls on one connection; more are answered with `RESOURCE_EXHAUSTED`."""
REQUEST, RESPONSE = 1, 2
REMOTE_CLOSED, REMOTE_OPEN = 1, 2
"""Flags of a request: nothing follows, more follows. containerd sends neither with a plain call."""

OK, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 0, 2, 3, 4
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 8, 9, 12, 13, 14


class RPCError(PodsliceError):
    """A call failed with a gRPC code. Raised by a handler it is sent to the caller; raised by `Client.call` it is the
    answer."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"code {code}: {message}")


class Message(NamedTuple):
    """One ttrpc message."""

    stream: int
    type: int
    flags: int
    body: bytes


class MessageDecoder:
    """Splits a byte stream into messages. Holds at most one incomplete message."""

    __slots__ = ("_buffer", "_largest")

    def __init__(self, largest: int = LARGEST_BODY) -> None:
        self._buffer = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes. Raises `WireError` for one too large."""
        buffer = self._buffer
        buffer += data
        messages = []
        position = 0
        end = len(buffer)
        while end - position >= HEADER.size:
            length, stream, kind, flags = HEADER.unpack_from(buffer, position)
            if length > self._largest:
                raise WireError(f"message of {length} bytes; at most {self._largest} allowed")
            start = position + HEADER.size
            if end - start < length:
                break
            messages.append(Message(stream, kind, flags, bytes(buffer[start : start + length])))
            position = start + length
        if position:
            del buffer[:position]
        return messages


def encode_message(message: Message) -> bytes:
    """Return header and body. Raises `WireError` for a body that no peer accepts."""
    if len(message.body) > LARGEST_BODY:
        raise WireError(f"message of {len(message.body)} bytes; at most {LARGEST_BODY} allowed")
    return HEADER.pack(len(message.body), message.stream, message.type, message.flags) + message.body


class Call(NamedTuple):
    """A decoded request; `timeout` in seconds, None for no limit."""

    service: str
    method: str
    payload: bytes
    timeout: float | None


def decode_request(body: bytes) -> Call:
    """Decode a request. Raises `WireError` for bytes that are none."""
    try:
        request = ttrpc_pb2.Request.FromString(body)
    except DecodeError as error:
        raise WireError(f"not a request: {error}") from None
    timeout = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
    return Call(request.service, request.method, request.payload, timeout)


def encode_request(call: Call) -> bytes:
    """Encode a request."""
    # 0 means no limit on the wire, so the shortest timeout is one nanosecond.
    nanoseconds = 0 if call.timeout is None else max(1, int(call.timeout * 1e9))
    request = ttrpc_pb2.Request(
        service=call.service, method=call.method, payload=call.payload, timeout_nano=nanoseconds
    )
    return request.SerializeToString()


def decode_response(body: bytes) -> bytes:
    """Return the payload of a response. Raises `RPCError` for a code other than OK, `WireError` for other bytes."""
    try:
        response = ttrpc_pb2.Response.FromString(body)
    except DecodeError as error:
        raise WireError(f"not a response: {error}") from None
    if response.status.code != OK:
        raise RPCError(response.status.code, response.status.message)
    return response.payload


def encode_response(payload: bytes, code: int = OK, message: str = "") -> bytes:
    """Encode a response."""
    response = ttrpc_pb2.Response(payload=payload)
    if code != OK:
        response.status.code = code
        response.status.message = message
    return response.SerializeToString()


Handler = Callable[[bytes], "bytes | Awaitable[bytes]"]


class TTRPCServer:
    """Answers calls on one connection of a mux. `handlers` maps (service, method) to a function of the payload.

    A handler that returns bytes is answered at once, in the same turn of the event loop; one that returns an awaitable
    runs as a task under the caller's deadline. A `WireError` of a handler ends the connection. Any other unexpected
    error is passed to `on_crash`, and the caller gets `INTERNAL`.
    """

    def __init__(
        self,
        mux: Mux,
        connection: int,
        handlers: Mapping[tuple[str, str], Handler],
        *,
        on_crash: Callable[[Exception], None] | None = None,
    ) -> None:
        self._crashed = on_crash
        self._mux = mux
        self._connection = connection
        self._handlers = handlers
        self._decoder = MessageDecoder()
        self._running: dict[int, asyncio.Task[None]] = {}
        mux.receive(connection, self._feed, self._closed)

    def _feed(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            self._take(message)

    def _take(self, message: Message) -> None:
        if message.stream % 2 == 0:
            raise WireError(f"stream {message.stream} is not a client's: ids are odd")
        if message.type != REQUEST:
            raise WireError(f"message of type {message.type} where a request belongs")
        if message.stream in self._running:
            raise WireError(f"stream {message.stream} is in use")
        # A call that is refused here still gets its answer; only a broken protocol ends the connection.
        if message.flags & REMOTE_OPEN:
            self._answer(message.stream, b"", UNIMPLEMENTED, "streaming is not supported")
            return
        call = decode_request(message.body)
        handler = self._handlers.get((call.service, call.method))
        if handler is None:
            self._answer(message.stream, b"", UNIMPLEMENTED, f"{call.service}/{call.method} is not implemented")
            return
        if len(self._running) >= MOST_CALLS:
            self._answer(message.stream, b"", RESOURCE_EXHAUSTED, f"more than {MOST_CALLS} calls at once")
            return
        try:
            result = handler(call.payload)
        except WireError:
            raise
        except Exception as error:
            self._fail(message.stream, error)
            return
        # Answered in this turn of the loop: order is kept, and a fast call does not wait for another task.
        if isinstance(result, bytes):
            self._answer(message.stream, result)
        else:
            task = asyncio.ensure_future(self._finish(message.stream, result, call.timeout))
            self._running[message.stream] = task

    async def _finish(self, stream: int, result: Awaitable[bytes], timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                payload = await result
        except TimeoutError:
            self._answer(stream, b"", DEADLINE_EXCEEDED, "the call took longer than its deadline")
        except Exception as error:
            self._fail(stream, error)
        else:
            self._answer(stream, payload)
        finally:
            self._running.pop(stream, None)

    def _fail(self, stream: int, error: Exception) -> None:
        if isinstance(error, RPCError):
            self._answer(stream, b"", error.code, error.message)
        elif isinstance(error, DecodeError):
            self._answer(stream, b"", INVALID_ARGUMENT, f"the payload cannot be decoded: {error}")
        else:
            self._answer(stream, b"", INTERNAL, f"{type(error).__name__}: {error}")
            if self._crashed is not None:
                self._crashed(error)

    def _answer(self, stream: int, payload: bytes, code: int = OK, message: str = "") -> None:
        try:
            data = encode_message(Message(stream, RESPONSE, 0, encode_response(payload, code, message)))
        except WireError as error:
            data = encode_message(Message(stream, RESPONSE, 0, encode_response(b"", RESOURCE_EXHAUSTED, str(error))))
        try:
            self._mux.send(self._connection, data)
        except WireError:
            self._closed()

    def _closed(self) -> None:
        """Cancel running calls: their answers cannot be sent any more."""
        for task in self._running.values():
            task.cancel()


class Client:
    """Calls the other side over one connection of a mux; `flags` are set in every request."""

    def __init__(self, mux: Mux, connection: int, *, flags: int = REMOTE_CLOSED) -> None:
        self._mux = mux
        self._flags = flags
        self._connection = connection
        self._decoder = MessageDecoder()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next = 1
        mux.receive(connection, self._feed, self._closed)

    async def call(self, service: str, method: str, payload: bytes, *, timeout: float | None = None) -> bytes:
        """Call a method and return the answer's payload.

        Raises `RPCError`: the answer's own, `DEADLINE_EXCEEDED` after `timeout` seconds, or `UNAVAILABLE` when the
        connection is gone.
        """
        # Odd ids only: even ones belong to the server.
        stream, self._next = self._next, self._next + 2
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = answer
        body = encode_request(Call(service, method, payload, timeout))
        try:
            self._mux.send(self._connection, encode_message(Message(stream, REQUEST, self._flags, body)))
            async with asyncio.timeout(timeout):
                return decode_response(await answer)
        except TimeoutError:
            raise RPCError(DEADLINE_EXCEEDED, f"no answer to {method} within {timeout} s") from None
        except WireError as error:
            raise RPCError(UNAVAILABLE, str(error)) from error
        finally:
            self._waiting.pop(stream, None)

    def _feed(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if message.stream % 2 == 0 or message.stream >= self._next:
                raise WireError(f"an answer for stream {message.stream}, which was not opened")
            if message.type != RESPONSE:
                raise WireError(f"message of type {message.type} where a response belongs")
            waiting = self._waiting.get(message.stream)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.body)

    def _closed(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(WireError("the connection was closed"))
