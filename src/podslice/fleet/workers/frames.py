"""Frames between a process and its helper over a socket: the length in eight bytes, and a pickle."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">Q")
_AT_ONCE = 1 << 18
"""Bytes requested from the socket at a time."""


def pack(value: object) -> bytes:
    """Return a value as a frame."""
    data = pickle.dumps(value)
    return _LENGTH.pack(len(data)) + data


def receive(sock: socket.socket) -> Any:
    """Return the next value. Raises `EOFError` where the socket is closed."""
    size = _LENGTH.unpack(_exactly(sock, _LENGTH.size))[0]
    return pickle.loads(_exactly(sock, size))


def _exactly(sock: socket.socket, size: int) -> bytearray:
    """Receive this many bytes. Raises `EOFError` where the socket closes before."""
    found = bytearray()
    while len(found) < size:
        data = sock.recv(min(size - len(found), _AT_ONCE))
        if not data:
            raise EOFError
        found += data
    return found


async def receive_async(sock: socket.socket) -> Any:
    """Return the next value of a non-blocking socket. Raises `EOFError` where the socket is closed."""
    size = _LENGTH.unpack(await _exactly_async(sock, _LENGTH.size))[0]
    return pickle.loads(await _exactly_async(sock, size))


async def _exactly_async(sock: socket.socket, size: int) -> bytearray:
    loop, found = asyncio.get_running_loop(), bytearray()
    while len(found) < size:
        data = await loop.sock_recv(sock, min(size - len(found), _AT_ONCE))
        if not data:
            raise EOFError
        found += data
    return found
