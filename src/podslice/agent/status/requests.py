"""The agent's local socket (root, mode 0600): a client that sends nothing gets the status; one that sends a line of
JSON gets lines of JSON.

    {"request": "node"}                           all that decides on the node, a LiveNode
    {"request": "moves", "moves": {...}}          a MoveRequest: moves of running containers
    {"request": "undo"}                           those of the last one, back

Lines `{"progress": ...}` come first, the last one is `{"answer": ...}`, a document, or `{"error": ...}`. The kernel
reports the client's user; one connection is one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from podslice.advise.defrag.moves import (
    LARGEST_REQUEST,
    DefragmentationResult,
    MoveOutcome,
    MoveProgress,
    MoveRequest,
    read_request,
    undo_request,
)
from podslice.agent.moves.plan_executor import MovesRefusedError, PlanExecutor
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.seam import failure_of
from podslice.agent.status.local import BACKLOG, bind_private
from podslice.status.status import AgentStatus
from podslice.values.document import document
from podslice.values.errors import InputError

SILENCE = 2.0
"""Seconds after which a silent client gets the status; our own clients end their side at once. On a busy node a client
needs some of them between connecting and sending its request."""
_PATIENCE = 5.0
_CREDENTIALS = struct.Struct("3i")

Send = Callable[[dict[str, Any]], None]
"""Sends a line. Raises `ConnectionError` where the client has hung up."""
Handler = Callable[[Mapping[str, Any], Send], Awaitable[dict[str, Any]]]
"""From a request to the document of its answer. Raises `InputError`."""


async def serve_local(
    file: SocketFile,
    status: Callable[[], AgentStatus],
    handlers: Mapping[str, Handler],
    *,
    trouble: Callable[[str, str], None] | None = None,
) -> asyncio.Server:
    """Serve until closed. An unexpected error is sent as an answer and reported to `trouble`. Raises `OSError`."""

    async def answer_or_refuse(
        line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        try:
            return await _answer_request(line, reader, writer, handlers)
        except ConnectionError:
            raise
        except Exception as error:
            failure = str(failure_of("request", error))
            if trouble is not None:
                trouble("request", failure)
            return {"error": failure}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await _request(reader)
            if line is None:
                writer.write(msgspec.json.encode(document(status())))
            else:
                writer.write(_line(await answer_or_refuse(line, reader, writer)))
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    # Only root can open the socket, so its connections are not counted; asyncio would make the queue 100 long.
    listener = bind_private(file)
    return await asyncio.start_unix_server(answer, sock=listener, limit=LARGEST_REQUEST, backlog=BACKLOG)


async def _request(reader: asyncio.StreamReader) -> bytes | None:
    """Read the client's line, None for a silent client. Raises `TimeoutError`, `ConnectionError`."""
    first = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SILENCE):
            first = await reader.read(1)
    if not first:
        return None
    async with asyncio.timeout(_PATIENCE):
        try:
            return first + await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return first + error.partial
        except asyncio.LimitOverrunError:
            return b""


async def _answer_request(
    line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]
) -> dict[str, Any]:
    """Handle a request and return the last line of the answer."""

    def send(data: dict[str, Any]) -> None:
        if reader.at_eof() or writer.is_closing():
            raise ConnectionResetError
        writer.write(_line(data))

    try:
        check_peer(writer.get_extra_info("socket"))
        request = _read(line)
        handler = handlers.get(str(request.get("request")))
        if handler is None:
            names = ", ".join(handlers)
            raise InputError(f"{str(request.get('request'))[:40]!r} is none of {names}", path="request")
        return {"answer": await handler(request, send)}
    except InputError as error:
        return {"error": str(error)}


def _read(line: bytes) -> dict[str, Any]:
    """Decode a request. Raises `InputError`."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise InputError(f"a request is one line of JSON, of at most {LARGEST_REQUEST} bytes") from None


def _line(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data) + b"\n"


def check_peer(peer: socket.socket) -> None:
    """Check that the client is root or the agent's own user, whatever the socket's mode is by now. Raises
    `InputError`."""
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid not in (0, os.geteuid()):
        raise InputError(f"user {uid} may not ask for this", remedy="ask as root")


class MoveHandlers:
    """Handlers of the requests about moves."""

    def __init__(self, moving: PlanExecutor) -> None:
        self._moving = moving

    async def moves(self, request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        """Make the requested moves. Raises `InputError`."""
        wanted = request.get("moves")
        if not isinstance(wanted, dict):
            raise InputError("is missing", path="moves")
        return await self._carry_out(read_request(wanted), send)

    async def undo(self, request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        """Undo the last moves. Raises `InputError` where none are known."""
        if self._moving.last is None:
            raise InputError(
                "this agent has carried out no plan since it started", remedy="give the result: --undo RESULT"
            )
        return await self._carry_out(undo_request(self._moving.last), send)

    async def _carry_out(self, request: MoveRequest, send: Send) -> dict[str, Any]:
        def send_progress(progress: MoveProgress) -> None:
            send({"progress": msgspec.to_builtins(progress)})

        try:
            return document(await self._moving.carry_out(request, send_progress))
        except MovesRefusedError as error:
            moves = tuple(MoveOutcome(move, "notBegun") for move in request.moves)
            return document(DefragmentationResult(moves, request.state, request.state, str(error), request.undo))
