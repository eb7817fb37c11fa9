"""Scenarios side by side for the terminal: a matrix, bars, every pod, resizes and consequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from podslice.advise.whatif.compare import Outcome, PodVerdict
from podslice.advise.whatif.filling import Capacity
from podslice.advise.whatif.objective import Group
from podslice.render.ansi import style
from podslice.render.prose import fold
from podslice.render.table import format_table, terminal_width
from podslice.values.quantity import plural

_BAR, _SHORTEST_BAR = 40, 10
_MOST_NAMES = 4
_LEAST_SCENARIO, _LEAST_TEXT, _GAP = 16, 12, 2


class Column(NamedTuple):
    """A column of the matrix: its heading, its cell for an outcome, whether it is a `number`, and its `rank`: of the
    columns that do not fit, the highest go first."""

    heading: str
    cell: Callable[[Outcome], str]
    number: bool
    rank: int

    @property
    def least(self) -> int:
        """The fewest characters that it needs."""
        return len(self.heading) if self.number else max(_LEAST_TEXT, len(self.heading))


def _refused(outcome: Outcome) -> str:
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.refused.items())) or "none"
    return refused + (f"; {len(outcome.displaced)} of those that run" if outcome.displaced else "")


def _fragmentation(outcome: Outcome) -> str:
    return " ".join(f"{node}:{score:.2f}" for node, score in outcome.fragmentation.items()) or "-"


def _resizes(outcome: Outcome) -> str:
    return f"{outcome.granted} granted, {outcome.deferred} deferred, {outcome.infeasible} infeasible"


def _admitted(outcome: Outcome) -> str:
    return str(outcome.admitted)


def _unplaced(outcome: Outcome) -> str:
    return str(outcome.unplaced_pods)


def _of_placed(outcome: Outcome, number: int) -> str:
    """Return a number of placed pods as text: a dash where there are none, since then nothing is aligned."""
    return "-" if outcome.unplaced_pods == outcome.admitted > 0 == outcome.exclusive_cpus else str(number)


def _cross_numa(outcome: Outcome) -> str:
    return _of_placed(outcome, outcome.cross_numa_pods)


def _apart(outcome: Outcome) -> str:
    return _of_placed(outcome, outcome.apart_pods)


def _cross_cache(outcome: Outcome) -> str:
    return _of_placed(outcome, outcome.cross_cache_pods)


def _shared_cores(outcome: Outcome) -> str:
    return _of_placed(outcome, outcome.shared_cores)


def _stranded(outcome: Outcome) -> str:
    return str(outcome.stranded_cpus)


def _refused_later(outcome: Outcome) -> str:
    return f"{outcome.churn.refused} of {outcome.churn.tried}"


def _exclusive(outcome: Outcome) -> str:
    return str(outcome.exclusive_cpus)


def _fit(outcome: Outcome) -> str:
    capacity = outcome.capacity
    return "-" if capacity is None else f"{capacity.pods}{'' if capacity.whole else '+'}"


_FIT = Column("FIT", _fit, number=True, rank=0)
_ADMITTED = Column("ADMITTED", _admitted, number=True, rank=0)
_REFUSED = Column("REFUSED", _refused, number=False, rank=1)
_RESIZES = Column("RESIZES", _resizes, number=False, rank=2)
COLUMNS = (
    _ADMITTED,
    _REFUSED,
    Column("NOT PLACED", _unplaced, number=True, rank=3),
    Column("CROSS-NUMA", _cross_numa, number=True, rank=4),
    Column("SPLIT PODS", _apart, number=True, rank=7),
    Column("CROSS-CACHE", _cross_cache, number=True, rank=6),
    Column("STRANDED", _stranded, number=True, rank=5),
    Column("REFUSED LATER", _refused_later, number=True, rank=7),
    Column("SHARED CORES", _shared_cores, number=True, rank=8),
    Column("EXCLUSIVE CPUS", _exclusive, number=True, rank=9),
    Column("FRAGMENTATION BY NODE", _fragmentation, number=False, rank=10),
)


class Matrix(NamedTuple):
    """A table of scenarios, and a sentence about the columns that it leaves out (empty: none)."""

    text: str
    left_out: str


def columns_of(outcomes: Sequence[Outcome]) -> tuple[Column, ...]:
    """Return the columns, with one more about resizes where there were any, and the first about how many pods fit where
    that was asked."""
    columns = (*COLUMNS, _RESIZES) if any(outcome.resizes for outcome in outcomes) else COLUMNS
    return (_FIT, *columns) if any(outcome.capacity is not None for outcome in outcomes) else columns


def matrix(outcomes: Sequence[Outcome], *, groups: Sequence[Group] = (), wide: bool = False) -> Matrix:
    """Return one row for each scenario, or for each group of equal ones. Columns with the same value in all rows, and
    those for which the terminal is too narrow, are left out unless it is `wide`."""
    shown = [group.first for group in groups] or list(outcomes)
    names = [_group_name(group) for group in groups] or [outcome.scenario for outcome in outcomes]
    running = [outcome for outcome in shown if not outcome.problem]
    columns = list(columns_of(shown))
    alike = [
        one
        for one in columns
        if one not in (_ADMITTED, _FIT) and len({one.cell(outcome) for outcome in running}) == 1 < len(running)
    ]
    # A problem stands in the column of refusals.
    if len(running) < len(shown):
        alike = [one for one in alike if one is not _REFUSED]
    narrow: list[Column] = []
    if wide:
        alike = []
    else:
        columns = [one for one in columns if one not in alike]
        columns, narrow = _fitting(columns)
    headings = ("SCENARIO", *(one.heading for one in columns))
    rows = [[name, *_cells(outcome, columns)] for name, outcome in zip(names, shown, strict=True)]
    right = [place for place, one in enumerate(columns, 1) if one.number]
    notes = []
    if alike:
        values = ", ".join(f"{_in_words(one)} {one.cell(running[0])}" for one in alike)
        notes.append(f"The same in all: {values}.")
    if narrow:
        notes.append(f"Too narrow for: {', '.join(_in_words(one) for one in narrow)} (-o wide).")
    return Matrix(format_table(headings, rows, right=right, bold=True), " ".join(notes))


def _fitting(columns: list[Column]) -> tuple[list[Column], list[Column]]:
    """Return the columns that fit beside the scenarios' names, and the others."""
    width, left = terminal_width(), list[Column]()
    while width is not None and len(columns) > 2:
        if _LEAST_SCENARIO + sum(one.least + _GAP for one in columns) <= width:
            break
        last = max(columns, key=_rank)
        columns = [one for one in columns if one is not last]
        left.insert(0, last)
    return columns, left


