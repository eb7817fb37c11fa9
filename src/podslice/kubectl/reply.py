"""Answers to requests, read within bounds of size and time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from http.client import HTTPException, HTTPResponse
from socket import socket
from typing import Any, NamedTuple

import msgspec

LARGEST_ANSWER = 64 << 20
_SHORTEST_SECRET = 6


class Reply(NamedTuple):
    """Status code, content type and body of an answer."""

    code: int
    kind: str
    body: bytes

    def decode(self) -> Any:
        """Decode the body as JSON. Raises `ValueError` for another body."""
        try:
            return msgspec.json.decode(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def read_reply(response: HTTPResponse) -> Reply:
    """Read a whole answer of at most `LARGEST_ANSWER` bytes. Raises `HTTPException` and `OSError`."""
    try:
        # One byte beyond the bound shows that there is more.
        body = response.read(LARGEST_ANSWER + 1)
    except ValueError as error:
        raise HTTPException(f"the answer is not HTTP: {error}") from None
    if len(body) > LARGEST_ANSWER:
        raise HTTPException(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB")
    return Reply(response.status, response.headers.get_content_type(), body)


def without_secrets(reply: Reply, secrets: Iterable[str]) -> Reply:
    """Replace secrets in an answer: a refusal may quote the request, and is printed. Shorter secrets than
    `_SHORTEST_SECRET` stay, because they would match ordinary words."""
    body = reply.body
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            body = body.replace(secret.encode(), b"(secret)")
    return reply._replace(body=body)


class Deadline:
    """The point in time at which a read must have ended."""

    def __init__(self, seconds: float) -> None:
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Set the deadline to so many seconds from now."""
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds that remain, more than 0. Raises `TimeoutError` for none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class TimedResponse(HTTPResponse):
    """An answer with one deadline for all of it. The timeout of a socket alone would start again with every byte."""

    def __init__(self, sock: socket, seconds: float, debuglevel: int = 0, method: str | None = None) -> None:
        super().__init__(sock, debuglevel, method)
        self.deadline = Deadline(seconds)
        # Nothing has been read yet, so the detached buffer is empty.
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, self.deadline))


class _TimedStream(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket, deadline: Deadline) -> None:
        self._raw, self._socket, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        # Each read gets what is left of the whole answer's time.
        self._socket.settimeout(self._deadline.remaining())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def timed_response_class(seconds: float) -> Callable[..., TimedResponse]:
    """Return a factory for `HTTPConnection.response_class` whose answers must end within so many seconds."""

    def make(sock: socket, debuglevel: int = 0, method: str | None = None) -> TimedResponse:
        return TimedResponse(sock, seconds, debuglevel, method)

    return make
