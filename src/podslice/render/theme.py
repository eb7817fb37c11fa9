"""Colours of a drawing that are not an owner's, and the attributes with which SVG draws each kind of mark.

Every mark carries its light colours as plain attributes, so that it looks right where style sheets are not read:
converters, slides, chat previews. A style sheet for dark paper overrides them where one is.
"""

from __future__ import annotations

from typing import NamedTuple

FONT = "Arial, Helvetica, Liberation Sans, DejaVu Sans, Noto Sans, sans-serif"
LIGHT = {
    "paper": "#ffffff", "ink": "#1b1f24", "dim": "#59636e", "line": "#afb8c1", "box": "#f6f8fa", "inner": "#ffffff",
    "shared": "#e3e8ed", "reserved": "#8c959f", "used": "#424a53", "mark": "#1b1f24", "alert": "#b53d00",
}  # fmt: skip
DARK = {
    "paper": "#0d1117", "ink": "#e6edf3", "dim": "#9198a1", "line": "#484f58", "box": "#161b22", "inner": "#0d1117",
    "shared": "#30363d", "reserved": "#57606a", "used": "#c9d1d9", "mark": "#ffffff", "alert": "#ff9466",
}  # fmt: skip
_ALIKE = {"none", "#d55e00"}


class Mark(NamedTuple):
    """A kind of mark: names of the colours of its area and its edge (empty for none), and its other attributes."""

    fill: str = ""
    stroke: str = ""
    more: tuple[tuple[str, str], ...] = ()


MARKS = {
    "paper": Mark("paper"),
    "box": Mark("box", "line"),
    "inner": Mark("inner", "line"),
    "cache": Mark("none", "line", (("stroke-dasharray", "3 2"),)),
    "shared": Mark("shared"),
    "reserved": Mark("reserved"),
    "track": Mark("shared"),
    "used": Mark("used"),
    "held": Mark("shared", "ink"),
    "free": Mark("none", "line"),
    "unhealthy": Mark("none", "#d55e00", (("stroke-dasharray", "3 2"),)),
    "changed": Mark("none", "mark"),
    "grown": Mark("ink"),
    "obstacle": Mark("none", "alert"),
    "text": Mark("ink", more=(("font-size", "11"),)),
    "title": Mark("ink", more=(("font-size", "17"), ("font-weight", "bold"))),
    "bold": Mark("ink", more=(("font-size", "12"), ("font-weight", "bold"))),
    "dim": Mark("dim", more=(("font-size", "11"),)),
    "alert": Mark("alert", more=(("font-size", "12"), ("font-weight", "bold"))),
    "number": Mark("ink", more=(("font-size", "11"), ("text-anchor", "middle"))),
    "dim-number": Mark("dim", more=(("font-size", "11"), ("text-anchor", "middle"))),
}


def attributes(kind: str) -> dict[str, str]:
    """Return the attributes of a mark on light paper, and the class by which `DARK_SHEET` finds it."""
    mark = MARKS[kind]
    colours = {"fill": mark.fill, "stroke": mark.stroke}
    plain = {name: LIGHT.get(colour, colour) for name, colour in colours.items() if colour}
    return {"class": kind, **plain, **dict(mark.more)}


def _dark_sheet() -> str:
    rules = ""
    for kind, mark in MARKS.items():
        colours = {"fill": mark.fill, "stroke": mark.stroke}
        dark = ";".join(f"{name}:{DARK[colour]}" for name, colour in colours.items() if colour and colour not in _ALIKE)
        rules += f".podslice .{kind}{{{dark}}}" if dark else ""
    return f"@media (prefers-color-scheme:dark){{{rules}}}"


DARK_SHEET = _dark_sheet()
"""The style sheet for dark paper. It sets colours only: without it a drawing is complete."""
