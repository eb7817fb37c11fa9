"""Messages about calls that failed: why no answer came, or what the refusal means, and where to look for the cause."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import msgspec

LARGEST_SAID = 16 << 10
"""Bytes of a refusal's body that are read."""
_LONGEST = 400
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class _ErrorStatus(msgspec.Struct):
    """The part of a v1 Status that is shown."""

    message: str = ""


def describe_failure(error: BaseException) -> str:
    """Return the first cause in an error's chain that explains a failed call: DNS, a refusal, a certificate, time."""
    causes = list(_causes(error))
    for cause in causes:
        text = _describe(cause)
        if text:
            return text
    if any(isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in causes):
        return "no answer in time"
    return _line(f"{type(error).__name__}: {error}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(16):  # libraries chain errors several deep, and a chain may have a cycle
        if seen is None:
            return
        yield seen
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        else:
            seen = seen.__cause__ or seen.__context__


def _describe(cause: BaseException) -> str:
    """Return what one error of a chain means; empty for those that only wrap another."""
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


def describe_answer(code: int, phrase: str, body: bytes = b"") -> str:
    """Return a line about an error answer: status, the server's own message, and for 401 and 403 what they mean
    here."""
    message = _message_of(body)
    text = f"{code} {_line(phrase)}" + (f": {message}" if message else "")
    if code == _UNAUTHORIZED:
        return f"{text} (the token is expired, or not of this cluster)"
    if code == _FORBIDDEN:
        return f"{text} (grant this right: docs/agent.md, Rights)"
    return text


async def read_error_body(response: Any) -> bytes:
    """Read the first `LARGEST_SAID` bytes of an error answer."""
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk[:LARGEST_SAID]
        if len(data) >= LARGEST_SAID:
            break
    return data


def _message_of(body: bytes) -> str:
    """Return the message of a v1 Status, or the plain text with which kubelets answer."""
    try:
        return _line(msgspec.json.decode(body, type=_ErrorStatus).message)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "" if body.lstrip()[:1] in (b"{", b"[", b"<") else _line(body.decode(errors="replace"))


def _line(text: str) -> str:
    """Return a text as one line of at most `_LONGEST` characters, without control characters."""
    return "".join(char if char.isprintable() else " " for char in text[:_LONGEST]).strip()
