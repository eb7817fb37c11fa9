"""gRPC to a Unix socket whose owner may be started again at any time."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import grpc

_LARGEST = 64 << 20
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _LARGEST),
)
"""Who was started again has the same address; no connection to the one before may be used for it."""

MOST_CONNECTIONS = 128
MOST_CALLS = 256
_SERVER = (
    ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
)
"""gRPC itself bounds no connections, and waits two minutes for who says nothing."""


def local_server() -> Any:
    """A server whose peers take a bounded number of descriptors and calls."""
    return grpc.aio.server(options=_SERVER, maximum_concurrent_rpcs=MOST_CALLS)


def channel_to(path: Path) -> Any:
    """A connection of its own."""
    return grpc.aio.insecure_channel(f"unix://{path}", options=_OPTIONS)


def knock(path: Path) -> None:
    """gRPC only says that it could not connect. Raises `FileNotFoundError`, `ConnectionRefusedError`, `OSError`."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            client.connect(str(path))
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise


def is_served(path: Path) -> bool:
    """Somebody listens there."""
    try:
        knock(path)
    except OSError:
        return False
    return True
