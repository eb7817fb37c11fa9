"""Text as Go's standard library reads and prints it.

Kubernetes' messages quote values with `%q` and pass on the errors of `strconv`; to reproduce a message to the byte
we need the same quoting and the same parsers (cpu-topology 0, 1.1).
"""

from __future__ import annotations

import math
import re
import struct

from podslice.values.errors import PodsliceError

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
U64 = (1 << 64) - 1

# `\Z`, because `$` would accept a newline behind the number.
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def wrap_int64(value: int) -> int:
    """Return `value` as a signed 64-bit integer holds it: Go overflows silently."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def divide(dividend: int, divisor: int) -> int:
    """Divide integers, truncating toward zero. Raises `ZeroDivisionError`."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


class GoSyntaxError(PodsliceError, ValueError):
    """Raised where `strconv` fails; the text is Go's."""


def quote(text: str) -> str:
    """Return `text` as Go's `%q` prints it."""
    out = []
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        # Go's `%q` keeps what `unicode.IsPrint` accepts, and escapes the rest by its size.
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'


_INT64_DIGITS = 20


def _significant(digits: str) -> str:
    """Return a number without leading zeros, cut where it exceeds 64 bits anyway."""
    return digits[:1].strip("0123456789") + (digits.lstrip("+-0") or "0")[:_INT64_DIGITS]


def atoi(text: str) -> int:
    """Return a decimal integer within signed 64 bits. Raises `GoSyntaxError` with the text of `strconv.Atoi`."""
    if not _INTEGER.match(text):
        raise GoSyntaxError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    value = int(text) if len(text) <= _INT64_DIGITS else int(_significant(text))
    if not INT64_MIN <= value <= INT64_MAX:
        raise GoSyntaxError(f"strconv.Atoi: parsing {quote(text)}: value out of range")
    return value


def parse_bool(text: str) -> bool:
    """Return a boolean. Raises `GoSyntaxError` with the text of `strconv.ParseBool`."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise GoSyntaxError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+\Z")
_MISPLACED_UNDERSCORE = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])")
"""Underscores are allowed between digits and behind the `0x`."""
_FLOAT_WORD = re.compile(r"[+-]?(?:inf|infinity)\Z|nan\Z", re.IGNORECASE)


def to_float32(value: float) -> float:
    """Return `value` rounded to 32 bits; infinite beyond them."""
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def parse_float32(text: str) -> float:
    """Return a number of 32 bits. Raises `GoSyntaxError` with the text of `strconv.ParseFloat`."""
    # Misplaced underscores are left in, so that the text fails below.
    digits = text if _MISPLACED_UNDERSCORE.search(text) else text.replace("_", "")
    if _DECIMAL_FLOAT.match(digits):
        number = float(digits)
    elif _HEX_FLOAT.match(digits):
        number = _hex_float(digits)
    elif _FLOAT_WORD.match(text):
        return float(text)
    else:
        raise GoSyntaxError(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")
    rounded = to_float32(number)
    if math.isinf(rounded):
        raise GoSyntaxError(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
    return rounded


def _hex_float(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf
