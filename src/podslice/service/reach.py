"""Why the other side of a connection gave no answer, or a bad one, in words that tell a person where to look."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import msgspec

LARGEST_SAID = 16 << 10
_LONGEST = 400
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class _ToldStatus(msgspec.Struct):
    """What of a v1 Status people read."""

    message: str = ""


def why(error: BaseException) -> str:
    """The first cause of a failed connection that says something: a name, a refusal, a certificate, time."""
    causes = list(_causes(error))
    for cause in causes:
        told = _told(cause)
        if told:
            return told
    if any(isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in causes):
        return "no answer in time"
    return _line(f"{type(error).__name__}: {error}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(16):
        if seen is None:
            return
        yield seen
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        else:
            seen = seen.__cause__ or seen.__context__


def _told(cause: BaseException) -> str:
    match cause:
        case ssl.SSLCertVerificationError():
            return f"TLS: its certificate is not accepted: {_line(cause.verify_message)}"
        case ssl.SSLWantReadError() | ssl.SSLWantWriteError():
            return ""
        case ssl.SSLEOFError():
            return "TLS: it hung up during the handshake"
        case ssl.SSLError():
            return f"TLS: {_line((cause.reason or str(cause)).replace('_', ' ').lower())}"
        case socket.gaierror():
            return f"DNS: {_line(cause.strerror or str(cause))}"
        case TimeoutError():
            return ""
        case OSError(errno=int() as number):
            return os.strerror(number).lower()
    return ""


def answered(code: int, phrase: str, body: bytes = b"") -> str:
    """An answer that is none, with what the server says about it, and what it means for who asked."""
    said = _said(body)
    text = f"{code} {_line(phrase)}" + (f": {said}" if said else "")
    if code == _UNAUTHORIZED:
        return f"{text} (the token is expired, or not of this cluster)"
    if code == _FORBIDDEN:
        return f"{text} (grant this right: docs/agent.md, Rights)"
    return text


async def said_by(response: Any) -> bytes:
    """The first words of an answer that is none."""
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk[:LARGEST_SAID]
        if len(data) >= LARGEST_SAID:
            break
    return data


def _said(body: bytes) -> str:
    """The message of a Status, or a text as kubelets answer."""
    try:
        return _line(msgspec.json.decode(body, type=_ToldStatus).message)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "" if body.lstrip()[:1] in (b"{", b"[", b"<") else _line(body.decode(errors="replace"))


def _line(text: str) -> str:
    """One line without control characters, not too long."""
    return "".join(char if char.isprintable() else " " for char in text[:_LONGEST]).strip()
