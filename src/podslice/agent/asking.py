"""Asking the agent on this machine for its status, without anything that an agent itself needs."""

from __future__ import annotations

import socket

import msgspec

from podslice.agent.status import AgentStatus
from podslice.core.errors import InputError

LARGEST_STATUS = 64 << 20


def read_status(path: str) -> AgentStatus:
    """Ask the agent behind a socket. Raises `InputError` when there is none."""
    chunks: list[bytes] = []
    size = 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(path)
            while chunk := client.recv(1 << 16):
                chunks.append(chunk)
                size += len(chunk)
                if size > LARGEST_STATUS:
                    raise InputError("the answer is too large", source=path)
    except OSError as error:
        raise InputError(
            f"no agent answers: {error.strerror or error}", source=path, remedy="start it: podslice agent --config FILE"
        ) from None
    try:
        return msgspec.json.decode(b"".join(chunks), type=AgentStatus)
    except (msgspec.DecodeError, RecursionError):
        raise InputError("what answers is not a podslice agent of this version", source=path) from None
