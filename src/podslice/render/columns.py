"""Paragraphs and tables for terminals of any width: words wrap, one column of a table does, colours do not count."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TypeAlias

from podslice.render.ansi import style as styled
from podslice.render.ansi import visible
from podslice.render.legend import note_columns
from podslice.render.table import format_table, longest_word

Span: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style: `bold`, `dim`, `underline` and a colour, in any order."""
Cell: TypeAlias = Span | Sequence[Span]
_GAP = "  "
_ATTRIBUTES = ("bold", "dim", "underline")


def paint(text: str, style: str, *, coloured: bool) -> str:
    """Return text in a style; plain where not `coloured`."""
    text = visible(text)
    if not coloured or not style or not text:
        return text
    words = style.split()
    colour = next((word for word in words if word not in _ATTRIBUTES), None)
    return styled(text, fg=colour, **{word: True for word in words if word in _ATTRIBUTES})


def paragraph(spans: Sequence[Span], width: int, *, indent: int = 0, coloured: bool = False) -> list[str]:
    """Break spans into lines of at most `width` columns, indented by `indent`; a word longer than a line is split."""
    plain = "".join(_text(span) for span in spans)
    margin = " " * indent
    lines = [margin + line for line in _break_text(plain, max(1, width - indent))] or [margin]
    if not coloured:
        return lines
    if len(spans) == 1:
        return [margin + paint(line[indent:], _style(spans[0]), coloured=coloured) for line in lines]
    # Only the first styled span on the first line keeps its style: a word may be broken across lines further down.
    place = 0
    for span in spans:
        text, style = _text(span), _style(span)
        if style and lines[0][indent + place :].startswith(text):
            start = indent + place
            lines[0] = lines[0][:start] + paint(text, style, coloured=coloured) + lines[0][start + len(text) :]
            break
        place += len(text)
    return lines


class Table:
    """A table with headings. Where it would be too wide, column `wrap` is wrapped between words, down to `least`
    columns; where even that is too wide, it is laid out as `format_table` does. Column `right` is right-aligned. Rows
    may be shorter than the headings."""

    def __init__(self, *headings: str, wrap: int, right: int | None = None, least: int = 1) -> None:
        self._headings = headings
        self._wrap = wrap
        self._right = right
        self._least = least
        self._rows: list[list[tuple[Span, ...]]] = []

    def add(self, *cells: Cell) -> None:
        """Add a row."""
        row = [_spans(cell) for cell in cells]
        self._rows.append(row + [()] * (len(self._headings) - len(row)))

    def lines(self, width: int, *, coloured: bool = False) -> list[str]:
        """Return the table as lines of at most `width` columns, without trailing blanks."""
        note_columns(self._headings)
        widths = self._widths(width)
        if sum(widths) + len(_GAP) * (len(widths) - 1) > width:
            rows = [
                ["".join(paint(_text(s), _style(s), coloured=coloured) for s in cell) for cell in row]
                for row in self._rows
            ]
            right = () if self._right is None else (self._right,)
            return format_table(self._headings, rows, right=right, width=width, bold=coloured).split("\n")
        lines = self._row([((heading, "dim"),) for heading in self._headings], widths, coloured=coloured)
        for row in self._rows:
            lines += self._row(row, widths, coloured=coloured)
        return lines

    def _widths(self, width: int) -> list[int]:
        widths = [
            max(len(heading), *(len(_plain(row[i])) for row in self._rows), 0)
            for i, heading in enumerate(self._headings)
        ]
        over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        if over > 0:
            words = longest_word([self._headings[self._wrap], *(_plain(row[self._wrap]) for row in self._rows)])
            least = max(self._least, words)
            widths[self._wrap] = max(min(least, widths[self._wrap]), widths[self._wrap] - over)
        return widths

    def _row(self, row: Sequence[tuple[Span, ...]], widths: Sequence[int], *, coloured: bool) -> list[str]:
        wrapped = row[self._wrap]
        pieces = _break_text(_plain(wrapped), widths[self._wrap]) or [""]
        style = _style(wrapped[0]) if wrapped else ""
        lines = []
        for number, piece in enumerate(pieces):
            cells: list[str] = []
            for i, spans in enumerate(row):
                shown: tuple[Span, ...] = ((piece, style),) if i == self._wrap else spans if number == 0 else ()
                space = " " * (widths[i] - len(_plain(shown)))
                text = "".join(paint(_text(span), _style(span), coloured=coloured) for span in shown)
                cells.append(space + text if i == self._right else text + space)
            lines.append(_GAP.join(cells).rstrip())
        return lines


def _break_text(text: str, width: int) -> list[str]:
    if len(text) <= width and "\n" not in text:
        return [text] if text else []
    return [
        line
        for part in text.split("\n")
        for line in textwrap.wrap(part, width, break_on_hyphens=False, replace_whitespace=False) or [""]
    ]


def _spans(cell: Cell) -> tuple[Span, ...]:
    if isinstance(cell, str):
        return (cell,) if cell else ()
    if isinstance(cell, tuple) and len(cell) == 2 and isinstance(cell[0], str) and isinstance(cell[1], str):
        return ((cell[0], cell[1]),)
    return tuple(cell)


def _text(span: Span) -> str:
    return visible(span if isinstance(span, str) else span[0])


def _style(span: Span) -> str:
    return "" if isinstance(span, str) else span[1]


def _plain(spans: Sequence[Span]) -> str:
    return "".join(map(_text, spans))
