"""The SVG back end: one self-contained drawing with tooltips everywhere.

Colours and fonts are plain attributes, so converters, slides and chats show what a browser shows; a style sheet adds
dark paper for readers that prefer it.
"""

from __future__ import annotations

from typing import Any

import htpy
from markupsafe import Markup

from podslice.render.layout import PAD, CellPlace, ChipPlace, Layout, NodePlace, Rectangle, lay_out, page_width
from podslice.render.measure import break_text, cut_text, text_width
from podslice.render.palette import style_of
from podslice.render.picture import CPU, POD_SHARED, Memory, Picture, tip
from podslice.render.svg_legend import basis, distances, legend
from podslice.render.svg_marks import (
    box,
    coloured_box,
    corner,
    fill_of,
    group,
    number_on,
    patterns,
    square,
    text_at,
    tooltip,
)
from podslice.render.table import format_bytes
from podslice.render.theme import DARK_SHEET, FONT
from podslice.values.cpuset import format_bits

NARROW = 386
"""Width in pixels of a drawing for a telephone."""


def to_svg(picture: Picture, *, prefix: str = "", width: float | None = None) -> str:
    """Return the drawing as XML text, `width` pixels wide (None: as wide as the machine needs). `prefix` keeps the ids
    of several drawings on one page apart."""
    return str(svg_element(picture, prefix=prefix, width=width))


def svg_element(picture: Picture, *, prefix: str = "", width: float | None = None, kind: str = "") -> htpy.Element:
    """Return the drawing as an element. With `kind`, a further class of it, it is for a page with `pattern_element`."""
    width = page_width(picture) if width is None else width
    head, top = _head(picture, width)
    layout = lay_out(picture, top, width)
    below, bottom = legend(picture, layout, prefix)
    matrix, bottom = distances(picture, layout, bottom)
    lines, bottom = basis(picture, layout, bottom)
    height = round(bottom + PAD)
    return htpy.Element("svg")(
        {"viewBox": f"0 0 {layout.width:g} {height}", "xmlns": "http://www.w3.org/2000/svg"},
        class_=f"podslice {kind}".rstrip(),
        width=f"{layout.width:g}",
        height=str(height),
        role="img",
        aria_label=f"{picture.title}: {', '.join(picture.details)}",
        font_family=FONT,
    )[
        tooltip[picture.title],
        htpy.Element("style")[Markup(DARK_SHEET)],
        None if kind else htpy.Element("defs")[patterns(picture, prefix)],
        box(Rectangle(0, 0, layout.width, height), "paper"),
        head,
        [_socket(picture, layout, place, prefix) for place in layout.sockets],
        _loose(picture, layout, prefix),
        below,
        matrix,
        lines,
    ]


def pattern_element(picture: Picture, prefix: str) -> htpy.Element:
    """Return the owners' patterns as a drawing of no size, for the drawings and swatches of a page."""
    # Not in one of the drawings: where a page hides that one, browsers do not draw its patterns in others either.
    return htpy.Element("svg")(class_="patterns", width="0", height="0", aria_hidden="true")[
        htpy.Element("defs")[patterns(picture, prefix)]
    ]


def _head(picture: Picture, width: float) -> tuple[list[htpy.Element], float]:
    """Draw the title, what the node is, and why a pod is refused; return it with the place where it ends."""
    room = width - 2 * PAD
    drawn, y = [], 6.0
    for text in break_text(picture.title, room, 17, bold=True):
        y += 20
        drawn.append(text_at(PAD, y, text, "title"))
    for text in break_text(" · ".join(picture.details), room):
        y += 16
        drawn.append(text_at(PAD, y, text, "dim"))
    for refusal in picture.refusals:
        for text in break_text(refusal, room, 12, bold=True):
            y += 17
            drawn.append(text_at(PAD, y, text, "alert"))
    return drawn, y + 15


# Boxes


def _socket(picture: Picture, layout: Layout, socket: Any, prefix: str) -> htpy.Element:
    place = socket.place
    return group[
        box(place, "box", rx="6"),
        text_at(place.x + PAD, place.y + 17, socket.title, "bold"),
        [_node(picture, layout, node, prefix) for node in socket.nodes],
    ]


def _node(picture: Picture, layout: Layout, placed: NodePlace, prefix: str) -> htpy.Element:
    place, node = placed.place, placed.node
    cpus = format_bits(node.cpus)
    room = place.width - 2 * PAD
    free = "" if node.free is None else f", {node.free} free"
    head = f"NUMA {node.id}" + (f" · {node.cpus.bit_count()} CPUs{free}" if node.cpus else "")
    return group[
        box(place, "inner", rx="5"),
        box(_inside(place), "obstacle", rx="4", stroke_width="2") if placed.blocked else None,
        text_at(place.x + PAD, place.y + 16, head, "bold", width=room),
        (
            node.cpus
            and group[tooltip[f"CPUs {cpus}"], text_at(place.x + PAD, place.y + 30, f"CPUs {cpus}", "dim", width=room)]
        )
        or None,
        [text_at(line.x, line.y, line.text, "alert" if line.short else "text") for line in placed.lines],
        [_bar(bar.memory, bar.place) for bar in placed.bars],
        [_chip(picture, chip, prefix) for chip in placed.chips],
        [
            group[
                box(cache.place, "cache", rx="3"),
                text_at(cache.place.x + 5, cache.place.y + 11, f"L3 {cache.cache.id}", "dim"),
            ]
            for cache in placed.caches
            if cache.cache.shown
        ],
        [_cell(picture, layout, cell, prefix) for cell in placed.cells],
    ]


