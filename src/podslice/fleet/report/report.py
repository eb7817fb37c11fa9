"""The page of a run: the answer first, then seven plots with the numbers behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import htpy as h
from markupsafe import Markup

from podslice.fleet.report.comparing import Configuration
from podslice.fleet.report.measures import BY_NAME, CRITERIA
from podslice.fleet.report.node_maps import MAP_SCRIPT, MAP_STYLE, node_maps
from podslice.fleet.report.plots import (
    PLOT_STYLE,
    Bar,
    Line,
    Part,
    Strip,
    bar_chart,
    format_number,
    heat_strip,
    line_chart,
    steps,
    table,
)
from podslice.fleet.report.summary import RunSummary, configuration_of, differing_parts, sentences
from podslice.fleet.report.tables import split_key
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.codec import CellOutcome
from podslice.fleet.scenario.node_history import replay_node
from podslice.fleet.scenario.plan_file import PlannedNodes
from podslice.fleet.scenario.store import RunStore
from podslice.render.html import page, section
from podslice.render.picture import picture_of
from podslice.values.quantity import plural

_MOST_LINES = 8
_MOST_REFUSALS = 12
_MOST_ROWS = 120
_BINS = 120
_FIRST = (*CRITERIA, "gpus", "cpus", "looping", "holes")
"""Figures of the first table."""
_MOST_PICTURES = 6
_POINTS = 160


class ShownConfiguration(NamedTuple):
    """A configuration in the plots, with the outcomes of its seeds."""

    name: str
    cells: tuple[tuple[str, CellOutcome], ...]


def report_page(store: RunStore, study: Study | None, summary: RunSummary, planned: PlannedNodes | None = None) -> str:
    """Return the page. `study`: the run's inputs, for pictures of nodes; None where they are missing."""
    keys = list(store.list_keys())
    parts = differing_parts(keys)
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(configuration_of(key, parts), []).append(key)
    shown = [
        ShownConfiguration(one.name, tuple((key, store.read_outcome(key)) for key in by_name[one.name]))
        for one in summary.candidates[:_MOST_LINES]
    ]
    answer = sentences(summary)
    body = [
        h.h1[summary.name],
        h.p(".dim")[
            f"{plural(len(summary.candidates), 'configuration')}, {plural(summary.seeds, 'seed')}, "
            f"{plural(len(shown[0].cells[0][1].nodes), 'node')}, {len(shown[0].cells[0][1].shape)} pods a cell"
        ],
        h.p(".answer")[answer[0]],
        h.p[answer[1]],
        h.p[answer[2]],
        _numbers(summary),
        h.div(".plots")[list(_plots(shown, summary, planned, study, store.folder.name))],
        _pictures(study, shown[0]),
        _assumptions(summary),
    ]
    return page(summary.name, [body, h.script[Markup(MAP_SCRIPT)]], style=PLOT_STYLE + MAP_STYLE)


def _numbers(summary: RunSummary) -> h.Node:
    every = [name for name in BY_NAME if any(one.mean(name) for one in summary.candidates)]
    first = [name for name in _FIRST if name in every]
    meaning = [h.li[h.strong[_heading(name)], f": {BY_NAME[name].meaning}"] for name in every]
    return [
        h.h2["Numbers"],
        _figures(summary, first),
        h.details[h.summary["All figures, and what they mean"], _figures(summary, every), h.ul[meaning]],
        h.p(".dim")[
            "± is half of a 95 % interval over seeds (Student). Best first, by "
            + ", ".join(BY_NAME[name].heading.lower() for name in CRITERIA)
            + "."
        ],
    ]


def _figures(summary: RunSummary, names: Sequence[str]) -> h.Element:
    headings = ["Configuration", *(f"{_heading(name)} {BY_NAME[name].unit}" for name in names)]
    rows = [[one.name, *(_figure(one, name) for name in names)] for one in summary.candidates]
    return table(headings, rows, best=0)


def _heading(name: str) -> str:
    return BY_NAME[name].heading.capitalize().replace("pus", "PUs").replace("numa", "NUMA")


def _figure(candidate: Configuration, name: str) -> str:
    found = candidate.mean(name)
    if found is None:
        return "–"
    return f"{found.mean:.1f}" + (f" ±{found.half:.1f}" if found.half else "")


