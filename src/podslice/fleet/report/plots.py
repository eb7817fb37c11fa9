"""Plots as SVG: light or dark as the reader prefers, readable without colour, self-contained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import htpy as h

WIDTH, HEIGHT = 600, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 40
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "9 3 2 3 2 3", "12 4", "4 2 1 2", "7 7")
_ROW = 22
PLOT_STYLE = """
:root{--yellow:#8a7f00}@media (prefers-color-scheme:dark){:root{--yellow:#f0e442}}
svg.plot{font-size:12px;display:block}svg.plot text{fill:var(--ink)}svg.plot .d{fill:var(--dim)}
svg.plot .grid{stroke:var(--line);stroke-width:1}svg.plot .axis{stroke:var(--dim);stroke-width:1}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:1.2rem 2rem}
.plots section{min-width:0}.key{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:13px;margin:.2rem 0}
.key svg{width:34px;height:12px;vertical-align:middle;margin-right:.4em}
.answer{font-size:1.15rem;border-left:4px solid #0072b2;padding:.3rem .8rem;margin:.8rem 0}
.best td{font-weight:600}details{margin:.2rem 0 .6rem}summary{color:var(--dim);font-size:13px;cursor:pointer}
.num td:not(:first-child),.num th:not(:first-child){text-align:right;white-space:nowrap}
.num td:first-child,.num th:first-child{position:sticky;left:0;background:var(--paper)}
@media (max-width:800px){svg.plot{max-width:100%!important}}
@media (max-width:600px){svg.plot{font-size:17px}.num th,.num td{padding:.25rem .35rem}
.num td:first-child{min-width:6rem;padding-left:0}.num th:first-child{padding-left:0}.num td:nth-child(2){min-width:0}}
"""

_rect, _text, _g, _path, _line = (h.Element(name) for name in ("rect", "text", "g", "path", "line"))
_title = h.Element("title")


class Line(NamedTuple):
    """A line of points (x, y), and the band around it: least and most y at each x, empty for none."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()


class Part(NamedTuple):
    """A part of a bar."""

    name: str
    value: float


class Bar(NamedTuple):
    """A bar of parts, one after the other; `text` stands at its end."""

    name: str
    parts: tuple[Part, ...]
    text: str


class Scale(NamedTuple):
    """A linear scale from values to positions on the drawing."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        span = self.high - self.low
        return self.begin + (self.end - self.begin) * ((value - self.low) / span if span else 0.0)

    def ticks(self) -> list[float]:
        """Return about five round values."""
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        step = 10 ** math.floor(math.log10(span / 4))
        step = next(step * many for many in (1, 2, 5, 10) if span / (step * many) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def format_number(value: float) -> str:
    """Format a value."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def colour(place: int) -> str:
    """Return the colour of a line or part; yellow differs between white and black paper."""
    return ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "var(--yellow)", "#8c959f")[place % 8]


