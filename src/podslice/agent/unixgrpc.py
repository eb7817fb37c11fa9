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
