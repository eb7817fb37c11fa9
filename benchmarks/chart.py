"""The curve over NUMA nodes as an SVG that reads on light and dark pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from math import log10

from benchmarks.measure import Result
from benchmarks.recorded import FOLDER

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 50
COLOURS = {"CPU": "#2f7ed8", "CPU + memory": "#d9822b", "six resources": "#3d9950"}
GO_COLOURS = {
    "cpu": ("Kubernetes v1.36.2, CPU", COLOURS["CPU"]),
    "cpumem": ("Kubernetes v1.36.2, CPU + memory", COLOURS["CPU + memory"]),
}
# Colours are attributes, which every viewer shows; the style sheet only adds dark paper.
_DARK = "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#ccc}}"
_GRID = 'stroke="#888" stroke-opacity=".27"'


def draw(results: Iterable[Result]) -> str:
    """Median admission times by NUMA nodes, both axes logarithmic, beside the Go code's."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        if result.nodes:
            curves.setdefault(result.curve, []).append((result.nodes, result.median))
    parts = [_grid(), _title()]
    for name, points in curves.items():
        parts.append(_curve(name, points, COLOURS.get(name, "#888")))
    for place, (kind, (name, colour)) in enumerate(GO_COLOURS.items()):
        parts.append(_curve(name, _go(kind), colour, dashed=True, left=place > 0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Time of one admission over the number of NUMA nodes"><style>{_DARK}</style>'
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        '<g class="ink" fill="#444" font-size="12" font-family="Arial, Helvetica, sans-serif">'
        + "".join(parts)
        + "</g></svg>\n"
    )


def _go(kind: str) -> list[tuple[int, float]]:
    """Return (NUMA nodes, microseconds) of the Go code, where it terminated."""
    found = json.loads((FOLDER / "go-1.36.2.json").read_text())["results"]
    named = [(re.fullmatch(rf"e(\d+)-{kind}", entry["bench"]), entry) for entry in found]
    return [(int(match[1]), entry["median_us"]) for match, entry in named if match and entry["n"]]


def _x(nodes: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(nodes) - log10(2)) / (log10(64) - log10(2))


def _y(microseconds: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(microseconds) - 1) / 6


def _title() -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    return (
        f'<text x="{LEFT}" y="20" font-weight="bold">One pod admitted, pod scope, restricted (median)</text>'
        f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle">NUMA nodes</text>'
    )


def _grid() -> str:
    parts = []
    for power, label in enumerate(("10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"), 1):
        y = _y(10**power)
        parts.append(f'<line {_GRID} x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for nodes in (2, 4, 8, 16, 32, 64):
        x = _x(nodes)
        parts.append(f'<line {_GRID} x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{nodes}</text>')
    return "".join(parts)


def _curve(
    name: str, points: Sequence[tuple[int, float]], colour: str, *, dashed: bool = False, left: bool = False
) -> str:
    """Draw a line with its name beside its end."""
    points = sorted(points)
    dashes = ' stroke-dasharray="5 4" opacity=".8"' if dashed else ""
    path = " ".join(f"{_x(nodes):.1f},{_y(value):.1f}" for nodes, value in points)
    nodes, value = points[-1]
    dots = "".join(f'<circle cx="{_x(n):.1f}" cy="{_y(v):.1f}" r="3" fill="{colour}"/>' for n, v in points)
    return (
        f'<polyline fill="none" stroke-width="2.5" stroke="{colour}"{dashes} points="{path}"/>{dots}'
        f'<text x="{_x(nodes) + (-8 if left else 8):.1f}" y="{_y(value) + 4:.1f}" '
        f'text-anchor="{"end" if left else "start"}" fill="{colour}">{name}</text>'
    )
