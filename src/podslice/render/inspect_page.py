"""The page of `podslice inspect` for a terminal: aligned tables that wrap within its width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from podslice.core.inspect.page import Amounts, Cgroup, Count, Page, Value
from podslice.core.inspect.written import DEFAULTING, GATE, LIMIT_RANGE
from podslice.core.values.quantity import BINARY_SI, Quantity

_MARKS = {DEFAULTING: "*", LIMIT_RANGE: "+", GATE: "x"}
_LEGEND = {
    DEFAULTING: "* filled in by the API server's defaulting",
    LIMIT_RANGE: "+ filled in from a LimitRange",
    GATE: "x dropped, because the feature gate is off",
}
_MAIN_FILES = ("cpu.", "memory.max", "memory.limit_in_bytes")
_SAME_FOR_ALL = ("memory.oom.group",)
_WIDE = 100
_OWNER_WIDTH = 16
_TRAILING = re.compile(r"[ ]+(?=(?:\x1b\[0m)?$)")
_CLASSES = {"Guaranteed": "green", "Burstable": "yellow", "BestEffort": "red"}


def page_text(page: Page, *, width: int, coloured: bool) -> str:
    """One page as text, with terminal colours if `coloured`."""
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=width,
        highlight=False,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        legacy_windows=False,
    )
    _print_page(page, console)
    return "".join(_TRAILING.sub("", line) + "\n" for line in buffer.getvalue().splitlines())


def _print_page(page: Page, console: Console) -> None:
    _head(page, console)
    for title, tables, notes in _sections(page, console.width):
        console.print()
        console.print(Text(title, style="bold underline"))
        for table in tables:
            console.print(table)
        for note in notes:
            console.print(_bullet(note))


def _head(page: Page, console: Console) -> None:
    name = "/".join(part for part in (page.namespace, page.name) if part)
    where = f"  {page.source}" if page.source else ""
    console.print(Text.assemble((f"{page.kind} {name}", "bold"), (where, "dim")), soft_wrap=True)
    qos = Text.assemble("QoS ", (page.qos.qos_class, f"bold {_CLASSES[page.qos.qos_class]}"), f": {page.qos.why}")
    console.print(qos)
    verdict = Text("API server: ")
    if page.accepted:
        verdict.append("accepts its resources", "green")
    else:
        verdict.append("refuses it", "bold red")
    console.print(verdict)
    for text in dict.fromkeys(page.errors):
        console.print(_bullet(text, "red"))
    for text in page.refusals:
        console.print(_bullet(text, "red"))
    for text in page.warnings:
        console.print(_bullet(f"warning: {text}", "yellow"))
    for text in page.remarks:
        console.print(_bullet(text, "yellow"))
    if page.placement is not None:
        console.print(_placement(page))
        for text in page.placement.events:
            console.print(_bullet(f"event: {text}", "yellow"))


def _placement(page: Page) -> Text:
    placement = page.placement
    assert placement is not None
    if not placement.admitted:
        return Text.assemble("Kubelet: ", ("refuses it", "bold red"), f", {placement.reason}: {placement.message}")
    cpus = ", ".join(f"{name} {text}" for name, text in placement.cpus.items())
    return Text.assemble(
        "Kubelet: ", ("admits it", "green"), f" on the empty node, {f'CPUs {cpus}' if cpus else 'no CPUs of its own'}"
    )


def _sections(page: Page, width: int) -> Iterator[tuple[str, Iterable[Table], Iterable[str]]]:
    """Titles with their tables and the notes below them."""
    yield "What you wrote, and what it becomes", [_amounts(page.amounts)], _legend(page.amounts)
    if page.effective:
        yield "What the pod counts as a whole", [_effective(page)], ()
    yield "Cgroups", _cgroups(page.cgroups, width >= _WIDE), _cgroup_notes(page)
    yield "What others count", [_counts(page.counts)], ()


def _table(*headings: str, right: Sequence[int] = (), wrap: Sequence[int] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, heading in enumerate(headings):
        table.add_column(
            heading,
            justify="right" if index in right else "left",
            no_wrap=index not in wrap,
            overflow="fold",
            ratio=1 if index in wrap else None,
        )
    return table


def _amounts(rows: Sequence[Amounts]) -> Table:
    table = _table("OWNER", "KIND", "RESOURCE", "REQUEST", "LIMIT", wrap=(0,))
    table.columns[0].ratio = None
    before = ""
    for row in rows:
        same = row.path == before
        before = row.path
        owner, kind = ("", "") if same else (row.owner, row.kind)
        kind = "" if kind == owner else kind
        if row.resource:
            table.add_row(owner, kind, row.resource, _value(row.request), _value(row.limit))
        else:
            table.add_row(owner, kind, Text("nothing", "dim"))
    return table


def _value(value: Value) -> Text:
    if not value.changed:
        return Text(value.written or "-", style="" if value.written else "dim")
    text = Text.assemble((f"{value.written} ", "dim") if value.written else "", "→ ", (value.becomes or "-", "bold"))
    return text.append(f" {_MARKS[value.by]}", "cyan")


def _legend(rows: Sequence[Amounts]) -> list[str]:
    used = {value.by for row in rows for value in (row.request, row.limit)}
    return [text for by, text in _LEGEND.items() if by in used]


def _effective(page: Page) -> Table:
    table = _table("RESOURCE", "", "AMOUNT", "HOW", wrap=(3,))
    for row in page.effective:
        table.add_row(row.resource, "request", row.request or "-", row.request_formula)
        table.add_row("", "limit", row.limit or "-", row.limit_formula or ("no limit" if not row.limit else ""))
    return table


def _cgroups(cgroups: Sequence[Cgroup], wide: bool) -> Iterator[Table]:
    """The files every pod has, then a table of the others that some cgroup sets."""
    names = list(dict.fromkeys(file for cgroup in cgroups for file in cgroup.files if file not in _SAME_FOR_ALL))
    main = [name for name in names if name.startswith(_MAIN_FILES)]
    set_somewhere = {file for cgroup in cgroups for file, value in cgroup.files.items() if value not in ("0", "max")}
    others = [name for name in names if name in set_somewhere and name not in main]
    yield _cgroup_table(cgroups, main, wide, scores=True)
    if others:
        yield _cgroup_table(cgroups, others, wide, scores=False)


def _cgroup_table(cgroups: Sequence[Cgroup], files: Sequence[str], wide: bool, *, scores: bool) -> Table:
    table = _table("OWNER", *files, *(["OOM SCORE"] if scores else []), right=(len(files) + 1,), wrap=(0,))
    table.columns[0].ratio = None
    table.columns[0].min_width = min(_OWNER_WIDTH, max(len(cgroup.owner) for cgroup in cgroups))
    for cgroup in cgroups:
        score = "" if cgroup.kind == "pod" else "?" if cgroup.oom_score_adj is None else str(cgroup.oom_score_adj)
        values = [_file_value(file, cgroup.files.get(file, ""), wide) for file in files]
        table.add_row(cgroup.owner, *values, *([score] if scores else []))
    return table


def _file_value(file: str, value: str, wide: bool) -> str:
    """Bytes with a readable form beside them, or that alone where the page is narrow."""
    if not file.startswith(("memory.", "hugetlb.")) or not value.isdigit() or value == "0":
        return value
    short = Quantity.of(int(value), BINARY_SI).canonical()
    if short == value:
        return value
    return f"{value} ({short})" if wide else short


def _cgroup_notes(page: Page) -> Iterator[str]:
    yield from page.cgroup_notes
    older = [
        f"{one.owner} {one.older_weight}"
        for one in page.cgroups
        if one.older_weight and one.older_weight != one.files["cpu.weight"]
    ]
    if older:
        yield f"cpu.weight by runtimes with opencontainers/cgroups before 0.0.6: {', '.join(older)}"
    unknown = [one for one in page.cgroups if one.kind != "pod" and one.oom_score_adj is None]
    for one in unknown:
        yield f"oom_score_adj of {one.owner}: {one.oom_formula}"
    if unknown:
        yield "--node memory=64Gi or --machine gives the node's memory"
    yield f"path: /sys/fs/cgroup{page.cgroups[0].path}"


def _counts(counts: Sequence[Count]) -> Table:
    table = _table("WHO", "CPU", "MEMORY", "", wrap=(3,))
    usual = _others(counts[0])
    for index, count in enumerate(counts):
        others = _others(count)
        shown = [others] if others and (index == 0 or others != usual) else []
        note = Text("; ".join([*shown, count.note] if count.note else shown))
        table.add_row(count.who, count.amounts.get("cpu", "-"), count.amounts.get("memory", "-"), note)
    return table


def _others(count: Count) -> str:
    return ", ".join(f"{name} {text}" for name, text in count.amounts.items() if name not in ("cpu", "memory"))


def _bullet(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))