def _inside(place: Rectangle) -> Rectangle:
    """Return the place of a frame of two pixels just inside a box."""
    return Rectangle(place.x + 1, place.y + 1, place.width - 2, place.height - 2)


def _bar(memory: Memory, place: Rectangle) -> htpy.Element:
    """Draw a bar of memory: reserved, used, free; only its size where no Memory Manager counts."""
    total = max(1, memory.total)
    texts, used = _memory_texts(memory)
    bar = Rectangle(place.x, place.y + 14, place.width, 9)
    reserved = bar._replace(width=bar.width * memory.reserved / total)
    taken = bar._replace(x=bar.x + reserved.width, width=bar.width * used / total)
    more = f"; {format_bytes(memory.reserved)} reserved for the system" if memory.reserved else ""
    shown = next((text for text in texts if text_width(text) <= place.width), texts[-1])
    return group[
        tooltip[texts[0] + more],
        text_at(place.x, place.y + 10, shown, "dim", width=place.width),
        box(bar, "track", rx="2"),
        (memory.reserved and box(reserved, "reserved")) or None,
        (used and box(taken, "used")) or None,
    ]


def _memory_texts(memory: Memory) -> tuple[list[str], int]:
    """Return what a bar says, in full and shorter, and the bytes that are used."""
    name = memory.resource.replace("hugepages-", "huge pages ")
    total = format_bytes(memory.total)
    if memory.used is None:
        return [f"{name} {total}"], 0
    free = format_bytes(memory.total - memory.reserved - memory.used)
    return [
        f"{name} {format_bytes(memory.used)} used, {free} free of {total}",
        f"{name} {free} free of {total}",
        f"{free} of {total} free",
    ], memory.used


def _chip(picture: Picture, chip: ChipPlace, prefix: str) -> htpy.Element:
    device, place = chip.device, chip.place
    owner = next(
        (i for i, o in enumerate(picture.owners) if device.owner and picture.pods[o.pod].label == device.owner), None
    )
    holder = f"held by {device.owner}" if device.owner else "free" if device.healthy else "unhealthy"
    style = None if owner is None else style_of(picture.owners[owner].look)
    if style is None:
        frame = box(place, "held" if device.owner else "free" if device.healthy else "unhealthy", rx="8")
    else:
        frame = coloured_box(place, fill_of(owner or 0, style, prefix), rx="8")
    name = cut_text(device.id, place.width - 6)
    return group(class_="c", data_o=None if owner is None else str(owner))[
        tooltip[f"{device.resource} {device.id}: {holder}"],
        frame,
        number_on(place.x + place.width / 2, place.y + 13, name, 11, style),
    ]


def _loose(picture: Picture, layout: Layout, prefix: str) -> htpy.Element | None:
    """Draw the devices that belong to no NUMA node."""
    if not layout.loose:
        return None
    return group[
        text_at(PAD, layout.loose_title, "Devices without NUMA node", "bold"),
        [_chip(picture, chip, prefix) for chip in layout.loose],
    ]


def _cell(picture: Picture, layout: Layout, cell: CellPlace, prefix: str) -> htpy.Element:
    """Draw a CPU: its square, its number where there is room, its pod behind it, a frame if its owner changed."""
    cpu, pitch = cell.cpu, layout.cell
    inset = max(1.5, pitch * 0.09) if cpu.pod is not None else 1
    place = Rectangle(cell.x + inset, cell.y + inset, pitch - 2 * inset, pitch - 2 * inset)
    frame = Rectangle(cell.x + 1, cell.y + 1, pitch - 2, pitch - 2)
    return group(class_="c", data_o=None if cpu.owner is None else str(cpu.owner))[
        tooltip[tip(picture, cpu)],
        _pod_band(picture, cpu, cell, pitch) if cpu.pod is not None else None,
        square(picture, cpu, place, prefix),
        _label(picture, cell, layout),
        _growth(picture, cpu, place) if cpu.growth else None,
        box(frame, "changed", rx="2", stroke_width=f"{max(1.2, pitch / 14):.2g}") if cpu.changed else None,
    ]


def _pod_band(picture: Picture, cpu: CPU, cell: CellPlace, pitch: float) -> htpy.Element:
    first = next((owner.look for owner in picture.owners if owner.pod == cpu.pod), 0)
    return coloured_box(Rectangle(cell.x, cell.y, pitch, pitch), style_of(first).fill, fill_opacity=".55")


def _growth(picture: Picture, cpu: CPU, place: Rectangle) -> htpy.Element:
    """Draw a folded corner: the owner has the CPU beyond what was promised."""
    owned = cpu.owner is not None and cpu.kind != POD_SHARED
    return corner(place, style_of(picture.owners[cpu.owner or 0].look).ink if owned else None)


def _label(picture: Picture, cell: CellPlace, layout: Layout) -> list[htpy.Element]:
    cpu, pitch, size = cell.cpu, layout.cell, layout.digits
    if not size:
        return []
    owned = cpu.owner is not None and cpu.kind != POD_SHARED
    style = style_of(picture.owners[cpu.owner or 0].look) if owned else None
    return number_on(cell.x + pitch / 2, cell.y + pitch / 2 + size * 0.36, str(cpu.id), size, style)


def swatch(picture: Picture, index: int, prefix: str) -> htpy.Element:
    """Return an owner's colour and pattern as a small drawing, on a page that has the picture with this prefix."""
    cpu = CPU(0, picture.owners[index].kind, index, None, False)
    return htpy.Element("svg")(
        {"viewBox": "0 0 15 15"}, class_="podslice swatch", width="15", height="15", aria_hidden="true"
    )[square(picture, cpu, Rectangle(1, 1, 13, 13), prefix)]
