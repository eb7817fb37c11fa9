"""YAML scalars as a kubelet reads them: `1_000` and `0x10` are numbers, `010` is 8, `y` is true, `1e400` is text."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

TAG = "tag:yaml.org,2002:"
_LONGEST_NUMBER = 400
"""Longest text that can be a number. Longer ones are text, as in Go: no 64-bit number has so many digits."""

NULLS = dict.fromkeys(("", "~", "null", "Null", "NULL"))
TRUES = dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True)
FALSES = dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False)
_WORDS: dict[str, bool | None] = {**NULLS, **TRUES, **FALSES}
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_BASES = {"x": 16, "b": 2}
_NUMBER_STARTS = frozenset("+-.0123456789")
_WORD_STARTS = frozenset("~yYnNtTfFoO")


class NumberText(float):
    """A number that remembers how it was written, because quantities depend on it."""

    text: str

    def __str__(self) -> str:
        return self.text


def number_text(text: str) -> NumberText:
    number = NumberText(text)
    number.text = text
    return number


def parse_plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    first = text[:1]
    if first in _NUMBER_STARTS:
        return _number(text)
    if not first or first in _WORD_STARTS:
        return _WORDS.get(text, text)
    return text


def _number(text: str) -> Any:
    """Return the number that a text stands for, else the text."""
    if len(text) > _LONGEST_NUMBER:
        return text
    # As in Go, underscores between digits are dropped except in texts that begin with a dot.
    digits = text if text[0] == "." else text.replace("_", "")
    if _INTEGER.match(digits):
        whole = _integer(digits)
        if -(1 << 63) <= whole < 1 << 64:
            return whole
    if _FLOAT.match(digits):
        number = number_text(digits)
        return text if math.isinf(number) else number
    return text


def _integer(digits: str) -> int:
    body = digits.lstrip("+-")
    base = _BASES.get(body[1:2].lower(), 8) if body[0] == "0" else 10
    return int(body, base) * (-1 if digits[0] == "-" else 1)


def parse_tagged_scalar(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag. Raises `ValueError` where the text does not match its tag."""
    kind = tag.removeprefix(TAG)
    if kind == "str":
        return text
    if kind == "binary":
        return base64.b64decode(text, validate=False).decode("utf-8", errors="replace")
    value = parse_plain_scalar(text)
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "null": value is None,
    }
    if not fits.get(kind, False):
        raise ValueError(f"{text[:40]!r} with the tag {tag[:60]} means nothing here")
    return value
