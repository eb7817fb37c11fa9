"""Durations as Go writes and reads them (`100ms`, `1m30s`), in nanoseconds."""

from __future__ import annotations

import re

from podslice.values.errors import PodsliceError
from podslice.values.golang import INT64_MAX, quote

# The micro sign and the Greek letter mu look alike; Go takes both.
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_SMALLEST = 1 << 63
"""Magnitude of the smallest duration, which has no positive counterpart."""
_MOST_DIGITS = 1000
"""Digits of a fraction that are read: nanoseconds need nine, and long integers take time."""


class DurationError(PodsliceError, ValueError):
    """Raised for text that is not a duration; the message is Go's."""


def parse_duration(text: str) -> int:
    """Return a Go duration in nanoseconds. Raises `DurationError` with the text of `time.ParseDuration`."""
    negative = text.startswith("-")
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    if not body:
        raise _invalid(text)
    total = position = 0
    while position < len(body):
        part = _PART.match(body, position)
        assert part is not None
        total += _parse_part(text, *part.groups())
        if total > _SMALLEST:
            raise _invalid(text)
        position = part.end()
    # -2**63 ns is a duration, 2**63 ns is none.
    if not negative and total > INT64_MAX:
        raise _invalid(text)
    return -total if negative else total


def _parse_part(text: str, whole: str, fraction: str | None, unit: str) -> int:
    if (not whole and not fraction) or len(whole.lstrip("0")) > 19:
        raise _invalid(text)
    if not unit:
        raise DurationError(f"time: missing unit in duration {quote(text)}")
    size = _UNITS.get(unit)
    if size is None:
        raise DurationError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
    digits = (fraction or "")[:_MOST_DIGITS]
    return int(whole or "0") * size + (int(digits) * size // int(10 ** len(digits)) if digits else 0)


def _invalid(text: str) -> DurationError:
    return DurationError(f"time: invalid duration {quote(text)}")


def format_duration(nanoseconds: int) -> str:
    """Return Go's shortest text of a duration."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, limit in (("ns", 10**3), ("µs", 10**6), ("ms", 10**9)):
        if rest < limit:
            return f"{sign}{_format_decimal(rest, _UNITS[unit])}{unit}"
    minutes, seconds = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_format_decimal(seconds, 10**9)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _format_decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
