"""The SVG back end: one self-contained drawing, light or dark as the reader prefers, with tooltips everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import htpy
from markupsafe import Markup

from podslice.render.layout import GAP, PAD, CellPlace, ChipPlace, Layout, NodePlace, Rectangle, lay_out
from podslice.render.palette import Style, style_of
from podslice.render.picture import CPU, POD_SHARED, POOLED, RESERVED, Memory, Picture, tip
from podslice.render.prose import fold
from podslice.render.table import format_bytes
from podslice.values.cpuset import Bits, format_bits

_TOP = 58
_INK = "var(--ink)"
_DISTANCE, _DISTANCE_ROWS = 30, 34
_STYLE = """
svg.podslice{--paper:#fff;--ink:#1b1f24;--dim:#59636e;--line:#afb8c1;--box:#f6f8fa;--inner:#fff;--shared:#e3e8ed;
--reserved:#8c959f;--used:#424a53;--mark:#1b1f24;background:var(--paper);font-family:system-ui,sans-serif}
@media (prefers-color-scheme:dark){svg.podslice{--paper:#0d1117;--ink:#e6edf3;--dim:#9198a1;--line:#484f58;
--box:#161b22;--inner:#0d1117;--shared:#30363d;--reserved:#57606a;--used:#c9d1d9;--mark:#fff}}
.podslice text{fill:var(--ink);font-size:11px}.podslice .h{font-size:17px;font-weight:600}
.podslice .b{font-weight:600;font-size:12px}.podslice .d{fill:var(--dim)}
.podslice .box{fill:var(--box);stroke:var(--line)}
.podslice .in{fill:var(--inner);stroke:var(--line)}.podslice .l3{fill:none;stroke:var(--line);stroke-dasharray:3 2}
.podslice .s{fill:var(--shared)}.podslice .r{fill:var(--reserved)}.podslice .n{text-anchor:middle;pointer-events:none}
.podslice .t{fill:var(--shared)}.podslice .o{fill:var(--shared);stroke:var(--ink)}.podslice .u{fill:var(--used)}
.podslice .m{fill:none;stroke:var(--mark)}
.podslice .f{fill:none;stroke:var(--line)}.podslice .x{stroke:#d55e00;stroke-dasharray:3 2}
.podslice .c{transition:opacity .1s}.podslice.pick .c:not(.on){opacity:.18}
"""

_CHARACTER = 6.1
"""Width of a character in pixels, on average."""
_NOTES = {POD_SHARED: " (shared in its pod)", POOLED: " (in the shared pool)"}

_rect = htpy.Element("rect")
_text = htpy.Element("text")
_g = htpy.Element("g")
_title = htpy.Element("title")
_path = htpy.Element("path")


def to_svg(picture: Picture, *, prefix: str = "") -> str:
    """Return the drawing as XML text. `prefix` keeps the ids of several drawings on one page apart."""
    return str(svg_element(picture, prefix=prefix))


def svg_element(picture: Picture, *, prefix: str = "") -> htpy.Element:
    """Return the drawing as an element, for pages."""
    layout = lay_out(picture, _TOP)
    legend, bottom = _legend(picture, layout, prefix)
    if 1 < len(picture.distances) <= int((layout.width - 2 * PAD - _DISTANCE_ROWS) / _DISTANCE):
        distances, bottom = _distances(picture, bottom)
    else:
        distances = []
    basis, bottom = _basis(picture, layout, bottom)
    height = round(bottom + PAD)
    summary = ", ".join(picture.details)
    return htpy.Element("svg")(
        {"viewBox": f"0 0 {layout.width:g} {height}", "xmlns": "http://www.w3.org/2000/svg"},
        class_="podslice",
        width=f"{layout.width:g}",
        height=str(height),
        role="img",
        aria_label=f"{picture.title}: {summary}",
    )[
        _title[picture.title],
        htpy.Element("style")[Markup(_STYLE)],
        htpy.Element("defs")[_patterns(picture, prefix)],
        _words(PAD, 24, picture.title, "h"),
        _words(PAD, 43, " · ".join(picture.details), "d"),
        [_socket(picture, layout, place, prefix) for place in layout.sockets],
        _loose(picture, layout, prefix),
        legend,
        distances,
        basis,
    ]


def _basis(picture: Picture, layout: Layout, y: float) -> tuple[list[htpy.Element], float]:
    """Return the lines that say what the picture rests on, and where they end."""
    room = int((layout.width - 2 * PAD) / _CHARACTER)
    lines = [line for text in picture.basis for line in fold(text, room)]
    return [_words(PAD, y + 16 * (place + 1), line, "d") for place, line in enumerate(lines)], y + 16 * len(lines)


def _words(x: float, y: float, text: str, kind: str = "", **more: str) -> htpy.Element:
    return _text({"x": f"{x:g}", "y": f"{y:g}"}, class_=kind or None, **more)[text]


def _box(place: Rectangle, kind: str | None, **more: str) -> htpy.Element:
    return _rect(_at(place), class_=kind, **more)


def _at(place: Rectangle) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in zip(("x", "y", "width", "height"), place, strict=True)}


def _patterns(picture: Picture, prefix: str) -> Iterator[htpy.Element]:
    for index, owner in enumerate(picture.owners):
        style = style_of(owner.look)
        if style.pattern:
            yield htpy.Element("pattern")(
                {"patternUnits": "userSpaceOnUse"}, id=f"{prefix}p{index}", width="8", height="8"
            )[
                _rect(width="8", height="8", fill=style.fill),
                _path(d=style.pattern, stroke=style.ink, fill="none", stroke_width="1.4", stroke_opacity=".6"),
            ]


def _fill(index: int, style: Style, prefix: str) -> str:
    return f"url(#{prefix}p{index})" if style.pattern else style.fill


# Boxes


def _socket(picture: Picture, layout: Layout, socket: Any, prefix: str) -> htpy.Element:
    place = socket.place
    return _g[
        _box(place, "box", rx="6"),
        _words(place.x + PAD, place.y + 17, socket.title, "b"),
        [_node(picture, layout, node, prefix) for node in socket.nodes],
    ]


def _node(picture: Picture, layout: Layout, placed: NodePlace, prefix: str) -> htpy.Element:
    place, node = placed.place, placed.node
    cpus = format_bits(node.cpus)
    room = int((place.width - 2 * PAD) / 5.6)
    shown = cpus if len(cpus) <= room - 6 else cpus[: room - 7] + "…"
    free = "" if node.free is None else f", {node.free} assignable"
    head = f"NUMA {node.id}" + (f" · {node.cpus.bit_count()} CPUs{free}" if node.cpus else "")
    return _g[
        _box(place, "in", rx="5"),
        _words(place.x + PAD, place.y + 16, head, "b"),
        (node.cpus and _g[_title[f"CPUs {cpus}"], _words(place.x + PAD, place.y + 29, f"CPUs {shown}", "d")]) or None,
        [_bar(bar.memory, bar.place) for bar in placed.bars],
        [_chip(picture, chip, prefix) for chip in placed.chips],
        [
            _g[
                _box(cache.place, "l3", rx="3"),
                _words(cache.place.x + 5, cache.place.y + 10, f"L3 {cache.cache.id}", "d"),
            ]
            for cache in placed.caches
            if cache.cache.shown
        ],
        [_cell(picture, layout, cell, prefix) for cell in placed.cells],
    ]


def _bar(memory: Memory, place: Rectangle) -> htpy.Element:
    """Draw a bar of memory: reserved, used, free; only its size where no Memory Manager counts."""
    total = max(1, memory.total)
    name = memory.resource.replace("hugepages-", "huge pages ")
    if memory.used is None:
        text = f"{name} {format_bytes(memory.total)}"
        used = 0
    else:
        free = memory.total - memory.reserved - memory.used
        text = f"{name} {format_bytes(memory.used)} used, {format_bytes(free)} free of {format_bytes(memory.total)}"
        used = memory.used
    bar = Rectangle(place.x, place.y + 14, place.width, 9)
    reserved = bar._replace(width=bar.width * memory.reserved / total)
    taken = bar._replace(x=bar.x + reserved.width, width=bar.width * used / total)
    tooltip = f"{text}; {format_bytes(memory.reserved)} reserved for the system" if memory.reserved else text
    return _g[
        _title[tooltip],
        _words(place.x, place.y + 10, _cut(text, place.width), "d"),
        _box(bar, "t", rx="2"),
        (memory.reserved and _box(reserved, "r")) or None,
        (used and _box(taken, "u")) or None,
    ]


def _chip(picture: Picture, chip: ChipPlace, prefix: str) -> htpy.Element:
    device, place = chip.device, chip.place
    owner = next(
        (i for i, o in enumerate(picture.owners) if device.owner and picture.pods[o.pod].label == device.owner), None
    )
    holder = f"held by {device.owner}" if device.owner else "free" if device.healthy else "unhealthy"
    at = {"x": f"{place.x + place.width / 2:g}", "y": f"{place.y + 13:g}"}
    if owner is None:
        kind = "o" if device.owner else "f" if device.healthy else "f x"
        box, label = _box(place, kind, rx="8"), _text(at, class_="n")[device.id]
    else:
        style = style_of(picture.owners[owner].look)
        box = _box(place, None, rx="8", fill=_fill(owner, style, prefix))
        label = _text(at, class_="n", style=_on(style, 11))[device.id]
    return _g(class_="c", data_o=None if owner is None else str(owner))[
        _title[f"{device.resource} {device.id}: {holder}"], box, label
    ]


def _on(style: Style, size: float) -> str:
    """Return the style with which text of `size` stays readable on an owner's colour and pattern."""
    halo = f";paint-order:stroke;stroke:{style.fill};stroke-width:{size / 2.4:.2g}px" if style.pattern else ""
    return f"fill:{style.ink}{halo}"


def _loose(picture: Picture, layout: Layout, prefix: str) -> htpy.Element | None:
    """Draw the devices that belong to no NUMA node."""
    if not layout.loose:
        return None
    y = layout.loose[0].place.y + 13
    return _g[_words(PAD, y, "Devices without NUMA node", "b"), [_chip(picture, chip, prefix) for chip in layout.loose]]


def _cell(picture: Picture, layout: Layout, cell: CellPlace, prefix: str) -> htpy.Element:
    """Draw a CPU: its square, its number where there is room, its pod behind it, a frame if its owner changed."""
    cpu, pitch = cell.cpu, layout.cell
    inset = max(1.5, pitch * 0.09) if cpu.pod is not None else 1
    square = Rectangle(cell.x + inset, cell.y + inset, pitch - 2 * inset, pitch - 2 * inset)
    frame = Rectangle(cell.x + 1, cell.y + 1, pitch - 2, pitch - 2)
    return _g(class_="c", data_o=None if cpu.owner is None else str(cpu.owner))[
        _title[tip(picture, cpu)],
        _pod_band(picture, cpu, cell, pitch) if cpu.pod is not None else None,
        _square(picture, cpu, square, prefix),
        _label(picture, cell, layout),
        _growth(picture, cpu, square) if cpu.growth else None,
        _box(frame, "m", rx="2", stroke_width=f"{max(1.2, pitch / 14):.2g}") if cpu.changed else None,
    ]


def _pod_band(picture: Picture, cpu: CPU, cell: CellPlace, pitch: float) -> htpy.Element:
    first = next((owner.look for owner in picture.owners if owner.pod == cpu.pod), 0)
    return _box(Rectangle(cell.x, cell.y, pitch, pitch), None, fill=style_of(first).fill, fill_opacity=".55")


def _square(picture: Picture, cpu: CPU, place: Rectangle, prefix: str) -> htpy.Element:
    if cpu.owner is None:
        return _box(place, "r" if cpu.kind == RESERVED else "s", rx="2")
    style = style_of(picture.owners[cpu.owner].look)
    fill = _fill(cpu.owner, style, prefix)
    if cpu.kind == POD_SHARED:
        colour = style.fill
        return _g[
            _box(place, "in", rx="2"),
            _box(place, None, rx="2", fill=colour, fill_opacity=".3", stroke=colour, stroke_width="2"),
        ]
    return _box(place, None, rx="2", fill=fill)


def _growth(picture: Picture, cpu: CPU, square: Rectangle) -> htpy.Element:
    """Draw a folded corner: the owner has the CPU beyond what was promised."""
    owned = cpu.owner is not None and cpu.kind != POD_SHARED
    return _corner(square, style_of(picture.owners[cpu.owner or 0].look).ink if owned else _INK)


def _corner(square: Rectangle, fill: str) -> htpy.Element:
    size = max(4.0, square.width * 0.34)
    right = square.x + square.width
    return _path(d=f"M{right - size:.6g} {square.y:.6g}h{size:.6g}v{size:.6g}z", style=f"fill:{fill}")


def _label(picture: Picture, cell: CellPlace, layout: Layout) -> htpy.Element | None:
    cpu, pitch, size = cell.cpu, layout.cell, layout.digits
    if not size:
        return None
    style = f"font-size:{size:.3g}px"
    if cpu.owner is not None and cpu.kind != POD_SHARED:
        style += f";{_on(style_of(picture.owners[cpu.owner].look), size)}"
    x, y = cell.x + pitch / 2, cell.y + pitch / 2 + size * 0.36
    return _text({"x": f"{x:.6g}", "y": f"{y:.6g}"}, class_="n", style=style)[str(cpu.id)]


def swatch(picture: Picture, index: int, prefix: str) -> htpy.Element:
    """Return an owner's colour and pattern as a small drawing, on a page that has the picture with this prefix."""
    cpu = CPU(0, picture.owners[index].kind, index, None, False)
    square = _square(picture, cpu, Rectangle(1, 1, 13, 13), prefix)
    return htpy.Element("svg")(
        {"viewBox": "0 0 15 15"}, class_="podslice swatch", width="15", height="15", aria_hidden="true"
    )[square]


# Legend and distances


def _legend(picture: Picture, layout: Layout, prefix: str) -> tuple[list[htpy.Element], float]:
    y = layout.bottom + GAP + 14
    items = [_words(PAD, y, "Owners", "b")]
    rows = (
        [_key(picture, None, "r", "reserved for the system", format_bits(picture.reserved))] if picture.reserved else []
    )
    rows.append(_key(picture, None, "s", "shared pool of the node", format_bits(picture.shared)))
    for index, owner in enumerate(picture.owners):
        text = owner.label + _NOTES.get(owner.kind, "")
        held = picture.pods[owner.pod].devices if owner.kind == POOLED else format_bits(owner.cpus)
        held += f" ({owner.remark})" if owner.remark else ""
        rows.append(_key(picture, index, "", text, held, prefix))
    if picture.grows:
        rows.append(_growth_key)
    rows += [partial(_class_key, name, cpus) for name, cpus in picture.classes]
    columns = 1 if layout.width < 800 or len(rows) <= 3 else 2 if len(rows) <= 30 else 3
    per_column = -(-len(rows) // columns)
    width = (layout.width - 2 * PAD) / columns
    for place, row in enumerate(rows):
        column, line = divmod(place, per_column)
        items.append(row(PAD + column * width, y + 8 + line * 18, width))
    bottom = y + 8 + per_column * 18
    pooled = [pod.label for pod in picture.pods if pod.pooled]
    if pooled:
        names = f"In the shared pool ({len(pooled)}): {', '.join(pooled)}"
        items.append(_g[_title[names], _words(PAD, bottom + 12, _cut(names, layout.width - 2 * PAD), "d")])
        bottom += 18
    for note in picture.notes:
        items.append(_g[_title[note], _words(PAD, bottom + 12, _cut(note, layout.width - 2 * PAD), "d")])
        bottom += 18
    return items, bottom


def _cut(text: str, width: float) -> str:
    """Return the text, cut to `width` pixels."""
    room = int(width / _CHARACTER)
    return text if len(text) <= room else text[: max(8, room - 1)] + "…"


def _key(picture: Picture, index: int | None, kind: str, text: str, cpus: str, prefix: str = "") -> Any:
    """Return a function that draws a line of the legend (swatch, name, CPUs) at a place."""

    def at(x: float, y: float, width: float) -> htpy.Element:
        swatch = Rectangle(x, y, 13, 13)
        if index is None:
            square = _box(swatch, kind, rx="2")
        else:
            cpu = CPU(0, picture.owners[index].kind, index, None, False)
            square = _square(picture, cpu, swatch, prefix)
        shown = _cut(f"{text} · {cpus}", width - 24)
        return _g(class_="c", data_o=None if index is None else str(index))[
            _title[f"{text}: {cpus}"], square, _words(x + 19, y + 11, shown)
        ]

    return at


def _growth_key(x: float, y: float, width: float) -> htpy.Element:
    """Draw the line of the legend about folded corners."""
    place = Rectangle(x, y, 13, 13)
    text = _cut("growth: beyond what was promised at the admission", width - 24)
    return _g[_box(place, "s", rx="2"), _corner(place, _INK), _words(x + 19, y + 11, text)]


def _class_key(name: str, cpus: Bits, x: float, y: float, width: float) -> htpy.Element:
    """Draw a line of the legend about a CPU class."""
    text = f"class {name} · {format_bits(cpus) or '-'}"
    return _g[_title[text], _words(x + 19, y + 11, _cut(text, width - 24))]


def _distances(picture: Picture, y: float) -> tuple[list[htpy.Element], float]:
    """Draw the matrix of NUMA distances; darker is farther."""
    y += 2 * GAP
    ids = [node for node, _ in picture.distances]
    far = max((d for _, row in picture.distances for d in row), default=10)
    items = [_words(PAD, y, "NUMA distances", "b")]
    pitch = _DISTANCE
    for column, node in enumerate(ids):
        items.append(_words(PAD + _DISTANCE_ROWS + column * pitch + pitch / 2, y + 18, str(node), "n d"))
    for row, (node, distances) in enumerate(picture.distances):
        top = y + 24 + row * 20
        items.append(_words(PAD + 14, top + 14, str(node), "n d"))
        for column, distance in enumerate(distances):
            shade = (distance - 10) / max(1, far - 10)
            place = Rectangle(PAD + _DISTANCE_ROWS + column * pitch, top, pitch - 2, 18)
            other = ids[column]
            items.append(
                _g[
                    _title[f"NUMA {node} to {other}: {distance}"],
                    _box(place, "u", rx="2", fill_opacity=f"{0.06 + 0.4 * shade:.2f}"),
                    _words(place.x + place.width / 2, top + 13, str(distance), "n"),
                ]
            )
    return items, y + 24 + len(ids) * 20
