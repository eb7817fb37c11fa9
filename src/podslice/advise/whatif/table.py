"""Scenarios side by side: a matrix, bars, and the winners, for the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h

from podslice.advise.explain.fixes.losses import LOSSES
from podslice.advise.whatif.compare import CRITERIA, Outcome, Recommendation
from podslice.evidence.provenance import Provenance, provenance_lines
from podslice.render.ansi import style
from podslice.render.picture import Picture
from podslice.render.prose import fold, plural
from podslice.render.table import format_table, terminal_width

_BAR, _SHORTEST_BAR = 40, 10
_MOST_NAMES = 4
HEADINGS = (
    "SCENARIO",
    "ADMITTED",
    "REFUSED",
    "EXCLUSIVE CPUS",
    "STRANDED",
    "CROSS-NUMA",
    "SHARED CORES",
    "FRAGMENTATION BY NODE",
)


RESIZES = "RESIZES"


def headings(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return `HEADINGS`, and one more about resizes where there were any."""
    return (*HEADINGS, RESIZES) if any(outcome.resizes for outcome in outcomes) else HEADINGS


def matrix(outcomes: Sequence[Outcome]) -> str:
    """Return one row for each scenario."""
    names = headings(outcomes)
    return format_table(names, [row(outcome)[: len(names)] for outcome in outcomes], right=(1, 3, 4, 5, 6), bold=True)


def row(outcome: Outcome) -> list[str]:
    """Return the cells of a scenario under `HEADINGS`, and about its resizes."""
    if outcome.problem:
        return [outcome.scenario, "-", f"does not start: {outcome.problem}", "-", "-", "-", "-", "-", "-"]
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.refused.items())) or "none"
    if outcome.displaced:
        refused += f"; {len(outcome.displaced)} of those that run"
    scores = " ".join(f"{node}:{score:.2f}" for node, score in outcome.fragmentation.items()) or "-"
    return [
        outcome.scenario,
        str(outcome.admitted),
        refused,
        str(outcome.exclusive_cpus),
        str(outcome.stranded_cpus),
        str(outcome.cross_numa_pods),
        str(outcome.shared_cores),
        scores,
        f"{outcome.granted} granted, {outcome.deferred} deferred, {outcome.infeasible} infeasible",
    ]


def bars(outcomes: Sequence[Outcome], pods: int) -> str:
    """Return admitted pods as bars, with those across NUMA nodes lighter."""
    width = max((len(outcome.scenario) for outcome in outcomes), default=0)
    label = max((len(_bar_label(outcome, pods)) for outcome in outcomes), default=0)
    columns = terminal_width() or width + label + _BAR + 4
    length = min(_BAR, columns - width - label - 4)
    lines = []
    for outcome in outcomes:
        if length >= _SHORTEST_BAR:
            lines.append(f"{outcome.scenario:<{width}}  {_bar(outcome, pods, length)}  {_bar_label(outcome, pods)}")
        else:
            bar = _bar(outcome, pods, max(1, min(_BAR, columns - 2)))
            # Too narrow for a bar beside the text: below it.
            lines += [*fold(f"{outcome.scenario}: {_bar_label(outcome, pods)}", columns, indent=2), f"  {bar}"]
    return "\n".join(lines)


def _bar(outcome: Outcome, pods: int, whole: int) -> str:
    aligned = outcome.admitted - outcome.cross_numa_pods
    full = _length(aligned, pods, whole)
    light = _length(outcome.admitted, pods, whole) - full
    bar = style("█" * full, fg="green") + style("▒" * light, fg="yellow")
    return bar + "·" * (whole - full - light)


def _bar_label(outcome: Outcome, pods: int) -> str:
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
            *(
                outcome.pods[i].reason or ("across NUMA nodes" if outcome.pods[i].cross_numa else "admitted")
                for outcome in running
            ),
        ]
        for i, name in enumerate(names)
    ]
    return format_table(("POD", *(outcome.scenario for outcome in running)), rows, bold=True)


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


def best_text(ranking: Recommendation) -> str:
    """Return the overall winner and the winners of each criterion, with numbers."""
    if not ranking.best:
        return "No scenario starts."
    first = ranking.outcomes[0]
    lines = [style(f"Recommended: {first.scenario}", bold=True)]
    if first.losses:
        lines.append(f"  it gives up: {'; '.join(LOSSES[name] for name in first.losses)}")
    for name, (value, scenarios) in ranking.best.items():
        lines.append(f"  {CRITERIA[name]}: {value:g} ({_names(scenarios, ranking)})")
    return "\n".join(lines)


