"""Sentences for terminals."""

from __future__ import annotations

import textwrap

_HANGING = 2


def wrapped(text: str, width: int | None) -> str:
    """Every line of a text broken at `width` columns, what follows set in by two; None leaves lines whole."""
    return text if width is None else "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + _HANGING)
    return textwrap.fill(
        line, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