def _rank(column: Column) -> int:
    return column.rank


def _in_words(column: Column) -> str:
    return column.heading.lower().replace("numa", "NUMA").replace("cpus", "CPUs")


def _group_name(group: Group) -> str:
    return group.first.scenario + (f" and {len(group.others)} more" if group.others else "")


def _cells(outcome: Outcome, columns: Sequence[Column]) -> list[str]:
    if outcome.problem:
        return [f"does not start: {outcome.problem}" if one is _REFUSED else "-" for one in columns]
    return [one.cell(outcome) for one in columns]


def row(outcome: Outcome, columns: Sequence[Column]) -> list[str]:
    """Return the cells of a scenario, its name first."""
    return [outcome.scenario, *_cells(outcome, columns)]


def bars(outcomes: Sequence[Outcome], pods: int) -> str:
    """Return admitted pods as bars, with those across NUMA nodes lighter."""
    width = max((len(outcome.scenario) for outcome in outcomes), default=0)
    label = max((len(bar_label(outcome, pods)) for outcome in outcomes), default=0)
    columns = terminal_width() or width + label + _BAR + 4
    length = min(_BAR, columns - width - label - 4)
    lines = []
    for outcome in outcomes:
        if length >= _SHORTEST_BAR:
            lines.append(f"{outcome.scenario:<{width}}  {_bar(outcome, pods, length)}  {bar_label(outcome, pods)}")
        else:
            bar = _bar(outcome, pods, max(1, min(_BAR, columns - 2)))
            # Too narrow for a bar beside the text: below it.
            lines += [*fold(f"{outcome.scenario}: {bar_label(outcome, pods)}", columns, indent=2), f"  {bar}"]
    return "\n".join(lines)


def _bar(outcome: Outcome, pods: int, whole: int) -> str:
    aligned = outcome.admitted - outcome.cross_numa_pods
    full = _length(aligned, pods, whole)
    light = _length(outcome.admitted, pods, whole) - full
    bar = style("█" * full, fg="green") + style("▒" * light, fg="yellow")
    return bar + "·" * (whole - full - light)