def _names(scenarios: Sequence[str], ranking: Recommendation) -> str:
    if len(scenarios) == len(ranking.outcomes) > 1:
        return "all alike"
    more = f" and {len(scenarios) - _MOST_NAMES} more" if len(scenarios) > _MOST_NAMES else ""
    return ", ".join(scenarios[:_MOST_NAMES]) + more


def comparison_page(
    outcomes: Sequence[Outcome],
    ranking: Recommendation,
    pods: int,
    *,
    recommend: bool,
    pictures: Sequence[tuple[str, Picture]] = (),
    provenance: Sequence[Provenance] = (),
) -> str:
    """Return a self-contained page: what it rests on, bar chart, matrix, winners, and pictures of some scenarios under
    their names."""
    from podslice.render.html import basis_lines, page, section

    names = headings(outcomes)
    winners = [
        h.li[f"{CRITERIA[name]}: {value:g} ({_names(scenarios, ranking)})"]
        for name, (value, scenarios) in ranking.best.items()
    ]
    best = ranking.outcomes[0].scenario if ranking.best else "none, no scenario starts"
    if ranking.best and ranking.outcomes[0].losses:
        best += f" (it gives up: {'; '.join(LOSSES[name] for name in ranking.outcomes[0].losses)})"
    body = [
        h.h1[f"{plural(pods, 'pod')}, {plural(len(outcomes), 'scenario')}"],
        (basis_lines(provenance_lines(one)) for one in provenance),
        h.p[h.strong["Recommended: "], best] if recommend or len(outcomes) > 1 else None,
        h.ul[winners],
        h.div(".scroll")[_chart(outcomes, pods)],
        h.h2["Numbers"],
        h.div(".scroll")[
            h.table[
                h.thead[
                    h.tr[
                        (
                            h.th(scope="col")[name.capitalize().replace("cpu", "CPU").replace("numa", "NUMA")]
                            for name in names
                        )
                    ]
                ],
                h.tbody[
                    (h.tr[(h.td[cell] for cell in row(outcome)[: len(headings(outcomes))])] for outcome in outcomes)
                ],
            ]
        ],
        [section(name, picture, f"w{i}-") for i, (name, picture) in enumerate(pictures)],
    ]
    return page("What if", body)


def _chart(outcomes: Sequence[Outcome], pods: int) -> h.Element:
    """Draw bars of admitted pods: aligned, across NUMA nodes, refused; each with a colour and a text."""
    label = min(560.0, 20 + 6.9 * max((len(outcome.scenario) for outcome in outcomes), default=10))
    whole = 560.0
    text_width = 6.9 * max((len(_bar_label(outcome, pods)) for outcome in outcomes), default=10)
    width, height = label + whole + 20 + text_width, 34 + 24 * len(outcomes)
    rect, text, group = h.Element("rect"), h.Element("text"), h.Element("g")
    bars_drawn = []
    for place, outcome in enumerate(outcomes):
        y = 30 + place * 24
        aligned = outcome.admitted - outcome.cross_numa_pods
        parts = ((aligned, "#0072b2"), (outcome.cross_numa_pods, "#e69f00"), (sum(outcome.refused.values()), "#8c959f"))
        x = label
        drawn = []
        for amount, fill in parts:
            size = whole * amount / pods if pods else 0
            if size:
                drawn.append(rect(x=f"{x:.6g}", y=str(y), width=f"{size:.6g}", height="16", fill=fill))
            x += size
        numbers = _bar_label(outcome, pods)
        bars_drawn.append(
            group[
                h.Element("title")[f"{outcome.scenario}: {numbers}"],
                text(x="4", y=str(y + 12))[outcome.scenario],
                drawn,
                text(x=f"{label + whole + 8:.6g}", y=str(y + 12))[numbers],
            ]
        )
    legend = [
        (
            rect(x=f"{label + i * 210:.6g}", y="4", width="12", height="12", fill=fill),
            text(x=f"{label + 17 + i * 210:.6g}", y="14")[name],
        )
        for i, (name, fill) in enumerate(
            (("admitted", "#0072b2"), ("admitted across NUMA nodes", "#e69f00"), ("refused", "#8c959f"))
        )
    ]
    return h.Element("svg")(
        {"viewBox": f"0 0 {width:.6g} {height}", "xmlns": "http://www.w3.org/2000/svg"},
        width=f"{width:.6g}",
        height=str(height),
        role="img",
        aria_label="Admitted pods by scenario",
        style="font-size:12px;fill:currentColor",
    )[legend, bars_drawn]
