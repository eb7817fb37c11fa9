"""The figures to reach: one line each, over the cases that show it, the slowest of them deciding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log

import msgspec

from benchmarks import cluster, explain
from benchmarks.measure import Result


class Goal(msgspec.Struct, frozen=True):
    """A figure: what it is about, the `limit` (microseconds or the `unit`), and which results belong to it, by group
    and name; `prefix` takes every name that begins so. `go` is for cases in which the Go code does not terminate."""

    what: str
    limit: float
    group: str
    names: tuple[str, ...] = ()
    prefix: str = ""
    unit: str = "us"
    go: str = ""

    def covers(self, result: Result) -> bool:
        if result.group != self.group:
            return False
        return result.name in self.names or (self.prefix != "" and result.name.startswith(self.prefix))


class Reached(msgspec.Struct, frozen=True):
    """A goal's outcome: our best and worst figure, the Go code's, and how many times faster we are."""

    goal: Goal
    ours: tuple[float, float]
    go: tuple[float, float] | None
    faster: tuple[float, float] | None

    @property
    def ok(self) -> bool:
        return self.ours[0] >= self.goal.limit if self.goal.unit.endswith("/s") else self.ours[1] <= self.goal.limit


_ADMISSIONS = "recorded admissions"
GOALS = (
    Goal("2 NUMA, 64 CPUs, 1 container of 4 CPUs", 80, _ADMISSIONS, ("a",)),
    Goal("the same with memory Static", 120, _ADMISSIONS, ("a-mem",)),
    Goal("8 NUMA, 256 CPUs, CPU + memory, pod scope: empty, half full, single-numa-node, closest", 1000, _ADMISSIONS,
         ("b", "b-half", "b-single", "b-closest")),
    Goal("the same, container scope, 5 containers", 3000, _ADMISSIONS, ("c",)),
    Goal("4 NUMA, 128 CPUs, six resources: restricted, single-numa-node", 1000, _ADMISSIONS, ("d4", "d4-single")),
    Goal("8 NUMA, 256 CPUs, six resources: restricted, single-numa-node", 3000, _ADMISSIONS, ("d8", "d8-single"),
         go="restricted: years"),
    Goal("8 NUMA, CPU + memory + 1 huge page size", 2000, _ADMISSIONS, ("d8-3res",)),
    Goal("10, 12, 16 NUMA, CPU", 2000, _ADMISSIONS, ("e10-cpu", "e12-cpu", "e16-cpu")),
    Goal("10, 12, 16 NUMA, CPU + memory", 2000, _ADMISSIONS, ("e10-cpumem", "e12-cpumem", "e16-cpumem"),
         go="16: over 60 s"),
    Goal("picking CPUs on 8 NUMA, 256 CPUs: all 35 cases", 150, "recorded picks", prefix="take-"),
    Goal("picking 4 and 64 of 256 CPUs with plugins that come along", 100, "plugin picks",
         tuple(f"{count} of 256 CPUs, {name}" for count in (4, 64)
               for name in ("static", "spread-power", "spread-power, balance-numa", "pack-caches"))),
    Goal("scored merge of 4 resources on 8 NUMA", 150, "scored merges", ("8 NUMA, 4 resources, scored",)),
    Goal("34 NUMA (2 with CPUs), CPU + memory, both scopes", 5000, "admit", prefix="34 NUMA, CPU + memory"),
    Goal("64 NUMA, 512 CPUs, CPU + memory + 2 devices, pod scope, all policies", 50_000, "admit",
         prefix="64 NUMA x 512 CPUs, CPU + memory + 2 devices"),
    Goal("growth of an admission from 8 to 64 NUMA, exponent", 2, "growth", prefix="8 to 64", unit="power"),
    Goal("admit + remove, 2 NUMA, 64 CPUs, CPU + memory", 6000, "cycles", prefix="admit + remove", unit="/s"),
    Goal("explain, CPU for each refused pod, average over 8 nodes and mixes", explain.EXPLAIN_LIMIT, explain.GROUP,
         (explain.EXPLAINED,), unit="ms"),
    Goal("inspect, CPU for each pod, without and with a node", explain.INSPECT_LIMIT, explain.GROUP,
         prefix=explain.INSPECTED, unit="ms"),
    Goal("decide + release on a value, 2 NUMA, 96 CPUs, 8 devices, CPU + memory", 60, "values", prefix="decide"),
    Goal("resize decision, 8 NUMA, 256 CPUs", 150, "values", prefix="resize decision"),
    Goal("copy of a node with 60 pods", 1, "values", prefix="copy"),
    Goal("a node made of a state with 60 pods", 100, "values", prefix="go on"),
    Goal("memory per idle node, machine shared", 20, "figures", ("idle node, 2 NUMA x 64 CPUs, shared machine",),
         unit="KiB"),
    Goal("the same, rules shared", 2, "figures", ("idle node, 2 NUMA x 64 CPUs, shared rules",), unit="KiB"),
    Goal("cluster of 5 000 nodes in states of their own: filter of all names, nodes changing", 3000, cluster.GROUP,
         (cluster.DISTINCT,)),
    Goal("the same for a kind of pod that is new", 10_000, cluster.GROUP, (cluster.COLD,)),
    Goal("the same, the kind known and the nodes as before", 1000, cluster.GROUP, (cluster.WARM,)),
    Goal("the best of 5 000 nodes, nodes changing", 1000, cluster.GROUP, (cluster.CHOICE,)),
    Goal("memory of the model per node, all states distinct (150 MB for 15 000)", 9.8, cluster.GROUP,
         (cluster.KIB,), unit="KiB"),
)  # fmt: skip


def of(result: Result) -> Goal | None:
    """Return the goal that a measured time belongs to."""
    return next((goal for goal in GOALS if goal.unit == "us" and goal.covers(result)), None)


def derive_results(results: Sequence[Result]) -> Iterator[Result]:
    """Results that follow from others: the growth over NUMA nodes as an exponent, cycles per second."""
    points = {(result.curve, result.nodes): result.median for result in results if result.nodes}
    for curve in sorted({curve for curve, _ in points}):
        if (curve, 8) in points and (curve, 64) in points:
            exponent = log(points[curve, 64] / points[curve, 8]) / log(64 / 8)
            yield Result("growth", f"8 to 64 NUMA nodes, {curve}", round(exponent, 2), unit="power")
    for result in results:
        if result.name.startswith("admit + remove"):
            yield Result("cycles", result.name, round(1e6 / result.median), unit="/s")


def evaluate_goals(results: Iterable[Result]) -> list[Reached]:
    """Return the outcome of every goal that was measured."""
    known = list(results)
    known += list(derive_results(known))
    found = []
    for goal in GOALS:
        mine = [result for result in known if goal.covers(result)]
        if mine:
            with_go = [(result.go, result.go / result.median) for result in mine if result.go]
            found.append(
                Reached(
                    goal,
                    _range(result.median for result in mine),
                    _range(go for go, _ in with_go) if with_go else None,
                    _range(ratio for _, ratio in with_go) if with_go else None,
                )
            )
    return found


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def format_figure(value: float, unit: str) -> str:
    """Format a figure with its unit, three digits."""
    if unit == "power":
        return f"{value:.2g}"
    if unit == "/s":
        return f"{value:,.0f} /s"
    if unit != "us":
        return f"{value:.3g} {unit}"
    for factor, name in ((1e6, "s"), (1e3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value:.3g} µs"


def _span(values: tuple[float, float], show: Callable[[float], str]) -> str:
    low, high = show(values[0]), show(values[1])
    if low == high:
        return low
    short, _, unit = low.partition(" ")
    return f"{short if unit and high.endswith(' ' + unit) else low} to {high}"


def cells(one: Reached) -> tuple[str, str, str, str, str]:
    """Return the cells of a row as text: what, ours, Go, how many times faster, target."""
    unit = one.goal.unit
    at_least = unit.endswith("/s")
    go = "" if one.go is None else _span(one.go, lambda value: format_figure(value, "us"))
    faster = "" if one.faster is None else _span(one.faster, lambda value: f"{value:,.0f} ×")
    if one.goal.go:
        go += f" ({one.goal.go})"
    target = f"{'≥' if at_least else '≤'} {format_figure(one.goal.limit, unit)}"
    return one.goal.what, _span(one.ours, lambda value: format_figure(value, unit)), go, faster, target


def table(results: Iterable[Result]) -> Iterator[str]:
    """Format the goals for a terminal."""
    heading = ("figures to reach", "podslice", "Go v1.36.2", "faster", "target")
    rows = [(*cells(one), "ok" if one.ok else "MISSED") for one in evaluate_goals(results)]
    widths = [max(len(row[i]) for row in (*rows, (*heading, ""))) for i in range(6)]
    for row in ((*heading, ""), *rows):
        padded = [text.rjust(width) for text, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *padded[1:]])


def markdown(results: Iterable[Result]) -> str:
    """Format the goals as a table for docs/development/speed.md."""
    rows = ["| one admission or pick | podslice | Go v1.36.2 | faster | target |", "|---|---:|---:|---:|---:|"]
    rows += [f"| {' | '.join(cells(one))} |" for one in evaluate_goals(results)]
    return "\n".join(rows) + "\n"
