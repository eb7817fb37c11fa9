"""The smallest parts of an SVG drawing: boxes, texts, owners' squares. Colours are attributes (`theme`)."""

from __future__ import annotations

from collections.abc import Iterator

import htpy

from podslice.render.layout import Rectangle
from podslice.render.measure import cut_text
from podslice.render.palette import Style, style_of
from podslice.render.picture import CPU, POD_SHARED, RESERVED, Picture
from podslice.render.theme import MARKS, attributes

_rect = htpy.Element("rect")
_text = htpy.Element("text")
_path = htpy.Element("path")
group = htpy.Element("g")
tooltip = htpy.Element("title")


def text_at(x: float, y: float, text: str, kind: str = "text", *, width: float | None = None) -> htpy.Element:
    """Draw a text of a kind of `theme.MARKS`, cut to `width` pixels where one is given."""
    if width is not None:
        sizes = dict(MARKS[kind].more)
        text = cut_text(text, width, float(sizes["font-size"]), bold="font-weight" in sizes)
    return _text({"x": f"{x:.6g}", "y": f"{y:.6g}"}, attributes(kind))[text]


def number_on(x: float, y: float, text: str, size: float, style: Style | None) -> list[htpy.Element]:
    """Draw a text in the middle of an owner's square, or of a square without an owner. On a pattern it has a rim in
    the owner's colour: a text of its own behind it, because not every viewer knows `paint-order`."""
    at = {"x": f"{x:.6g}", "y": f"{y:.6g}"}
    shape = {"font-size": f"{size:.3g}", "text-anchor": "middle"}
    if style is None:
        return [_text(at, {**attributes("number"), **shape})[text]]
    front = _text(at, shape, fill=style.ink)[text]
    if not style.pattern:
        return [front]
    rim = _text(at, shape, fill=style.fill, stroke=style.fill, stroke_width=f"{size / 2.4:.2g}")[text]
    return [rim, front]


def box(place: Rectangle, kind: str, **more: str) -> htpy.Element:
    """Draw a rectangle of a kind of `theme.MARKS`."""
    return _rect(_at(place), attributes(kind), **more)


def coloured_box(place: Rectangle, fill: str, **more: str) -> htpy.Element:
    """Draw a rectangle in a colour that is the same on light and dark paper."""
    return _rect(_at(place), fill=fill, **more)


def _at(place: Rectangle) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in zip(("x", "y", "width", "height"), place, strict=True)}


def patterns(picture: Picture, prefix: str) -> Iterator[htpy.Element]:
    """Yield the patterns of owners that have one."""
    for index, owner in enumerate(picture.owners):
        style = style_of(owner.look)
        if style.pattern:
            yield htpy.Element("pattern")(
                {"patternUnits": "userSpaceOnUse"}, id=f"{prefix}p{index}", width="8", height="8"
            )[
                _rect(width="8", height="8", fill=style.fill),
                _path(d=style.pattern, stroke=style.ink, fill="none", stroke_width="1.4", stroke_opacity=".6"),
            ]


def fill_of(index: int, style: Style, prefix: str) -> str:
    """Return the colour of an owner, or the reference to its pattern."""
    return f"url(#{prefix}p{index})" if style.pattern else style.fill


def square(picture: Picture, cpu: CPU, place: Rectangle, prefix: str) -> htpy.Element:
    """Draw the square of a CPU, or of an owner in the legend."""
    if cpu.owner is None:
        return box(place, "reserved" if cpu.kind == RESERVED else "shared", rx="2")
    style = style_of(picture.owners[cpu.owner].look)
    if cpu.kind == POD_SHARED:
        colour = style.fill
        return group[
            box(place, "inner", rx="2"),
            coloured_box(place, colour, rx="2", fill_opacity=".3", stroke=colour, stroke_width="2"),
        ]
    return coloured_box(place, fill_of(cpu.owner, style, prefix), rx="2")


def corner(place: Rectangle, ink: str | None) -> htpy.Element:
    """Draw a folded corner in an owner's ink, or in that of the paper."""
    size = max(4.0, place.width * 0.34)
    right = place.x + place.width
    colour = attributes("grown") if ink is None else {"fill": ink}
    return _path({"d": f"M{right - size:.6g} {place.y:.6g}h{size:.6g}v{size:.6g}z"}, colour)
