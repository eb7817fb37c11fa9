"""Sentences for terminals."""

from __future__ import annotations

import re

_HANGING = 2
_PARTS = re.compile(r"[^ ,]*[ ,]+|[^ ,]+$")
_WORDS = re.compile(r"\S+\s*")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def wrapped(text: str, width: int | None) -> str:
    """Every line of a text broken at `width` columns, what follows set in by two; None leaves lines whole."""
    return text if width is None else "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    """Broken between words; what colours them takes no room."""
    lead = " " * (len(line) - len(line.lstrip()))
    lines, current = [], lead
    for word in _WORDS.findall(line):
        if current.strip() and _columns(current) + _columns(word.rstrip()) > width:
            lines.append(current.rstrip())
            current = lead + " " * _HANGING
        current += word
    return "\n".join((*lines, current.rstrip()))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def folded(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Lines of at most `width` columns, broken after spaces and commas, else anywhere; all but the first are set in."""
    lines: list[str] = []
    line = ""
    for part in _PARTS.findall(text):
        room = width - (indent if lines else 0)
        if line and _columns(line) + _columns(part.rstrip()) > room:
            lines.append(line)
            line = ""
            room = width - indent
        while _columns(part.rstrip()) > room > 0:
            lines.append(part[:room])
            part = part[room:]
            room = width - indent
        line += part
    lines.append(line)
    return [(" " * indent if place else "") + one.rstrip() for place, one in enumerate(lines)]


def _columns(text: str) -> int:
    return len(_STYLE.sub("", text))
