"""A run on a terminal: one table with configurations as rows, then three sentences."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.cli.output import prose_width
from podslice.fleet.report.comparing import Configuration, MeanOver
from podslice.fleet.report.measures import BY_NAME, CRITERIA
from podslice.fleet.report.summary import RunSummary, sentences
from podslice.render.ansi import echo, style
from podslice.render.prose import wrap_lines
from podslice.render.table import print_table
from podslice.values.quantity import plural

_COLUMNS = ("unmet", "refused", "acrossNUMA", "expectedStranded", "gpus", "cpus", "looping")
_MOST = 7
_MOST_ROWS = 16


def print_summary(summary: RunSummary, *, wide: bool, criteria: Sequence[str] = CRITERIA) -> None:
    """Print a summary; `wide` shows every figure of every configuration."""
    echo(f"{summary.name}: {plural(len(summary.candidates), 'configuration')}, {plural(summary.seeds, 'seed')}\n")
    names = list(BY_NAME) if wide else [criteria[0], *(name for name in _COLUMNS if name != criteria[0])][:_MOST]
    names = [name for name in names if any(one.mean(name) for one in summary.candidates)]
    best = {name: _best(summary.candidates, name) for name in names}
    rows = [
        [candidate.name, *(_cell(candidate.mean(name), name, best[name]) for name in names)]
        for candidate in (summary.candidates if wide else summary.candidates[:_MOST_ROWS])
    ]
    headings = [f"{BY_NAME[name].heading}{' ' + BY_NAME[name].unit if BY_NAME[name].unit else ''}" for name in names]
    meanings = {heading: BY_NAME[name].meaning for heading, name in zip(headings, names, strict=True)}
    print_table(["CONFIGURATION", *headings], rows, right=range(1, len(names) + 1), meanings=meanings)
    if len(summary.candidates) > len(rows):
        echo(f"… {len(summary.candidates) - len(rows)} more (-o wide shows them)")
    echo("")
    for sentence in sentences(summary, criteria):
        echo(wrap_lines(sentence, prose_width()))
    for line in summary.not_started:
        echo(style(wrap_lines(line, prose_width()), fg="yellow"))
    if summary.missing:
        echo(style(f"{plural(summary.missing, 'cell')} of it not made yet: --resume makes the rest", fg="yellow"))


def _best(candidates: Sequence[Configuration], name: str) -> float | None:
    """Return the best mean of a figure; None where neither more nor less is better, or all are equal."""
    if BY_NAME[name].less is None:
        return None
    means = {round(found.mean, 1) for one in candidates if (found := one.mean(name)) is not None}
    if len(means) < 2:
        return None
    return min(means) if BY_NAME[name].less else max(means)


def _cell(found: MeanOver | None, name: str, best: float | None) -> str:
    if found is None:
        return "-"
    digits = 0 if not BY_NAME[name].unit and found.mean == int(found.mean) else 1
    text = f"{found.mean:.{digits}f}"
    if found.half:
        text += f"±{found.half:.1f}"
    return style(f"{text}*", bold=True) if best is not None and round(found.mean, 1) == best else text