def bar_label(outcome: Outcome, pods: int) -> str:
    """Return the text beside a scenario's bar."""
    if outcome.problem:
        return "does not start"
    across = f", {outcome.cross_numa_pods} across NUMA nodes" if outcome.cross_numa_pods else ""
    return f"{outcome.admitted} of {pods} admitted{across}"


def _length(amount: int, pods: int, whole: int) -> int:
    return round(whole * amount / pods) if pods else 0


def verdicts(outcomes: Sequence[Outcome]) -> str:
    """Return every pod in every scenario."""
    running = [outcome for outcome in outcomes if not outcome.problem]
    names = [verdict.pod for verdict in running[0].pods] if running else []
    rows = [
        [
            name,
            *(outcome.pods[i].reason or _place_words(outcome.pods[i]) for outcome in running),
        ]
        for i, name in enumerate(names)
    ]
    return format_table(("POD", *(outcome.scenario for outcome in running)), rows, bold=True)


def _place_words(verdict: PodVerdict) -> str:
    if verdict.cross_numa:
        return "across NUMA nodes"
    if verdict.apart:
        return "containers on different NUMA nodes"
    if verdict.cross_cache:
        return "across caches"
    return "admitted" if verdict.placed else "admitted, owns nothing"


def groups_text(groups: Sequence[Group]) -> str:
    """Return the names of scenarios with equal results, a line for each group that has several."""
    return "\n".join(f"Same result as {one.first.scenario}: {', '.join(one.others)}" for one in groups if one.others)


def capacity_text(outcome: Outcome, names: Sequence[str], *, running: int) -> str:
    """Return how many of the pods of these names fit beside `running` ones, and why not one more."""
    if outcome.problem:
        return f"{outcome.scenario}: does not start: {outcome.problem}"
    capacity = outcome.capacity or Capacity(0, 0)
    beside = f" beside {plural(running, 'running pod')}" if running else ""
    some = ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
    least = "" if capacity.whole else "at least "
    if len(names) == 1:
        text = f"{least}{plural(capacity.pods, 'such pod')} ({some}) {'fits' if capacity.pods == 1 else 'fit'}"
    else:
        rounds = plural(capacity.rounds, "set")
        text = f"{least}{rounds} of these {len(names)} pods ({some}) {'fits' if capacity.rounds == 1 else 'fit'}"
        if over := capacity.pods - capacity.rounds * len(names):
            text += f", and {plural(over, 'pod')} of the next"
    lines = [style(f"{outcome.scenario}: {text}{beside}.", bold=True)]
    if capacity.refused:
        lines.append(f"  The next one, {capacity.refused}, is refused with {capacity.reason}.")
        lines += [f"  {line}" for line in capacity.why]
    return "\n".join(lines)


def resizes_text(outcomes: Sequence[Outcome]) -> str:
    """Return every resize in every scenario; empty where there are none."""
    running = [outcome for outcome in outcomes if not outcome.problem and outcome.resizes]
    if not running:
        return ""
    rows = []
    for place, one in enumerate(running[0].resizes):
        answers = [outcome.resizes[place] for outcome in running]
        rows.append([one.pod, *(f"{answer.outcome}{' (late)' * answer.late}" for answer in answers)])
    return format_table(("RESIZED", *(outcome.scenario for outcome in running)), rows, bold=True)


def classes_text(outcomes: Sequence[Outcome]) -> str:
    """Return the CPU classes of every scenario that has some, with their CPUs left; empty where none has."""
    rows = [
        [outcome.scenario, one.name, str(one.cpus), str(one.owned), str(one.free)]
        for outcome in outcomes
        for one in outcome.classes
    ]
    if not rows:
        return ""
    return format_table(("SCENARIO", "CLASS", "CPUS", "OWNED", "FREE"), rows, right=(2, 3, 4), bold=True)


def consequences_text(outcomes: Sequence[Outcome]) -> str:
    """Return the consequences of a changed machine in every scenario; empty where there are none."""
    rows = [
        [outcome.scenario, one.kind, one.pod or "(node)", one.container, one.cpus or "-", one.text]
        for outcome in outcomes
        for one in outcome.consequences
    ]
    if not rows:
        return ""
    return format_table(("SCENARIO", "THEN", "POD", "CONTAINER", "CPUS", ""), rows, bold=True)


def displaced_text(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each pod that runs on the node now and that a scenario refuses; empty where there are none."""
    return "\n".join(
        f"{outcome.scenario}: {verdict.pod} runs, but is refused: {verdict.reason}"
        for outcome in outcomes
        for verdict in outcome.displaced
    )
