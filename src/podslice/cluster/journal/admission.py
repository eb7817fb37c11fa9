"""Admission of streams: an agent opens one with a token of its own node, in a protocol that this program speaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc

from podslice.cluster.journal.callers import CallerError
from podslice.cluster.journal.listener import HELLO_SECONDS, MOST_STRANGERS
from podslice.replica.compatibility import OLDEST_PROTOCOL
from podslice.replica.shared_values import SharedValues
from podslice.replica.stream_messages import Hello, Up, decode_up
from podslice.service.pacing import LineLimit
from podslice.values.errors import InputError, PodsliceError

REVIEW_SECONDS = 300.0
"""Seconds between reviews of a stream's token, which may have been revoked, or its pod be gone."""


class ProtocolError(PodsliceError):
    """Raised for an agent that speaks another protocol."""


class StreamAdmission:
    """Admits streams. `caller` returns the node of a token, and raises `PodsliceError` for an unknown one; `trouble`
    gets those that are refused; `version` is the service's own."""

    def __init__(
        self,
        caller: Callable[[str], Awaitable[str]],
        *,
        trouble: Callable[[str, str], None],
        version: str,
        clock: Callable[[], float],
    ) -> None:
        self._caller, self._trouble, self._version, self._clock = caller, trouble, version, clock
        self._strangers: dict[str, int] = {}
        """Number of streams by address that have not identified themselves."""
        self._lines = LineLimit()

    async def identify(self, context: Any) -> tuple[str, Hello]:
        """Return the node of a new stream, and what its agent says first; refuse the stream of anyone else."""
        peer = str(context.peer()).rpartition(":")[0]
        if self._strangers.get(peer, 0) >= MOST_STRANGERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams of this address say not who they are"
            )
        self._strangers[peer] = self._strangers.get(peer, 0) + 1
        try:
            node = await self._caller(read_token(context))
            return node, await self._read_hello(node, context)
        except CallerError as error:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        except ProtocolError as error:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except PodsliceError as error:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, str(error)[:500])
        finally:
            self._strangers[peer] -= 1
            if not self._strangers[peer]:
                del self._strangers[peer]

    async def _refuse(self, context: Any, code: grpc.StatusCode, problem: str) -> NoReturn:
        """Refuse a stream. It is logged within a limit: anyone who reaches the port can cause refusals."""
        left_out = self._lines.add(self._clock())
        if left_out is not None:
            more = f" ({left_out} lines like this were left out before)" if left_out else ""
            self._trouble("agent", f"{context.peer()}: {problem}{more}")
        await context.abort(code, problem)
        raise AssertionError("abort raises")

    async def _read_hello(self, node: str, context: Any) -> Hello:
        """Read the first message of a stream. Raises `CallerError` for an agent that claims another node."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = decode_message(await context.read())
        except TimeoutError:
            raise CallerError("says nothing") from None
        if not isinstance(message, Hello):
            raise CallerError("does not say who it is")
        if message.node != node:
            raise CallerError(f"is the agent of {node}, and speaks for {message.node[:253]!r}")
        if message.protocol < OLDEST_PROTOCOL:
            oldest = f"this service ({self._version}) speaks {OLDEST_PROTOCOL} or newer"
            raise ProtocolError(f"the agent ({message.version[:80]}) speaks protocol {message.protocol}, {oldest}")
        return message

    async def review(self, context: Any, node: str) -> None:
        """Review a stream's token again and again. Raises `ConnectionError` once it is not this node's any more."""
        token = read_token(context)
        while True:
            await asyncio.sleep(REVIEW_SECONDS)
            # Errors of the API server end no stream: only its verdict does.
            with contextlib.suppress(PodsliceError):
                if await self._is_valid(token, node):
                    continue
                raise _token_error()

    async def _is_valid(self, token: str, node: str) -> bool:
        try:
            return await self._caller(token) == node
        except CallerError:
            return False


def _token_error() -> Exception:
    return ConnectionError("its token does not count any more")


def read_token(context: Any) -> str:
    """Return the bearer token of a call, empty where there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return ""


def decode_message(data: Any, common: SharedValues | None = None) -> Up:
    """Decode a message. Raises `InputError`."""
    if not isinstance(data, bytes):
        raise InputError("ended before it began", path="message")
    return decode_up(data, common)
