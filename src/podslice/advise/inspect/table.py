"""The page of `podslice inspect` for a terminal: aligned tables that wrap within its width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.advise.inspect.page import Amounts, Cgroup, Count, Page, Value
from podslice.advise.inspect.stages import DEFAULTING, GATE, LIMIT_RANGE
from podslice.render.columns import Span, Table, paint, paragraph
from podslice.values.quantity import BINARY_SI, Quantity
from podslice.values.reasons import UPSTREAM_DEFECT

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
_CLASSES = {"Guaranteed": "green", "Burstable": "yellow", "BestEffort": "red"}


def page_text(page: Page, *, width: int, coloured: bool, wide: bool = False) -> str:
    """Return one page as text, with terminal colours if `coloured`; `wide` adds field paths, cgroup paths, bytes in
    full and the formulas of OOM scores."""
    lines = list(_head(page, width, coloured=coloured))
    for title, tables, notes in _sections(page, width, wide=wide):
        lines += ["", paint(title, "bold underline", coloured=coloured)]
        for table in tables:
            lines += table.lines(width, coloured=coloured)
        for note in notes:
            lines += _bullet(note, width, coloured=coloured)
    return "".join(f"{line}\n" for line in lines)


def _head(page: Page, width: int, *, coloured: bool) -> Iterator[str]:
    name = "/".join(part for part in (page.namespace, page.name) if part)
    what = f"{page.kind} {name}".rstrip()
    if len(f"{what}  {page.source}") <= width:
        where = paint(f"  {page.source}", "dim", coloured=coloured) if page.source else ""
        yield paint(what, "bold", coloured=coloured) + where
    else:
        yield from paragraph(((what, "bold"),), width, coloured=coloured)
        yield from paragraph(((page.source, "dim"),), width, indent=2, coloured=coloured)
    style = f"bold {_CLASSES[page.qos.qos_class]}"
    yield from paragraph(("QoS ", (page.qos.qos_class, style), f": {page.qos.why}"), width, coloured=coloured)
    if page.quota:
        yield from paragraph((page.quota,), width, coloured=coloured)
    verdict = ("accepts its resources", "green") if page.accepted else ("refuses it", "bold red")
    yield from paragraph(("API server: ", verdict), width, coloured=coloured)
    for text in (*dict.fromkeys(page.errors), *page.refusals):
        yield from _bullet(text, width, "red", coloured=coloured)
    for text in (*(f"warning: {one}" for one in page.warnings), *page.remarks):
        yield from _bullet(text, width, "yellow", coloured=coloured)
    if page.placement is not None:
        yield from paragraph(_placement(page), width, coloured=coloured)
        for text in page.placement.events:
            yield from _bullet(f"event: {text}", width, "yellow", coloured=coloured)


def _placement(page: Page) -> tuple[Span, ...]:
    placement = page.placement
    assert placement is not None
    if placement.reason == UPSTREAM_DEFECT:
        return "Kubelet: ", (placement.message, "red")
    if not placement.admitted:
        return "Kubelet: ", ("refuses it", "bold red"), f", {placement.reason}: {placement.message}"
    cpus = ", ".join(f"{name} {text}" for name, text in placement.cpus.items())
    where = f" on the empty node, {f'CPUs {cpus}' if cpus else 'no CPUs of its own'}"
    return "Kubelet: ", ("admits it", "green"), where


def _sections(page: Page, width: int, *, wide: bool) -> Iterator[tuple[str, Iterable[Table], Iterable[str]]]:
    """Yield titles with their tables and the notes below them."""
    yield "Amounts as written, and as stored", [_amounts(page.amounts, wide=wide)], _legend(page.amounts)
    if page.effective:
        yield "The pod as a whole", [_effective(page)], ()
    yield "Cgroups", _cgroups(page.cgroups, wide=wide or width >= _WIDE), _cgroup_notes(page)
    if wide:
        yield "Paths and OOM scores", [_origins(page.cgroups)], ()
    yield "Counted by", [_counts(page.counts)], ()


def _origins(cgroups: Sequence[Cgroup]) -> Table:
    """Return a table of each cgroup's path below /sys/fs/cgroup and the formula of its OOM score."""
    table = Table("OWNER", "PATH", "OOM SCORE BY", wrap=1)
    for cgroup in cgroups:
        table.add(cgroup.owner, cgroup.path, cgroup.oom_formula)
    return table


