"""gRPC over Unix sockets, whose servers may be restarted at any time."""

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
"""A restarted server has the same address, and gRPC would hand out the old connection: so channels share none."""

MOST_CONNECTIONS = 128
MOST_CALLS = 256
_SERVER = (
    ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
)
"""gRPC itself bounds no connections, and waits two minutes for a client that sends nothing."""


def create_local_server() -> Any:
    """Return a gRPC server whose clients take a bounded number of descriptors and calls."""
    return grpc.aio.server(options=_SERVER, maximum_concurrent_rpcs=MOST_CALLS)


def open_channel(path: Path) -> Any:
    """Return a channel to a Unix socket that shares no connection with another channel."""
    return grpc.aio.insecure_channel(f"unix://{path}", options=_OPTIONS)


def check_listener(path: Path) -> None:
    """Connect to a Unix socket and hang up, to learn why gRPC could not connect, which it does not say.

    Raises `FileNotFoundError`, `ConnectionRefusedError`, `OSError`.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            client.connect(str(path))
    except OSError as error:
        if error.errno != errno.EAGAIN:  # EAGAIN: the queue of the listener is full, so there is one
            raise


def is_served(path: Path) -> bool:
    """Whether a server listens on this Unix socket."""
    try:
        check_listener(path)
    except OSError:
        return False
    return True
