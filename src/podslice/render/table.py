"""Aligned tables in the style of kubectl: bold headings, two spaces between columns, no frames.

On a terminal that is too narrow the widest columns are folded between words. Where that is not enough the columns are
spread over several tables that all begin with the row's name, so that rows still compare; on a very narrow terminal
every row becomes a paragraph. What another program reads is never folded.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from podslice.render.ansi import echo, style, visible
from podslice.render.legend import note_columns
from podslice.render.prose import fold

_GAP = "  "
_NARROWEST = 12
_LONGEST_WORD = 30
"""A longer word, such as a path, is broken after punctuation, or cut."""
_COMPARED = 60
"""Columns of a terminal from which on rows stay rows."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STYLED = re.compile(r"((?:\x1b\[[0-9;]*m)+)(.*?)(\x1b\[0[0-9;]*m)\Z", re.DOTALL)


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None where it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def format_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    bold: bool = False,
    width: int | None = None,
    meanings: Mapping[str, str] | None = None,
) -> str:
    """Return the table as text of at most `width` columns (None: those of the terminal, or any where there is none).
    Columns in `right` are right-aligned; styled cells are measured without their colour. `meanings` are for `--legend`,
    beside those of `legend_texts`."""
    note_columns(headings, meanings)
    # Made visible first: a control character would otherwise count as no column, or as one where several are printed.
    rows = [[visible(cell) for cell in row] for row in rows]
    width = terminal_width() if width is None else width
    columns = [_Column(heading, [row[i] for row in rows], i in right) for i, heading in enumerate(headings)]
    if width is None:
        return "\n".join(_lines(columns, [one.natural for one in columns], bold=bold))
    tables = [columns] if _fits(columns, width) else _spread(columns, width) if width >= _COMPARED else []
    if not tables:
        return paragraphs(headings, rows, width, bold=bold)
    return "\n\n".join("\n".join(_lines(one, _widths(one, width), bold=bold)) for one in tables)


class _Column:
    """A column: `natural` is the width at which nothing is folded, `least` that at which no word is cut."""

    def __init__(self, heading: str, cells: Sequence[str], right: bool) -> None:  # noqa: FBT001 - of the column
        self.heading = heading
        self.cells = cells
        self.right = right
        self.natural = max([len(heading), *map(_length, cells)])
        self.least = min(self.natural, max(_NARROWEST, longest_word([heading, *map(click.unstyle, cells)])))


def longest_word(texts: Iterable[str]) -> int:
    """Return the length of the longest word of texts, up to that at which words are broken."""
    return min(_LONGEST_WORD, max((len(word) for text in texts for word in re.findall(r"[^ ,]+,?", text)), default=0))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _fits(columns: Sequence[_Column], width: int) -> bool:
    return _total([one.least for one in columns]) <= width


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Narrow the widest columns until the table fits."""
    widths = [one.natural for one in columns]
    while (excess := _total(widths) - width) > 0:
        open_to = [i for i, one in enumerate(columns) if widths[i] > one.least]
        widest = max(open_to, key=widths.__getitem__)
        widths[widest] -= min(excess, widths[widest] - columns[widest].least, max(1, widths[widest] // 8))
    return widths


def _spread(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Return tables of at most `width` columns that all begin with the columns that name a row; none where one other
    column does not fit beside them."""
    names = list(columns[:1])
    # Where a name is left out because it is that of the row above, the next column tells rows apart.
    if any(not _length(cell) for cell in names[0].cells) and len(columns) > 2:
        names = list(columns[:2])
    tables = [names.copy()]
    for column in columns[len(names) :]:
        if not _fits([*tables[-1], column], width) and len(tables[-1]) > len(names):
            tables.append(names.copy())
        tables[-1].append(column)
    return tables if all(_fits(table, width) for table in tables) else []


def _lines(columns: Sequence[_Column], widths: Sequence[int], *, bold: bool) -> list[str]:
    heads = _row([one.heading for one in columns], columns, widths)
    lines = [style(line, bold=True) for line in heads] if bold else heads
    for cells in zip(*(one.cells for one in columns), strict=True):
        lines += _row(cells, columns, widths)
    return lines


def _row(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> list[str]:
    """Return the lines of a row; long cells are folded."""
    folded = [_fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for line in range(max(map(len, folded))):
        parts = [cell[line] if line < len(cell) else "" for cell in folded]
        padded = (
            _pad(part, width, right=column.right) for part, width, column in zip(parts, widths, columns, strict=True)
        )
        lines.append(_GAP.join(padded).rstrip())
    return lines


def paragraphs(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, bold: bool) -> str:
    """Return a paragraph for each row with a line for each cell; long cells continue on further lines."""
    label = max(map(len, headings))
    lines = []
    for row in rows:
        named = [(heading, cell) for heading, cell in zip(headings, row, strict=True) if cell not in ("", "-")]
        for place, (heading, cell) in enumerate(named):
            indent = "" if place == 0 else "  "
            head = f"{indent}{heading:<{label}}{_GAP}"
            first, *more = _fold(cell, max(_NARROWEST, width - len(head)))
            lines.append((style(head, bold=True) if bold else head) + first)
            lines += [" " * len(head) + one for one in more]
    return "\n".join(lines)


def _length(cell: str) -> int:
    return len(click.unstyle(cell))


def _fold(cell: str, width: int) -> list[str]:
    """Break a cell into lines, each in the cell's colour."""
    if _length(cell) <= width:
        return [cell]
    styled = _STYLED.match(cell)
    if styled is None:
        return fold(click.unstyle(cell), width)
    return [f"{styled[1]}{line}{styled[3]}" for line in fold(styled[2], width)]


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - _length(cell))
    return space + cell if right else cell + space


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    meanings: Mapping[str, str] | None = None,
) -> None:
    """Print a table; click removes the colours when the output is not a terminal."""
    echo(format_table(headings, rows, right=right, bold=True, meanings=meanings))


def format_bytes(amount: int) -> str:
    """Format a size in bytes: `192 GiB`, `1.5 TiB`."""
    value, unit = float(amount), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = 0 if value >= 100 or value == int(value) else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"