def _amounts(rows: Sequence[Amounts], *, wide: bool) -> Table:
    table = Table("OWNER", "KIND", "RESOURCE", "REQUEST", "LIMIT", *(["FIELD"] if wide else []), wrap=0)
    before = ""
    for row in rows:
        same = row.path == before
        before = row.path
        owner, kind = ("", "") if same else (row.owner, row.kind)
        kind = "" if kind == owner else kind
        if row.resource:
            field = (row.path,) if wide else ()
            table.add(owner, kind, row.resource, _value(row.request), _value(row.limit), *field)
        else:
            table.add(owner, kind, ("nothing", "dim"))
    return table


def _value(value: Value) -> tuple[Span, ...]:
    if not value.changed:
        return ((value.written or "-", "" if value.written else "dim"),)
    before: tuple[Span, ...] = ((f"{value.written} ", "dim"),) if value.written else ()
    return *before, "→ ", (value.becomes or "-", "bold"), (f" {_MARKS[value.by]}", "cyan")


def _legend(rows: Sequence[Amounts]) -> list[str]:
    used = {value.by for row in rows for value in (row.request, row.limit)}
    return [text for by, text in _LEGEND.items() if by in used]


def _effective(page: Page) -> Table:
    table = Table("RESOURCE", "", "AMOUNT", "HOW", wrap=3)
    for row in page.effective:
        table.add(row.resource, "request", row.request or "-", row.request_formula)
        table.add("", "limit", row.limit or "-", row.limit_formula or ("no limit" if not row.limit else ""))
    return table


def _cgroups(cgroups: Sequence[Cgroup], *, wide: bool) -> Iterator[Table]:
    """Yield a table of the files that every pod has, then one of the others that some cgroup sets."""
    names = list(dict.fromkeys(file for cgroup in cgroups for file in cgroup.files if file not in _SAME_FOR_ALL))
    main = [name for name in names if name.startswith(_MAIN_FILES)]
    # A file that no cgroup sets would only widen the table.
    set_somewhere = {file for cgroup in cgroups for file, value in cgroup.files.items() if value not in ("0", "max")}
    others = [name for name in names if name in set_somewhere and name not in main]
    yield _cgroup_table(cgroups, main, wide=wide, scores=True)
    if others:
        yield _cgroup_table(cgroups, others, wide=wide, scores=False)


def _cgroup_table(cgroups: Sequence[Cgroup], files: Sequence[str], *, wide: bool, scores: bool) -> Table:
    least = min(_OWNER_WIDTH, max(len(cgroup.owner) for cgroup in cgroups))
    headings = ["OWNER", *files, *(["OOM SCORE"] if scores else [])]
    table = Table(*headings, right=len(files) + 1, wrap=0, least=least)
    for cgroup in cgroups:
        score = "" if cgroup.kind == "pod" else "?" if cgroup.oom_score_adj is None else str(cgroup.oom_score_adj)
        values = [_file_value(file, cgroup.files.get(file, ""), wide=wide) for file in files]
        table.add(cgroup.owner, *values, *([score] if scores else []))
    return table


def _file_value(file: str, value: str, *, wide: bool) -> str:
    """Return bytes with a readable form beside them, or that form alone where the page is narrow."""
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
    table = Table("WHO", "CPU", "MEMORY", "", wrap=3)
    usual = _others(counts[0])
    for index, count in enumerate(counts):
        others = _others(count)
        shown = [others] if others and (index == 0 or others != usual) else []
        note = "; ".join([*shown, count.note] if count.note else shown)
        table.add(count.who, count.amounts.get("cpu", "-"), count.amounts.get("memory", "-"), note)
    return table


def _others(count: Count) -> str:
    return ", ".join(f"{name} {text}" for name, text in count.amounts.items() if name not in ("cpu", "memory"))


def _bullet(text: str, width: int, style: str = "", *, coloured: bool) -> list[str]:
    return paragraph(((text, style),), width, indent=2, coloured=coloured)
