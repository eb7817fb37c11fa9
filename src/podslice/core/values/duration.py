"""Durations as Go writes them (`100ms`, `1m30s`), in nanoseconds."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


class DurationError(ValueError):
    """Text that is not a duration."""


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration text. Raises `DurationError`."""
    body = text.lstrip("+-") if text[:1] in "+-" else text
    if body == "0":
        return 0
    total = Fraction(0)
    position = 0
    for part in _PART.finditer(body):
        if part.start() != position:
            break
        total += Fraction(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not body or position != len(body):
        raise DurationError(f'time: invalid duration "{text}"')
    return int(-total if text.startswith("-") else total)


def format_duration(nanoseconds: int) -> str:
    """Go's shortest text of a duration."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, limit in (("ns", 10**3), ("µs", 10**6), ("ms", 10**9)):
        if rest < limit:
            return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, seconds = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds, 10**9)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
