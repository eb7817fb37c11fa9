"""The legend of the tables that a command prints, for `--legend`: one line for each column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from podslice.render.ansi import visible
from podslice.render.prose import fold

_PRINTED = "podslice.printed-columns"
_WIDEST_LABEL = 24
_NO_HEADING = "(no heading)"


def note_columns(headings: Sequence[str], meanings: Mapping[str, str] | None = None) -> None:
    """Remember the columns of a table that is printed; `meanings` are those that the table's own module knows."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None:
        printed: dict[str, str] = ctx.meta.setdefault(_PRINTED, {})
        for heading in headings:
            printed[heading] = (meanings or {}).get(heading) or printed.get(heading, "")


def legend_lines(ctx: click.Context, width: int) -> list[str]:
    """Return the legend of all tables printed so far, folded at `width` columns; empty where there were none."""
    rows = list(_rows(ctx.command_path.split(), ctx.meta.get(_PRINTED, {})))
    if not rows:
        return []
    label_width = min(_WIDEST_LABEL, max(len(label) for label, _ in rows))
    lines = ["Legend:"]
    for label, text in rows:
        start = f"  {visible(label):<{label_width}}  "
        lines += fold(start + text, width, indent=label_width + 4)
    return lines


def _rows(command: Sequence[str], printed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    from podslice.render.legend_texts import COMMON, EACH, OF_COMMAND

    own = {heading: text for name in command for heading, text in OF_COMMAND.get(name, {}).items()}
    values = []
    for heading, known in printed.items():
        text = known or own.get(heading) or COMMON.get(heading, "")
        if text:
            yield heading or _NO_HEADING, text
        elif heading:
            values.append(heading)
    # Headings that are values of one kind, such as scenarios, have one line together.
    if values and EACH in own:
        yield ", ".join(values), own[EACH]