def line_chart(lines: Sequence[Line], *, across: str, up: str, label: str, high: float | None = None) -> h.Node:
    """Draw lines with their bands, under a key."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + [y for line in lines for pair in line.band for y in pair]
    if not xs:
        return h.p(".dim")["There is nothing to draw."]
    x = Scale(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    y = Scale(min(0.0, *ys), high if high is not None else max(*ys, 1e-9) * 1.02, HEIGHT - _BOTTOM, _TOP)
    drawn = [_draw_line(line, place, x, y) for place, line in enumerate(lines)]
    return [_key([line.name for line in lines]), _svg(HEIGHT, label)[_axes(x, y, across, up), drawn]]


def _draw_line(line: Line, place: int, x: Scale, y: Scale) -> h.Element:
    points = [(x.at(one), y.at(min(value, y.high))) for one, value in line.points]
    band = None
    if line.band:
        above = [(x.at(one[0]), y.at(min(pair[1], y.high))) for one, pair in zip(line.points, line.band, strict=True)]
        below = [(x.at(one[0]), y.at(min(pair[0], y.high))) for one, pair in zip(line.points, line.band, strict=True)]
        band = _path(d=_trace([*above, *reversed(below)]) + "Z", fill=colour(place), fill_opacity=".15")
    return _g[
        _title[line.name],
        band,
        _path(
            d=_trace(points),
            fill="none",
            stroke=colour(place),
            stroke_width="2",
            stroke_dasharray=_DASHES[place % len(_DASHES)] or None,
        ),
    ]


def _trace(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _axes(x: Scale, y: Scale, across: str, up: str) -> Iterator[h.Element]:
    for value in y.ticks():
        at = f"{y.at(value):.1f}"
        yield _line(class_="grid", x1=str(_LEFT), x2=str(WIDTH - _RIGHT), y1=at, y2=at)
        yield _text(class_="d", x=str(_LEFT - 6), y=f"{y.at(value) + 4:.1f}", text_anchor="end")[format_number(value)]
    for value in x.ticks():
        place = f"{x.at(value):.1f}"
        yield _text(class_="d", x=place, y=str(HEIGHT - _BOTTOM + 16), text_anchor="middle")[format_number(value)]
    base = str(HEIGHT - _BOTTOM)
    yield _line(class_="axis", x1=str(_LEFT), x2=str(WIDTH - _RIGHT), y1=base, y2=base)
    yield _text(class_="d", x=str((WIDTH + _LEFT) // 2), y=str(HEIGHT - 6), text_anchor="middle")[across]
    yield _text(class_="d", x="4", y="14")[up]


def _key(names: Sequence[str]) -> h.Element:
    return h.div(".key")[
        (
            h.span[
                h.Element("svg")({"viewBox": "0 0 34 12"}, aria_hidden="true")[
                    _line(
                        x1="1", x2="33", y1="6", y2="6", stroke=colour(place), stroke_width="3",
                        stroke_dasharray=_DASHES[place % len(_DASHES)] or None,
                    )
                ],
                name,
            ]
            for place, name in enumerate(names)
        )
    ]  # fmt: skip


def bar_chart(bars: Sequence[Bar], *, label: str, most: float | None = None) -> h.Node:
    """Draw horizontal bars of parts, each name above its bar, so that they fit on narrow screens."""
    whole = most or max((sum(part.value for part in bar.parts) for bar in bars), default=0) or 1
    text = 8 + 11.5 * max((len(bar.text) for bar in bars), default=0)
    x = Scale(0, whole, 4, WIDTH - text)
    rows = [_draw_bar(bar, place, x) for place, bar in enumerate(bars)]
    names = [part.name for part in bars[0].parts] if bars else []
    key = h.div(".key")[(h.span[_swatch(place), name] for place, name in enumerate(names))] if len(names) > 1 else None
    return [key, _svg(len(bars) * 2 * _ROW + 6, label)[rows]]


def _draw_bar(bar: Bar, place: int, x: Scale) -> h.Element:
    top = place * 2 * _ROW
    reached, drawn = 0.0, []
    for index, part in enumerate(bar.parts):
        size = x.at(reached + part.value) - x.at(reached)
        if size > 0:
            drawn.append(
                _rect(
                    x=f"{x.at(reached):.1f}", y=str(top + 20), width=f"{size:.1f}", height="15",
                    fill=colour(index), stroke="var(--paper)",
                )
            )  # fmt: skip
        reached += part.value
    return _g[
        _title[f"{bar.name}: {bar.text}"],
        _text(x="4", y=str(top + 15))[bar.name],
        drawn,
        _text(class_="d", x=f"{x.at(reached) + 6:.1f}", y=str(top + 32))[bar.text],
    ]


def _swatch(place: int) -> h.Element:
    return h.Element("svg")({"viewBox": "0 0 34 12"}, aria_hidden="true")[
        _rect(x="0", y="0", width="34", height="12", fill=colour(place))
    ]


class Strip(NamedTuple):
    """A row of a heat strip: a name, shares from 0 to 1, and the nodes in it, by number."""

    name: str
    group: str
    shares: Sequence[float]
    nodes: Sequence[int] = ()


_LEVELS = 10


def heat_strip(strips: Sequence[Strip], *, label: str, across: str) -> h.Node:
    """Draw rows of cells, the darker the fuller; rows of a group stand together under its name."""
    if not strips:
        return h.p(".dim")["There is nothing to draw."]
    height = max(1.5, min(9.0, 420 / len(strips)))
    columns = len(strips[0].shares)
    wide = (WIDTH - 8) / columns
    drawn: list[h.Node] = []
    y, group = 0.0, ""
    for strip in strips:
        if strip.group != group:
            group, y = strip.group, y + 16
            drawn.append(_text(x="4", y=f"{y - 4:.1f}")[group])
        numbers = " ".join(map(str, strip.nodes)) or None
        row: list[h.Node] = [_title[strip.name], *_runs(strip.shares, y, wide, height)]
        drawn.append(_g(data_n=numbers)[[*row, _whole_row(y, height)] if numbers else row])
        y += height
    drawn.append(_text(class_="d", x=str(WIDTH // 2), y=f"{y + 15:.1f}", text_anchor="middle")[across])
    scale = [
        _rect(x=str(4 + level * 22), y=f"{y + 24:.1f}", width="22", height="10", fill="#0072b2",
              fill_opacity=f"{level / _LEVELS:.1f}", stroke="var(--line)")
        for level in range(_LEVELS + 1)
    ]  # fmt: skip
    scale += [_text(class_="d", x="256", y=f"{y + 33:.1f}")["empty to full"]]
    return _svg(math.ceil(y + 40), label)[drawn, scale]


def _whole_row(y: float, height: float) -> h.Element:
    """Draw a transparent row that receives clicks."""
    return _rect(
        class_="hit", x="4", y=f"{y:.1f}", width=str(WIDTH - 8), height=f"{height:.1f}", fill_opacity="0",
        stroke="var(--line)", stroke_opacity="0",
    )  # fmt: skip


def _runs(shares: Sequence[float], y: float, wide: float, height: float) -> Iterator[h.Element]:
    """Draw equal neighbours as one rectangle, and empty cells not at all, which keeps pages small."""
    levels = [min(_LEVELS, max(0, round(share * _LEVELS))) for share in shares]
    begin = 0
    for place in range(1, len(levels) + 1):
        if place == len(levels) or levels[place] != levels[begin]:
            if levels[begin]:
                yield _rect(
                    x=f"{4 + begin * wide:.1f}", y=f"{y:.1f}", width=f"{(place - begin) * wide:.1f}",
                    height=f"{height:.1f}", fill="#0072b2", fill_opacity=f"{levels[begin] / _LEVELS:.1f}",
                )  # fmt: skip
            begin = place


def steps(values: Sequence[float], most: int = 200) -> list[tuple[float, float]]:
    """Return the cumulative share of values, in percent, with at most `most` points."""
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return []
    places = sorted({round(step * (count - 1) / (most - 1)) for step in range(most)}) if count > most else range(count)
    return [(ordered[place], 100 * (place + 1) / count) for place in places]


def _svg(height: int, label: str) -> h.Element:
    return h.Element("svg")(
        {"viewBox": f"0 0 {WIDTH} {height}", "xmlns": "http://www.w3.org/2000/svg"},
        class_="plot",
        width=str(WIDTH),
        height=str(height),
        role="img",
        aria_label=label,
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, best: int = -1) -> h.Element:
    """Return a table of numbers; the row `best` is emphasised."""
    return h.div(".scroll")[
        h.table(".num")[
            h.thead[h.tr[(h.th(scope="col")[name] for name in headings)]],
            h.tbody[
                (
                    h.tr(class_="best" if place == best else None)[(h.td[cell] for cell in row)]
                    for place, row in enumerate(rows)
                )
            ],
        ]
    ]
