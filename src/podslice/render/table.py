"""Aligned tables in the style of kubectl: bold headings, two spaces between columns, no frames.

On a terminal that is too narrow the widest columns are folded, and where that is not enough every row becomes a
paragraph. What another program reads is never folded.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence

import click

from podslice.render.ansi import echo, style, visible
from podslice.render.legend import note_columns
from podslice.render.prose import fold

_GAP = "  "
_NARROWEST = 12
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STYLED = re.compile(r"((?:\x1b\[[0-9;]*m)+)(.*?)(\x1b\[0[0-9;]*m)\Z", re.DOTALL)


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None where it is no terminal."""
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
    widths = [max([len(heading), *(_length(row[i]) for row in rows)]) for i, heading in enumerate(headings)]
    if width is not None and not _fit(widths, headings, width):
        return paragraphs(headings, rows, width, bold=bold)
    lines = [_GAP.join(_pad(h, widths[i], right=i in right) for i, h in enumerate(headings)).rstrip()]
    if bold:
        lines[0] = style(lines[0], bold=True)
    for row in rows:
        cells = [_fold(cell, widths[i]) for i, cell in enumerate(row)]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            lines.append(_GAP.join(_pad(part, widths[i], right=i in right) for i, part in enumerate(parts)).rstrip())
    return "\n".join(lines)


def _fit(widths: list[int], headings: Sequence[str], width: int) -> bool:
    """Narrow the widest columns until the table fits. Returns False where they would become too narrow."""
    while (excess := sum(widths) + len(_GAP) * (len(widths) - 1) - width) > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        least = max(_NARROWEST, len(headings[widest]))
        if widths[widest] <= least:
            return False
        widths[widest] -= min(excess, widths[widest] - least, max(1, widths[widest] // 8))
    return True


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
