"""The isolation report as text for a terminal and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator

import htpy as h

from podslice.isolation.report import (
    FAIL,
    INFO,
    PASS,
    UNKNOWN,
    WARN,
    ContainerIsolation,
    IsolationCheck,
    IsolationReport,
)
from podslice.render.ansi import style
from podslice.render.html import page
from podslice.render.prose import wrap_lines
from podslice.render.table import format_table
from podslice.values.quantity import plural

_COLOURS = {PASS: "green", WARN: "yellow", FAIL: "red", UNKNOWN: "magenta", INFO: "cyan"}
_TITLES = {
    "cpus": "its CPUs",
    "sets": "other cgroups on them",
    "threads": "threads of others",
    "foreignTime": "CPU time of others",
    "interrupts": "interrupts of devices",
    "throttling": "throttled by a quota",
    "runDelay": "waiting to run",
    "pressure": "CPU pressure",
    "migrations": "threads that moved",
    "memory": "memory that is near",
    "siblings": "other threads of its cores",
    "steal": "taken by the hypervisor",
    "tick": "the kernel's tick",
}
_COLUMNS = ("Promised", "Seen", "Evidence", "Remedy")
"""Columns after the grade and the check; on narrow screens, where rows are stacked, each row names them."""
_STYLE = """
.grade{display:inline-block;min-width:4.2rem;text-align:center;border-radius:.6rem;padding:0 .5rem;color:#fff;
font-weight:600}.pass{background:#1a7f37}.warn{background:#9a6700}.fail{background:#cf222e}
.unknown{background:#6e40c9}.info{background:#57606a}
@media (max-width:600px){thead{display:none}tr,td{display:block}td{border:0;padding:.1rem 0}td:empty{display:none}
tr{border-bottom:1px solid var(--line);padding:.4rem 0}
td[data-title]::before{content:attr(data-title) ": ";color:var(--dim)}}
"""


def isolation_text(report: IsolationReport, width: int | None) -> str:
    """Return each container with its grades, and evidence and remedies of checks that are not well."""
    if not report.containers:
        return "No container has CPUs of its own."
    parts = [_summary(report)]
    for one in report.containers:
        rows = [
            [style(check.grade, fg=_COLOURS[check.grade]), _TITLES[check.check], check.observed] for check in one.checks
        ]
        parts.append(f"{_heading(one)}\n{format_table(['GRADE', 'WHAT', 'SEEN'], rows)}")
        if remarks := list(_remarks(one, width)):
            parts.append("\n".join(remarks))
    return "\n\n".join(parts)


def _summary(report: IsolationReport) -> str:
    numbers = ", ".join(
        f"{count} {grade}"
        for grade in (FAIL, WARN, UNKNOWN, PASS)
        if (count := sum(one.grade == grade for one in report.containers))
    )
    many = plural(len(report.containers), "container")
    return f"{many} with exclusive CPUs, looked at for {report.seconds:g} s: {numbers}"


def _heading(one: ContainerIsolation) -> str:
    return f"pod {one.pod} container {one.container}: CPUs {one.cpus}, {style(one.grade, fg=_COLOURS[one.grade])}"


def _remarks(one: ContainerIsolation, width: int | None) -> Iterator[str]:
    for check in one.checks:
        if check.grade in (FAIL, WARN, UNKNOWN):
            remedy = f"; {check.remedy}" if check.remedy else ""
            yield wrap_lines(f"{_TITLES[check.check]}: {check.evidence}{remedy}", width)


def isolation_page(report: IsolationReport) -> str:
    """Return a self-contained HTML page."""
    title = "Are exclusive CPUs alone?"
    sections = [_section(one) for one in report.containers]
    return page(title, [h.h1[title], h.p[_summary(report)], sections], style=_STYLE)


def _grade(grade: str) -> h.Element:
    return h.span(f".grade.{grade}")[grade]


def _section(one: ContainerIsolation) -> h.Element:
    head = h.tr[[h.th[title] for title in ("Grade", "What", *_COLUMNS)]]
    return h.section[
        h.h2[_grade(one.grade), f" CPUs {one.cpus}: container {one.container} of pod {one.pod}"],
        h.div(".scroll")[h.table[h.thead[head], h.tbody[[_row(check) for check in one.checks]]]],
    ]


def _row(check: IsolationCheck) -> h.Element:
    cells: tuple[h.Node, ...] = (check.promised, check.observed, h.code[check.evidence], check.remedy)
    return h.tr[
        h.td[_grade(check.grade)],
        h.td[_TITLES[check.check]],
        [h.td(data_title=title)[cell] for title, cell in zip(_COLUMNS, cells, strict=True)],
    ]
