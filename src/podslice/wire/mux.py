"""NRI's connection multiplexer: several byte streams over one socket.

A frame is an 8-byte header (connection id, payload length; unsigned 32-bit, big endian) and the payload. Frames of
different connections interleave; the bytes of one connection arrive in order. Towards the runtime no payload exceeds
4096 bytes, because containerd drops a plugin that sends a larger frame, and its containers then run unpinned.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

FRAME_HEADER = struct.Struct(">II")
LARGEST_SENT = 4096
"""Payload bytes of one frame we send."""
LARGEST_RECEIVED = (4 << 20) + 10
"""Payload bytes of one frame we accept: the largest ttrpc message with its header."""
MOST_UNSENT = 16 << 20
"""Bytes a peer that does not read may make us hold before we hang up."""


class WireError(Exception):
    """The peer breaks the protocol; the connection is of no further use."""


class FrameDecoder:
    """Cuts a byte stream into frames. Holds at most one incomplete frame."""

    __slots__ = ("_buffer", "_largest")

    def __init__(self, largest: int = LARGEST_RECEIVED) -> None:
        self._buffer = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, as (connection id, payload). Raises `WireError` for one too large."""
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
            if end - start < length:
                break
            frames.append((connection, bytes(buffer[start : start + length])))
            position = start + length
        if position:
            del buffer[:position]
        return frames


def encode_frames(connection: int, data: bytes) -> bytes:
    """`data` as frames of one connection, none with more than `LARGEST_SENT` bytes of payload."""
    if len(data) <= LARGEST_SENT:
        return FRAME_HEADER.pack(connection, len(data)) + data
    parts: list[bytes] = []
    for start in range(0, len(data), LARGEST_SENT):
        piece = data[start : start + LARGEST_SENT]
        parts += (FRAME_HEADER.pack(connection, len(piece)), piece)
    return b"".join(parts)


Receiver = Callable[[bytes], None]


class Mux(asyncio.Protocol):
    """The asyncio side of one socket. Register a receiver per connection id with `receive`, send with `send`.

    A receiver that raises `WireError`, a frame for a connection nobody opened, and a peer that does not read are
    answered by hanging up. `closed` is done when the socket is gone; its result is the reason, None after `close`.
    """

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._receivers: dict[int, Receiver] = {}
        self._on_close: list[Callable[[], None]] = []
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None
        self.closed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def receive(self, connection: int, receiver: Receiver, on_close: Callable[[], None] | None = None) -> None:
        """Hand the bytes of a connection to `receiver`, and tell `on_close` when the socket is gone."""
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
        """Hang up; what was sent before still goes out."""
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
        for tell in self._on_close:
            tell()
        if not self.closed.done():
            self.closed.set_result(self._reason)
