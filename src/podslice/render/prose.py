"""Sentences for terminals."""

from __future__ import annotations

import re

_HANGING = 2
_PARTS = re.compile(r"[^ ,]*[ ,]+|[^ ,]+$")
_JOINTS = re.compile(r"(?<=[\w)])[/:=._-]+(?=\w|$)")
_WORDS = re.compile(r"\S+\s*")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def wrap_lines(text: str, width: int | None) -> str:
    """Wrap every line of a text at `width` columns with continuations indented by two; None leaves lines whole."""
    return text if width is None else "\n".join(_break_line(line, width) for line in text.split("\n"))


def _break_line(line: str, width: int) -> str:
    """Break a line between words; colour sequences take no columns."""
    lead = " " * (len(line) - len(line.lstrip()))
    lines, current = [], lead
    for word in _WORDS.findall(line):
        if current.strip() and _columns(current) + _columns(word.rstrip()) > width:
            lines.append(current.rstrip())
            current = lead + " " * _HANGING
        current += word
    return "\n".join((*lines, current.rstrip()))


def fold(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Break a text into lines of at most `width` columns, after spaces and commas where possible; all lines but the
    first are indented."""
    lines: list[str] = []
    line = ""
    for part in _PARTS.findall(text):
        room = width - (indent if lines else 0)
        if line and _columns(line) + _columns(part.rstrip()) > room:
            lines.append(line)
            line = ""
            room = width - indent
        # A part that is longer than a line, such as a path, is broken after punctuation, or cut at the edge.
        while _columns(part.rstrip()) > room > 0:
            end = max((found.end() for found in _JOINTS.finditer(part[:room])), default=room)
            lines.append(part[:end])
            part = part[end:]
            room = width - indent
        line += part
    lines.append(line)
    return [(" " * indent if place else "") + one.rstrip() for place, one in enumerate(lines)]


def _columns(text: str) -> int:
    return len(_STYLE.sub("", text))
