"""Answers to requests: read within bounds of size and of time, and understood or not."""

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

    def decoded(self) -> Any:
        """The JSON in it. Raises `ValueError` where there is none."""
        try:
            return msgspec.json.decode(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def read_reply(response: HTTPResponse) -> Reply:
    """A whole answer, within bounds. Raises `HTTPException` and `OSError`."""
    try:
        body = response.read(LARGEST_ANSWER + 1)
    except ValueError as error:
        raise HTTPException(f"the answer is no HTTP: {error}") from None
    if len(body) > LARGEST_ANSWER:
        raise HTTPException(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB")
    return Reply(response.status, response.headers.get_content_type(), body)


def without_secrets(reply: Reply, secrets: Iterable[str]) -> Reply:
    """A refusal that quotes the request; it is shown to people."""
    body = reply.body
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            body = body.replace(secret.encode(), b"(secret)")
    return reply._replace(body=body)


class Patience:
    """Seconds that are left for what a socket says."""

    def __init__(self, seconds: float) -> None:
        self.begin(seconds)

    def begin(self, seconds: float) -> None:
        """So many from now on."""
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """More than 0. Raises `TimeoutError`."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class TimedResponse(HTTPResponse):
    """An answer that has come to its end in time, also where it comes byte by byte."""

    def __init__(self, sock: socket, seconds: float, debuglevel: int = 0, method: str | None = None) -> None:
        super().__init__(sock, debuglevel, method)
        self.patience = Patience(seconds)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, self.patience))


class _Timed(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket, patience: Patience) -> None:
        self._raw, self._socket, self._patience = raw, sock, patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        self._socket.settimeout(self._patience.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def timed(seconds: float) -> Callable[..., TimedResponse]:
    """What a connection makes its answers with."""

    def make(sock: socket, debuglevel: int = 0, method: str | None = None) -> TimedResponse:
        return TimedResponse(sock, seconds, debuglevel, method)

    return make
