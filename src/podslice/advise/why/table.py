"""An answer to why, for the terminal: the cause, what it follows from, what helps, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.explain.table import fixes_text, to_text
from podslice.advise.why.diagnosis import ENDED, RUNS, WAITING, Diagnosis
from podslice.advise.why.documents import PodDiagnosis
from podslice.advise.why.reported import PodEventLine
from podslice.evidence.provenance import contradiction_line, provenance_line
from podslice.render.ansi import style
from podslice.render.prose import wrap_lines
from podslice.render.table import format_table

_MOST_EVENTS = 8


def why_text(document: PodDiagnosis, diagnosis: Diagnosis, *, wide: bool, width: int | None) -> str:
    """Return the answer. The first line is the cause, unless evidence contradicts what is given, which comes before it;
    `wide` adds the whole explanation."""
    colour = {RUNS: "green", ENDED: None, WAITING: "yellow"}.get(diagnosis.code, "red")
    first = "\n".join([style(diagnosis.cause, fg=colour, bold=True), *diagnosis.evidence])
    parts = [wrap_lines(first, width)]
    found = document.provenance.contradictions
    if found:
        doubts = "\n".join(style(contradiction_line(one), fg="yellow") for one in found)
        parts.insert(0, wrap_lines(doubts, width))
    if diagnosis.advice:
        lines = [style("What to do:", bold=True), *(f"  {line}" for line in diagnosis.advice)]
        parts.append(wrap_lines("\n".join(lines), width))
    if diagnosis.now is not None and not diagnosis.now.trace.admitted:
        fixes = fixes_text(diagnosis.now.fixes, diagnosis.now.unsearched, wide=wide)
        parts.append(wrap_lines(fixes, width))
    if document.events:
        parts.append(events_text(document.events if wide else document.events[-_MOST_EVENTS:]))
    parts.append(wrap_lines("\n".join(_rests_on(document)), width))
    explained = diagnosis.then or diagnosis.now
    if wide and explained is not None:
        parts.append(to_text(explained, wide=True, width=width))
    return "\n\n".join(parts)


def _rests_on(document: PodDiagnosis) -> Iterator[str]:
    yield style("It rests on:", bold=True)
    yield f"  {provenance_line(document.provenance)}"
    for line in document.missing:
        yield f"  not known: {line}"


def events_text(events: tuple[PodEventLine, ...]) -> str:
    """Return events as a table."""
    rows = [
        (one.last_seen or "-", one.type, one.reason, f"{one.message}{f' (x{one.count})' if one.count > 1 else ''}")
        for one in events
    ]
    return format_table(("LAST SEEN", "TYPE", "REASON", "MESSAGE"), rows, bold=True)