def _plots(
    shown: Sequence[ShownConfiguration],
    summary: RunSummary,
    planned: PlannedNodes | None,
    study: Study | None,
    run: str,
) -> Iterator[h.Element]:
    command = f"podslice fleet run {run}/scenario.yaml"
    yield _section("1 Allocation", _plot_allocation(shown), command)
    yield _section("2 Stranded CPUs, expected", _plot_stranded(summary.candidates), command)
    yield _section("3 What kubelets refuse", _plot_refused(summary), command)
    yield _section("4 Free CPUs of nodes, and the largest pod", _plot_free(shown), command)
    yield _section("5 Nodes over time", [_plot_heat(shown[0]), _maps(study, shown[0], run)], command)
    yield _section("6 Nodes needed", _plot_plan(planned), command.replace(" run ", " plan "))
    yield _section("7 Time to run", _plot_waits(shown), command)


def _section(title: str, content: h.Node, command: str) -> h.Element:
    return h.section[h.h2[title], content, h.p(".dim")["How to reproduce: ", h.code[command]]]


def _details(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> h.Element:
    return h.details[h.summary[f"The numbers ({len(rows)})"], table(headings, rows)]


# 1


def _plot_allocation(shown: Sequence[ShownConfiguration]) -> h.Node:
    first = shown[0].cells[0][1]
    by_gpu = any(shape.gpu for shape in first.shapes)
    name, what = ("gpu_milli", "GPUs") if by_gpu else ("cpu_milli", "CPUs")
    timed = first.result.summary["ended"] > 0
    lines = [_allocation_line(one, name, timed=timed) for one in shown]
    across = "hours" if timed else f"{what} that pods asked for so far, % of all"
    rows = [[line.name, *(f"{y:.1f}" for _, y in _few(line.points))] for line in lines]
    headings = ["Configuration", *(format_number(x) for x, _ in _few(lines[0].points))]
    chart = line_chart(lines, across=across, up=f"{what} allocated, %", label="Allocation", high=100)
    return [chart, _details(headings, rows)]


def _few(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    step = max(1, len(points) // 8)
    return points[::step]


def _allocation_line(shown: ShownConfiguration, name: str, *, timed: bool) -> Line:
    """Return the mean over seeds at evenly spaced points, with the least and the most as a band."""
    curves = [_curve(outcome, name, timed=timed) for _, outcome in shown.cells]
    end = min(curve[-1][0] for curve in curves)
    points, band = [], []
    for step in range(_POINTS + 1):
        x = end * step / _POINTS
        values = [_at(curve, x) for curve in curves]
        points.append((x, sum(values) / len(values)))
        band.append((min(values), max(values)))
    return Line(shown.name, points, band if len(curves) > 1 else ())


def _curve(outcome: CellOutcome, name: str, *, timed: bool) -> list[tuple[float, float]]:
    """Return the allocation of a cell in percent over hours, or over percent of the requests that have arrived."""
    series, summary = outcome.result.series, outcome.result.summary
    room = summary[f"{name}_room"] or 1
    xs = [at / 3_600_000 for at in series["at_ms"]] if timed else [100 * one / room for one in series["arrived_milli"]]
    return [(0.0, 0.0), *((x, 100 * y / room) for x, y in zip(xs, series[name], strict=True))]


def _at(curve: list[tuple[float, float]], x: float) -> float:
    """Return the value at x, which is that of the last row at or before it."""
    low, high = 0, len(curve)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if curve[middle][0] <= x else (low, middle)
    return curve[low][1]


# 2 to 4


def _plot_stranded(candidates: Sequence[Configuration]) -> h.Node:
    bars, rows = [], []
    for one in candidates[:_MOST_REFUSALS]:
        expected, blind = one.mean("expectedStranded"), one.mean("blindStranded")
        if expected is None or blind is None:
            continue
        by_sums, by_numa = min(blind.mean, expected.mean), max(0.0, expected.mean - blind.mean)
        bars.append(Bar(one.name, (Part("by sums", by_sums), Part("more by NUMA nodes and options", by_numa)),
                        f"{expected.mean:.1f} %"))  # fmt: skip
        rows.append([one.name, f"{by_sums:.2f}", f"{by_numa:.2f}", f"{expected.mean:.2f}"])
    return [
        h.p(".dim")["CPUs that a further pod of the mix could not get, in % of those that can be owned, at the end."],
        bar_chart(bars, label="Expected stranded CPUs"),
        _details(["Configuration", "By sums %", "More by NUMA %", "Together %"], rows),
    ]


def _plot_refused(summary: RunSummary) -> h.Node:
    if not summary.refusals:
        return h.p["No kubelet refused a pod."]
    whole: dict[tuple[str, str], int] = {}
    for one in summary.refusals:
        whole[(one.reason, one.shape)] = whole.get((one.reason, one.shape), 0) + one.attempts
    most = sorted(whole.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REFUSALS]
    bars = [
        Bar(f"{reason}: {shape}", (Part("attempts", float(count)),), format_number(count))
        for (reason, shape), count in most
    ]
    rows = [
        [one.configuration, one.reason, one.shape, one.kind, format_number(one.attempts), str(one.example)]
        for one in summary.refusals[:100]
    ]
    return [
        h.p(".dim")["Refused attempts by reason and shape, over all configurations and seeds."],
        bar_chart(bars, label="Refusals by reason and shape"),
        _details(["Configuration", "Reason", "Shape", "Nodes", "Attempts", "Pod, such as"], rows),
    ]


def _plot_free(shown: Sequence[ShownConfiguration]) -> h.Node:
    free, largest = [], []
    for one in shown:
        outcomes = [outcome for _, outcome in one.cells]
        free.append(Line(one.name, steps([value for outcome in outcomes for value in _free_cpus(outcome)])))
        values = [value for outcome in outcomes for value in outcome.result.nodes.largest if value >= 0]
        largest.append(Line(one.name, steps([float(value) for value in values])))
    rows = [
        [line.name, *(format_number(_quantile(line.points, share)) for share in (10, 50, 90))]
        + [format_number(_quantile(other.points, share)) for share in (10, 50, 90)]
        for line, other in zip(free, largest, strict=True)
    ]
    return [
        line_chart(free, across="CPUs of a node that the scheduler counts as free", up="nodes, %", label="Free CPUs",
                   high=100),
        line_chart(largest, across="CPUs of the largest pod that still fits a node", up="nodes, %", label="Largest pod",
                   high=100),
        _details(["Configuration", "free 10 %", "50 %", "90 %", "largest 10 %", "50 %", "90 %"], rows),
    ]  # fmt: skip


def _free_cpus(outcome: CellOutcome) -> Iterator[float]:
    for place, used in enumerate(outcome.result.nodes.cpu_milli):
        yield (outcome.classes[outcome.kind[place]].cpu - used) / 1000


def _quantile(points: Sequence[tuple[float, float]], share: float) -> float:
    return next((x for x, y in points if y >= share), 0.0)


# 5 to 7


def _plot_heat(shown: ShownConfiguration) -> h.Node:
    key, outcome = shown.cells[0]
    strips = heat_strips(outcome)
    rows = [[strip.name, strip.group, *(f"{100 * strip.shares[place]:.0f}" for place in _places())] for strip in strips]
    return [
        h.p(".dim")[f"CPUs booked on nodes, {shown.name}, seed {split_key(key)[4]}; nodes of a class in their order."],
        heat_strip(strips, label="Nodes over time", across="time"),
        _details(["Nodes", "Class", *(f"{100 * place // (_BINS - 1)} %" for place in _places())], rows),
    ]


def _maps(study: Study | None, shown: ShownConfiguration, run: str) -> h.Node:
    key, outcome = shown.cells[0]
    cell = next((one for one in study.cells if one.key == key), None) if study else None
    if study is None or cell is None:
        return h.p(".dim")["The run does not hold its inputs, so that nodes cannot be drawn."]
    return node_maps(study, cell, outcome, run)


def _places() -> range:
    return range(0, _BINS, _BINS // 6)


def heat_strips(outcome: CellOutcome) -> list[Strip]:
    """Return the booked share of nodes over time; neighbours of a class share a row where there are many."""
    pods, nodes = outcome.result.pods, len(outcome.nodes)
    horizon = max(outcome.result.summary["horizon_ms"], 1)
    changes = [[0] * (_BINS + 1) for _ in range(nodes)]
    for pod, node in enumerate(pods.node):
        if node < 0 or pods.bound[pod] < 0:
            continue
        amount = outcome.shapes[outcome.shape[pod]].cpu
        changes[node][min(_BINS - 1, pods.bound[pod] * _BINS // horizon)] += amount
        if pods.ended[pod] >= 0:
            changes[node][min(_BINS, pods.ended[pod] * _BINS // horizon)] -= amount
    order = sorted(range(nodes), key=lambda node: (outcome.kind[node], node))
    many = -(-nodes // _MOST_ROWS)
    strips = []
    for kind in dict.fromkeys(outcome.kind[node] for node in order):
        members = [node for node in order if outcome.kind[node] == kind]
        for first in range(0, len(members), many):
            strips.append(_strip(outcome, changes, members[first : first + many], kind))
    return strips


def _strip(outcome: CellOutcome, changes: list[list[int]], members: list[int], kind: int) -> Strip:
    """Return the booked share of some nodes of a class over time."""
    room = outcome.classes[kind].cpu * len(members) or 1
    shares, booked = [], 0
    for place in range(_BINS):
        booked += sum(changes[node][place] for node in members)
        shares.append(booked / room)
    last = f" to {outcome.nodes[members[-1]]}" if len(members) > 1 else ""
    return Strip(f"{outcome.nodes[members[0]]}{last}", outcome.classes[kind].name, shares, members)


def _plot_plan(planned: PlannedNodes | None) -> h.Node:
    if planned is None:
        return h.p["Not asked for: ", h.code["podslice fleet plan"], " finds the least number of nodes."]
    bars = [
        Bar(one.name, (Part("nodes", float(one.median)),), f"{one.median} ({one.least} to {one.most})")
        for one in planned.configurations
    ]
    rows = [[one.name, str(one.median), str(one.least), str(one.most), str(one.p90)] for one in planned.configurations]
    of_classes = [
        [one.name, kind.name, *map(str, (kind.nodes, kind.fewer, kind.least, kind.most, kind.p90))]
        for one in planned.configurations
        for kind in one.classes
    ]
    how = "which go together, by weight" if planned.weights else "while all others stay"
    heads = ["Configuration", "Class", "Nodes", "Fewer", "Least", "Most", "90 % of seeds"]
    return [
        bar_chart(bars, label="Nodes needed"),
        _details(["Configuration", "Median", "Least", "Most", "90th percentile"], rows),
        [h.p[f"Nodes fewer of each class, {how}."], _details(heads, of_classes)] if of_classes else None,
    ]


def _plot_waits(shown: Sequence[ShownConfiguration]) -> h.Node:
    lines, rows = [], []
    for one in shown:
        waits: list[float] = []
        never = total = 0
        for _, outcome in one.cells:
            pods = outcome.result.pods
            total += len(outcome.shape)
            for pod, arrival in enumerate(outcome.arrival):
                if pods.bound[pod] < 0:
                    never += 1
                else:
                    waits.append((pods.bound[pod] - arrival) / 1000)
        ran = len(waits) / total if total else 0
        points = steps(waits)
        lines.append(Line(one.name, [(x, y * ran) for x, y in points]))
        rows.append([one.name, *(format_number(_quantile(points, share)) for share in (50, 90, 99)), str(never)])
    return [
        line_chart(lines, across="seconds from arrival to running", up="pods, %", label="Time to run", high=100),
        h.p(".dim")["Pods that never ran are in no line: the rest up to 100 %."],
        _details(["Configuration", "50 %, s", "90 %, s", "99 %, s", "Never ran"], rows),
    ]


# Nodes


def _pictures(study: Study | None, shown: ShownConfiguration) -> h.Node:
    """Return pictures of nodes at the end: of each class the one with the most stranded CPUs."""
    if study is None:
        return None
    key, outcome = shown.cells[0]
    cell = next((one for one in study.cells if one.key == key), None)
    if cell is None:
        return None
    stranded = outcome.result.nodes.expected
    chosen: list[int] = []
    for kind in dict.fromkeys(outcome.kind):
        members = [node for node in range(len(outcome.nodes)) if outcome.kind[node] == kind]
        chosen.append(max(members, key=lambda node: (stranded[node], -node)))
    drawn = []
    for place, number_ in enumerate(chosen[:_MOST_PICTURES]):
        name = outcome.nodes[number_]
        found = replay_node(study, cell, outcome, name)
        title = f"{name}, {outcome.classes[outcome.kind[number_]].name}"
        picture = picture_of(found.node.view, title=title)
        drawn.append(h.details(id=f"node-{name}")[h.summary[title], section("", picture, f"n{place}-")])
    return [
        h.h2["Nodes at the end"],
        h.p(".dim")[
            f"Of each class the node with the most stranded CPUs, {shown.name}, seed {split_key(key)[4]}. "
            "Any other: ", h.code["podslice fleet show RUN --node NAME"],
        ],
        drawn,
    ]  # fmt: skip


def _assumptions(summary: RunSummary) -> h.Node:
    return [
        h.h2["Assumed, and not simulated"],
        h.ul[(h.li[line] for line in (*summary.assumed, *summary.not_started))],
        h.p(".dim")[
            "Not simulated: interference at run time, network, storage, image pulls, gang scheduling, the control "
            "plane's speed. Ties between nodes are broken as the scenario says; a result is worth nothing without it."
        ],
    ]
