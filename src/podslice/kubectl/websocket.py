"""The client's side of a WebSocket (RFC 6455): the handshake, and binary messages."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from http.client import HTTPConnection, HTTPException, HTTPResponse
from socket import socket

from podslice.kubectl.reply import Deadline, TimedResponse

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_LARGEST_MESSAGE = 16 << 20
_FOR_EVER = 1e9


def open_websocket(
    connection: HTTPConnection, target: str, headers: list[tuple[str, str]], protocol: str
) -> WebSocket | HTTPResponse:
    """Upgrade an open connection. Returns the server's answer where it refuses. Raises `HTTPException`, `OSError`."""
    key = base64.b64encode(os.urandom(16)).decode()
    wanted = (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", key),
              ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Protocol", protocol))  # fmt: skip
    connection.putrequest("GET", target, skip_accept_encoding=True)
    for name, value in (*headers, *wanted):
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    # 101 Switching Protocols is the only success (RFC 6455 4.1).
    if response.status != 101:
        return response
    expected = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    if response.headers.get("Sec-WebSocket-Accept") != expected:
        raise HTTPException("the upgrade was answered by something else")
    if response.headers.get("Sec-WebSocket-Protocol", protocol) != protocol:
        raise HTTPException(f"the server does not speak {protocol}")
    if connection.sock is None:
        raise HTTPException("the upgrade was answered, and the connection closed")
    return WebSocket(response, connection)


class WebSocket:
    """A connection for messages both ways. Read from `response`, which may have buffered the first frames together with
    the head of the upgrade."""

    def __init__(self, response: HTTPResponse, connection: HTTPConnection) -> None:
        self._input = response.fp
        self._connection = connection
        assert isinstance(connection.sock, socket)
        self._socket = connection.sock
        self._deadline = response.deadline if isinstance(response, TimedResponse) else Deadline(_FOR_EVER)
        self._quiet: float | None = None

    def wait_for(self, seconds: float) -> None:
        """Give each message so many seconds of its own, in place of one deadline for all messages."""
        self._quiet = seconds

    def send(self, payload: bytes, kind: int = _BINARY) -> None:
        """Send one message. Raises `OSError`."""
        # RFC 6455 5.3: a client must mask every frame with a fresh key.
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        self._socket.sendall(head + mask + _mask(payload, mask))

    def receive(self) -> bytes | None:
        """Return the next message, None at the end. Raises `HTTPException`, `OSError`."""
        message = bytearray()
        if self._quiet is not None:
            self._deadline.restart(self._quiet)
        while True:
            head = self._input.read(2)
            if len(head) < 2:
                return None
            final, kind, size = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x7F
            if size >= 126:
                form = "!H" if size == 126 else "!Q"
                (size,) = struct.unpack(form, self._read_exactly(struct.calcsize(form)))
            # Before the payload is read: the size is whatever the other side claims.
            if size + len(message) > _LARGEST_MESSAGE:
                raise HTTPException("a message is too large")
            mask = self._read_exactly(4) if head[1] & 0x80 else b""
            payload = self._read_exactly(size)
            payload = _mask(payload, mask) if mask else payload
            if kind == _CLOSE:
                return None
            # Control frames may come between the fragments of a message (RFC 6455 5.4).
            if kind == _PING:
                self.send(payload, _PONG)
            elif kind != _PONG:
                message += payload
                if final:
                    return bytes(message)

    def _read_exactly(self, size: int) -> bytes:
        data = self._input.read(size)
        if len(data) < size:
            raise HTTPException("the connection ends in the middle of a message")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _mask(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
