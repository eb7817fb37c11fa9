"""The errors of Go's encoding/json for broken JSON, which are part of what a kubelet reports (cpu-topology 8.3)."""

from __future__ import annotations

import re
from typing import NoReturn

from podslice.values.errors import PodsliceError
from podslice.values.golang import quote

# Go's own limit.
MAX_DEPTH = 10_000


def syntax_error(text: str) -> str:
    """Return Go's message for broken JSON, empty for valid text."""
    return fault(text.encode("utf-8", errors="replace"))


_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING_PART = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_DIGITS = re.compile(rb"[0-9]*")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_SIMPLE_ESCAPES = frozenset(b'bfnrt\\/"')
_LITERALS = {b"t": b"true", b"f": b"false", b"n": b"null"}


class _FaultError(PodsliceError):
    """Raised to stop the scanner; its argument is Go's message."""


def fault(data: bytes) -> str:
    """Return Go's message for the first fault in a JSON text, empty for valid text."""
    try:
        _Scanner(data).scan()
    except _FaultError as found:
        return str(found)
    return ""


class _Scanner:
    """Walks a JSON text as Go's scanner does, byte by byte where it matters.

    The end of the text counts as a blank first (which can be a fault of its own, as inside a number) and then as an
    unexpected end.
    """

    def __init__(self, data: bytes) -> None:
        # The blank lets a number at the end of the text finish without a check for the end at every byte.
        self.data = data + b" "
        self.end = len(data)
        self.at = 0

    def scan(self) -> None:
        open_objects: list[bool] = []
        self._value(open_objects)
        while open_objects:
            char = self._next()
            if open_objects[-1]:
                self._after_member(char, open_objects)
            elif char == b"]":
                open_objects.pop()
            elif char == b",":
                self._value(open_objects)
            else:
                self._stop("after array element")
        self.at = _match(_SPACE, self.data, self.at)
        if self.at < self.end:
            self._stop("after top-level value")

    def _after_member(self, char: bytes, open_objects: list[bool]) -> None:
        if char == b"}":
            open_objects.pop()
        elif char == b",":
            self._member(self._next(), open_objects)
        else:
            self._stop("after object key:value pair")

    def _member(self, char: bytes, open_objects: list[bool]) -> None:
        if char != b'"':
            self._stop("looking for beginning of object key string")
        self._string()
        if self._next() != b":":
            self._stop("after object key")
        self._value(open_objects)

    def _value(self, open_objects: list[bool]) -> None:
        """Scan a scalar, or the opening of an object or array, whose kind is pushed on `open_objects`."""
        while True:
            char = self._next()
            if char not in (b"{", b"["):
                return self._scalar(char)
            open_objects.append(char == b"{")
            if len(open_objects) > MAX_DEPTH:
                self._stop("exceeded max depth")
            first = self._next()
            if first == (b"}" if char == b"{" else b"]"):
                open_objects.pop()
                return None
            if char == b"{":
                if first != b'"':
                    self._stop("looking for beginning of object key string")
                self._string()
                if self._next() != b":":
                    self._stop("after object key")
            else:
                self.at -= 1

    def _scalar(self, char: bytes) -> None:
        if char == b'"':
            self._string()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        elif char == b"-" or char.isdigit():
            self._number(char)
        else:
            self._stop("looking for beginning of value")

    def _next(self) -> bytes:
        """Consume and return the next byte that is not white space."""
        self.at = _match(_SPACE, self.data, self.at)
        if self.at >= self.end:
            raise _FaultError("unexpected end of JSON input")
        self.at += 1
        return self.data[self.at - 1 : self.at]

    def _take(self) -> int:
        """Consume and return the next byte, whatever it is; a blank at the end of the text."""
        char = self.data[self.at]
        self.at += 1
        return char

    def _string(self) -> None:
        while True:
            self.at = _match(_STRING_PART, self.data, self.at)
            if self.at > self.end or self.at == len(self.data):
                raise _FaultError("unexpected end of JSON input")
            char = self._take()
            if char == 0x22:
                return
            if char < 0x20:
                self._stop("in string literal")
            self._escape(self._take())

    def _escape(self, char: int) -> None:
        if char == 0x75:
            for _ in range(4):
                if self._take() not in _HEX:
                    self._stop("in \\u hexadecimal character escape")
        elif char not in _SIMPLE_ESCAPES:
            self._stop("in string escape code")

    def _literal(self, literal: bytes) -> None:
        for wanted in literal[1:]:
            if self._take() != wanted:
                self._stop(f"in literal {literal.decode()} (expecting {_quote_char(wanted)})")

    def _number(self, first: bytes) -> None:
        digit = first[0]
        if first == b"-":
            digit = self._take()
            if not 0x30 <= digit <= 0x39:
                self._stop("in numeric literal")
        if digit != 0x30:
            self.at = _match(_DIGITS, self.data, self.at)
        if self.data[self.at] == 0x2E:
            self.at += 1
            self._digits("after decimal point in numeric literal")
        if self.data[self.at] in b"eE":
            self.at += 1
            if self.data[self.at] in b"+-":
                self.at += 1
            self._digits("in exponent of numeric literal")

    def _digits(self, where: str) -> None:
        if not 0x30 <= self._take() <= 0x39:
            self._stop(where)
        self.at = _match(_DIGITS, self.data, self.at)

    def _stop(self, where: str) -> NoReturn:
        """Refuse the byte consumed last, or the current one when it is trailing text."""
        char = self.data[self.at] if where == "after top-level value" else self.data[self.at - 1]
        raise _FaultError(f"invalid character {_quote_char(char)} {where}")


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _quote_char(char: int) -> str:
    if char == 0x27:
        return "'\\''"
    return "'\"'" if char == 0x22 else f"'{quote(chr(char))[1:-1]}'"
