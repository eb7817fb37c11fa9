"""The comparison as a self-contained page: bar chart, numbers, and pictures of some scenarios."""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h

from podslice.advise.whatif.compare import Outcome
from podslice.advise.whatif.objective import CRITERIA, Recommendation
from podslice.advise.whatif.recommendation import name_winners, reasons, settings
from podslice.advise.whatif.table import bar_label, columns_of, row
from podslice.evidence.provenance import Provenance, provenance_lines
from podslice.render.picture import Picture
from podslice.values.quantity import plural


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

    columns = columns_of(outcomes)
    names = ("scenario", *(one.heading for one in columns))
    winners = [
        h.li[f"{CRITERIA[name]}: {value:g} ({name_winners(scenarios, ranking)})"]
        for name, (value, scenarios) in ranking.best.items()
    ]
    best = ranking.outcomes[0].scenario if ranking.best else "none, no scenario starts"
    body = [
        h.h1[f"{plural(pods, 'pod')}, {plural(len(outcomes), 'scenario')}"],
        (basis_lines(provenance_lines(one)) for one in provenance),
        h.p[h.strong["Recommended: "], best] if recommend or len(outcomes) > 1 else None,
        h.ul[(h.li[line] for line in reasons(ranking))] if recommend else None,
        h.pre["\n".join(settings(ranking.outcomes[0]))] if recommend and ranking.outcomes[0].sets else None,
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
                h.tbody[(h.tr[(h.td[cell] for cell in row(outcome, columns))] for outcome in outcomes)],
            ]
        ],
        [section(name, picture, f"w{i}-") for i, (name, picture) in enumerate(pictures)],
    ]
    return page("What if", body)


def _chart(outcomes: Sequence[Outcome], pods: int) -> h.Element:
    """Draw bars of admitted pods: aligned, across NUMA nodes, refused; each with a colour and a text."""
    label = min(560.0, 20 + 6.9 * max((len(outcome.scenario) for outcome in outcomes), default=10))
    whole = 560.0
    text_width = 6.9 * max((len(bar_label(outcome, pods)) for outcome in outcomes), default=10)
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
        numbers = bar_label(outcome, pods)
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
