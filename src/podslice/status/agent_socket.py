"""Requests to the agent on this machine, without any of the agent's own dependencies."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podslice.service.http.lines import LineCutter
from podslice.status.status import AgentStatus
from podslice.values.errors import InputError

LARGEST_STATUS = 64 << 20
LONGEST_MOVE = 600.0
"""Seconds within which a move makes progress: a container may be left five minutes, and its memory follows."""


def read_status(path: str) -> AgentStatus:
    """Read the status of the agent behind a socket. Raises `InputError` when there is none."""
    data = b"".join(_exchange(path, b"", patience=5))
    try:
        return msgspec.json.decode(data, type=AgentStatus)
    except (msgspec.DecodeError, RecursionError):
        raise InputError("what answers is not a podslice agent of this version", source=path) from None


def ask(path: str, request: Mapping[str, Any], *, patience: float = 30.0) -> Iterator[dict[str, Any]]:
    """Yield the lines of the answer to a request: `progress`, then `answer`. Raises `InputError`, also with the agent's
    own `error`."""
    lines, answered = LineCutter(LARGEST_STATUS), False
    for chunk in _exchange(path, msgspec.json.encode(request) + b"\n", patience=patience):
        for one in lines.feed(chunk):
            data = _read(one, path)
            if "error" in data:
                raise InputError(str(data["error"]), source=path)
            answered = answered or "answer" in data
            yield data
    if not answered:
        # An agent that knows no requests sends its status, and no line of an answer.
        problem = "it ended before its answer did" if not lines.is_in_line else "what answers takes no requests"
        raise InputError(problem, source=path, remedy="see podslice status, or the agent's log")


def _read(line: bytes, path: str) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        data = {}
    if not data.keys() & {"progress", "answer", "error"}:
        raise InputError("what answers is not a podslice agent of this version", source=path)
    return data


def _exchange(path: str, request: bytes, *, patience: float) -> Iterator[bytes]:
    """Send the request and yield the answer in pieces. An empty request gets the agent's status. Raises
    `InputError`."""
    size = 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(patience)
            client.connect(path)
            if request:
                # An agent that refuses the connection closes it while we write; its answer can still be read.
                with contextlib.suppress(BrokenPipeError):
                    client.sendall(request)
            else:
                client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(1 << 16):
                size += len(chunk)
                if size > LARGEST_STATUS:
                    raise InputError("the answer is too large", source=path)
                yield chunk
    except ConnectionResetError:
        raise InputError(
            "it hung up without an answer",
            source=path,
            remedy="see its log; an older agent takes no requests",
        ) from None
    except OSError as error:
        raise InputError(
            f"no agent answers: {error.strerror or error}", source=path, remedy="start it: podslice agent --config FILE"
        ) from None
