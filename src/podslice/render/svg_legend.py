"""The parts below a drawing: its legend, the NUMA distances, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import htpy

from podslice.render.layout import GAP, PAD, Layout, Rectangle
from podslice.render.measure import break_text
from podslice.render.picture import CPU, POD_SHARED, POOLED, Picture
from podslice.render.svg_marks import box, corner, group, square, text_at, tooltip
from podslice.values.cpuset import format_bits

_DISTANCE, _DISTANCE_ROWS = 30, 34
_ROW, _SWATCH = 18, 13
_NOTES = {POD_SHARED: " (shared in its pod)", POOLED: " (in the shared pool)"}

Row: TypeAlias = Callable[[float, float, float], htpy.Element]
"""Draws a line of the legend at a place, as wide as there is room."""
Drawn: TypeAlias = tuple[list[htpy.Element], float]
"""Elements, and the place where they end."""


def legend(picture: Picture, layout: Layout, prefix: str) -> Drawn:
    """Draw the owners, the pools and what else has a colour."""
    y = layout.bottom + GAP + 14
    items = [text_at(PAD, y, "Owners", "bold")]
    rows = list(_rows(picture, prefix))
    columns = 1 if layout.width < 800 or len(rows) <= 3 else 2 if len(rows) <= 30 else 3
    per_column = -(-len(rows) // columns)
    width = (layout.width - 2 * PAD) / columns
    for place, row in enumerate(rows):
        column, line = divmod(place, per_column)
        items.append(row(PAD + column * width, y + 8 + line * _ROW, width))
    bottom = y + 8 + per_column * _ROW
    pooled = [pod.label for pod in picture.pods if pod.pooled]
    names = [f"In the shared pool ({len(pooled)}): {', '.join(pooled)}"] if pooled else []
    for text in (*names, *picture.notes):
        items.append(group[tooltip[text], text_at(PAD, bottom + 12, text, "dim", width=layout.width - 2 * PAD)])
        bottom += _ROW
    return items, bottom


def _rows(picture: Picture, prefix: str) -> Iterator[Row]:
    if picture.reserved:
        yield partial(_pool_row, "reserved", f"reserved for the system · {format_bits(picture.reserved)}")
    yield partial(_pool_row, "shared", f"shared pool of the node · {format_bits(picture.shared) or '-'}")
    for index in range(len(picture.owners)):
        yield partial(_owner_row, picture, index, prefix)
    if picture.grows:
        yield _growth_row
    for name, cpus in picture.classes:
        yield partial(_text_row, f"class {name} · {format_bits(cpus) or '-'}")


def _pool_row(kind: str, text: str, x: float, y: float, width: float) -> htpy.Element:
    return group[box(Rectangle(x, y, _SWATCH, _SWATCH), kind, rx="2"), _text_row(text, x, y, width)]


def _owner_row(picture: Picture, index: int, prefix: str, x: float, y: float, width: float) -> htpy.Element:
    """Draw an owner: its colour, its name, its CPUs."""
    owner = picture.owners[index]
    held = picture.pods[owner.pod].devices if owner.kind == POOLED else format_bits(owner.cpus)
    held += f" ({owner.remark})" if owner.remark else ""
    place = Rectangle(x, y, _SWATCH, _SWATCH)
    return group(class_="c", data_o=str(index))[
        square(picture, CPU(0, owner.kind, index, None, False), place, prefix),
        _text_row(f"{owner.label}{_NOTES.get(owner.kind, '')} · {held}", x, y, width),
    ]


def _growth_row(x: float, y: float, width: float) -> htpy.Element:
    """Draw the line about folded corners."""
    place = Rectangle(x, y, _SWATCH, _SWATCH)
    text = "growth: beyond what was promised at the admission"
    return group[box(place, "shared", rx="2"), corner(place, None), _text_row(text, x, y, width)]


def _text_row(text: str, x: float, y: float, width: float) -> htpy.Element:
    return group[tooltip[text], text_at(x + 19, y + 11, text, width=width - 24)]


def distances(picture: Picture, layout: Layout, y: float) -> Drawn:
    """Draw the matrix of NUMA distances, where there is room for it; darker is farther."""
    if not 1 < len(picture.distances) <= int((layout.width - 2 * PAD - _DISTANCE_ROWS) / _DISTANCE):
        return [], y
    y += 2 * GAP
    ids = [node for node, _ in picture.distances]
    far = max((d for _, row in picture.distances for d in row), default=10)
    items = [text_at(PAD, y, "NUMA distances", "bold")]
    pitch = _DISTANCE
    for column, node in enumerate(ids):
        items.append(text_at(PAD + _DISTANCE_ROWS + column * pitch + pitch / 2, y + 18, str(node), "dim-number"))
    for row, (node, known) in enumerate(picture.distances):
        top = y + 24 + row * 20
        items.append(text_at(PAD + 14, top + 14, str(node), "dim-number"))
        for column, distance in enumerate(known):
            shade = (distance - 10) / max(1, far - 10)
            place = Rectangle(PAD + _DISTANCE_ROWS + column * pitch, top, pitch - 2, 18)
            items.append(
                group[
                    tooltip[f"NUMA {node} to {ids[column]}: {distance}"],
                    box(place, "used", rx="2", fill_opacity=f"{0.06 + 0.4 * shade:.2f}"),
                    text_at(place.x + place.width / 2, top + 13, str(distance), "number"),
                ]
            )
    return items, y + 24 + len(ids) * 20


def basis(picture: Picture, layout: Layout, y: float) -> Drawn:
    """Draw the lines that say what the picture rests on."""
    lines = [line for text in picture.basis for line in break_text(text, layout.width - 2 * PAD)]
    return [text_at(PAD, y + 16 * (place + 1), line, "dim") for place, line in enumerate(lines)], y + 16 * len(lines)
