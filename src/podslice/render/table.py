"""Aligned tables in the style of kubectl: bold headings, two spaces between columns, no frames."""

from __future__ import annotations

from collections.abc import Sequence

import click

_GAP = "  "
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), bold: bool = False
) -> str:
    """The table as text. Columns in `right` are right-aligned; styled cells are measured without their colour."""
    widths = [max([len(heading), *(len(click.unstyle(row[i])) for row in rows)]) for i, heading in enumerate(headings)]
    lines = [_GAP.join(_pad(h, widths[i], i in right) for i, h in enumerate(headings)).rstrip()]
    if bold:
        lines[0] = click.style(lines[0], bold=True)
    lines += [_GAP.join(_pad(cell, widths[i], i in right) for i, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join(lines)


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - len(click.unstyle(cell)))
    return space + cell if right else cell + space


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a table; click removes the colours when the output is no terminal."""
    click.echo(format_table(headings, rows, right=right, bold=True))


def format_bytes(amount: int) -> str:
    """A size for people: `192 GiB`, `1.5 TiB`."""
    value, unit = float(amount), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = 0 if value >= 100 or value == int(value) else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"
