"""Values between a process and the one that works for it, over a socket: its length in eight bytes, and its pickle."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">Q")
_AT_ONCE = 1 << 18
"""Bytes asked for at a time."""


def packed(value: object) -> bytes:
    """A frame."""
    data = pickle.dumps(value)
    return _LENGTH.pack(len(data)) + data


def received(sock: socket.socket) -> Any:
    """The next value. Raises `EOFError` where nobody sends any more."""
    size = _LENGTH.unpack(_exactly(sock, _LENGTH.size))[0]
    return pickle.loads(_exactly(sock, size))


def _exactly(sock: socket.socket, size: int) -> bytearray:
    found = bytearray()
    while len(found) < size:
        data = sock.recv(min(size - len(found), _AT_ONCE))
        if not data:
            raise EOFError
        found += data
    return found


async def arrived(sock: socket.socket) -> Any:
    """The next value of a socket that does not block. Raises `EOFError` where nobody sends any more."""
    size = _LENGTH.unpack(await _all_of(sock, _LENGTH.size))[0]
    return pickle.loads(await _all_of(sock, size))


async def _all_of(sock: socket.socket, size: int) -> bytearray:
    loop, found = asyncio.get_running_loop(), bytearray()
    while len(found) < size:
        data = await loop.sock_recv(sock, min(size - len(found), _AT_ONCE))
        if not data:
            raise EOFError
        found += data
    return found
