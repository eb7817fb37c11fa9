"""Layout of a picture in pixels: a pure function of the picture, without any drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podslice.render.measure import break_text, text_width
from podslice.render.picture import CPU, CacheBox, DeviceBox, Memory, NUMABox, Picture

PAGE = 1240
_SMALL_PAGE = 680
GAP = 12
PAD = 10
_HEADER = 37
_BAR = 26
_LINE = 16
CHIP = 18
LOOSE = 210
_LARGEST_CELL, _SMALLEST_CELL = 40, 15
_CORES_PER_ROW = (16, 12, 8, 6, 4)
_NARROW_PAGE = 500
_SMALLEST_DIGITS = 5.5
_READABLE_DIGITS = 10.0


class Rectangle(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class CellPlace(NamedTuple):
    cpu: CPU
    x: float
    y: float


class CachePlace(NamedTuple):
    cache: CacheBox
    place: Rectangle


class BarPlace(NamedTuple):
    memory: Memory
    place: Rectangle


class ChipPlace(NamedTuple):
    device: DeviceBox
    place: Rectangle


class LinePlace(NamedTuple):
    text: str
    short: bool
    x: float
    y: float


class NodePlace(NamedTuple):
    """A placed NUMA box; everything inside has page coordinates. `lines` say what a refused pod lacks there."""

    node: NUMABox
    place: Rectangle
    bars: tuple[BarPlace, ...]
    chips: tuple[ChipPlace, ...]
    caches: tuple[CachePlace, ...]
    cells: tuple[CellPlace, ...]
    lines: tuple[LinePlace, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether something is in the way of a refused pod here."""
        return any(line.short for line in self.lines)


class SocketPlace(NamedTuple):
    title: str
    place: Rectangle
    nodes: tuple[NodePlace, ...]


class Layout(NamedTuple):
    """Places of all boxes. `cell` is the pitch of the CPUs' squares, `digits` the font size of the numbers in them (0:
    no room), `bottom` the y coordinate where the boxes end."""

    width: float
    bottom: float
    cell: float
    digits: float
    sockets: tuple[SocketPlace, ...]
    loose: tuple[ChipPlace, ...]
    loose_title: float = 0.0


def page_width(picture: Picture) -> float:
    """Return the width in pixels at which a machine is usually drawn."""
    with_cpus = [socket for socket in picture.sockets if socket.id is not None]
    small = sum(len(socket.nodes) for socket in with_cpus) <= 1 and picture.cpu_count <= 32
    return _SMALL_PAGE if small else PAGE


def lay_out(picture: Picture, top: float, width: float | None = None) -> Layout:
    """Place sockets side by side where each has one node, else one below the other with their nodes in a grid."""
    with_cpus = [socket for socket in picture.sockets if socket.id is not None]
    most = max((len(socket.nodes) for socket in with_cpus), default=1)
    width = page_width(picture) if width is None else width
    across, columns = _grid_of(picture, width, len(with_cpus), most)
    socket_width = _socket_width(width, across)
    cell = _cell_size(picture, _node_width(socket_width, columns) - 2 * PAD)
    places: list[SocketPlace] = []
    y, row_bottom = top, top
    for position, socket in enumerate(picture.sockets):
        column = position % across if socket.id is not None else 0
        if column == 0:
            y = row_bottom + (GAP if position else 0)
        x = PAD + column * (socket_width + GAP)
        memory_columns = 1 if width < _NARROW_PAGE else 4
        own, wide = (columns, socket_width) if socket.id is not None else (memory_columns, width - 2 * PAD)
        nodes, bottom = _grid(socket.nodes, x + PAD, y + 24, _node_width(wide, own), own, cell)
        title = "Memory without CPUs" if socket.id is None else f"Socket {socket.id}"
        places.append(SocketPlace(title, Rectangle(x, y, wide, bottom + PAD - y), nodes))
        row_bottom = max(row_bottom, bottom + PAD)
    loose: tuple[ChipPlace, ...] = ()
    loose_title = row_bottom + GAP + 13
    if picture.loose_devices:
        # Beside their title, or below it where the page is narrow.
        left, y = (PAD, loose_title + 7) if width < _NARROW_PAGE else (PAD + LOOSE, row_bottom + GAP)
        loose, row_bottom = _chips(picture.loose_devices, left, y, width - PAD - left)
    return Layout(width, row_bottom, cell, _digit_size(picture, cell), tuple(places), loose, loose_title)


def _grid_of(picture: Picture, width: float, sockets: int, most: int) -> tuple[int, int]:
    """Choose how many sockets go side by side and how many columns of NUMA nodes each has, so that the numbers of the
    CPUs stay readable."""
    if width < _NARROW_PAGE:
        return 1, 1
    if most == 1:
        grids = [(across, 1) for across in (4, 2, 1) if across <= max(1, sockets) and (across < 4 or sockets >= 8)]
    else:
        most_columns = 2 if most == 2 else 3 if most in (3, 6) else 4
        grids = [(1, columns) for columns in range(most_columns, 0, -1) if most % columns in (0, columns - 1)]
    for across, columns in grids:
        cell = _cell_size(picture, _node_width(_socket_width(width, across), columns) - 2 * PAD)
        if _digit_size(picture, cell) >= _READABLE_DIGITS:
            return across, columns
    return grids[-1]


def _socket_width(width: float, across: int) -> float:
    return (width - 2 * PAD - GAP * (across - 1)) / across


def _node_width(socket_width: float, columns: int) -> float:
    return (socket_width - 2 * PAD - GAP * (columns - 1)) / columns


def _cell_size(picture: Picture, inner: float) -> float:
    """Return the pitch at which a row of at most sixteen cores fills the box, within sensible limits."""
    nodes = [node for socket in picture.sockets for node in socket.nodes if node.cpus]
    cores = max((sum(len(cache.cores) for cache in node.caches) for node in nodes), default=1)
    grouped = [len(cache.cores) for node in nodes for cache in node.caches if cache.shown]
    sizes = [_row_pitch(inner, min(most, max(1, cores)), max(grouped, default=0)) for most in _CORES_PER_ROW]
    return next((size for size in sizes if _digit_size(picture, size) >= _READABLE_DIGITS), sizes[0])


def _row_pitch(inner: float, per_row: int, group: int) -> int:
    """Return the pitch of `per_row` cores in a row, in frames of `group` (0: without frames)."""
    spare = 16 * -(-per_row // group) if group else 0
    return min(_LARGEST_CELL, max(_SMALLEST_CELL, int((inner - spare) / per_row)))


def _digit_size(picture: Picture, cell: float) -> float:
    """Return one font size for all CPUs, at which the longest number fits."""
    # A digit of the drawing's font is about 0.6 of its size wide.
    longest = max((len(str(cpu.id)) for cpu in picture.cpus()), default=1)
    size = min(12.0, (cell - 3) / (0.6 * longest))
    return size if size >= _SMALLEST_DIGITS else 0.0


def _grid(
    nodes: Sequence[NUMABox], x: float, y: float, width: float, columns: int, cell: float
) -> tuple[tuple[NodePlace, ...], float]:
    placed: list[NodePlace] = []
    bottom = y
    for start in range(0, len(nodes), columns):
        row = [
            _node(node, x + i * (width + GAP), y, width, cell) for i, node in enumerate(nodes[start : start + columns])
        ]
        height = max(node.place.height for node in row)
        # All boxes of a row are as tall as the tallest.
        placed += [node._replace(place=node.place._replace(height=height)) for node in row]
        bottom = y + height
        y = bottom + GAP
    return tuple(placed), bottom


def _node(node: NUMABox, x: float, y: float, width: float, cell: float) -> NodePlace:
    inner = width - 2 * PAD
    cursor = y + (_HEADER if node.cpus else _HEADER - 14)
    lines, cursor = _lines(node, x + PAD, cursor, inner)
    bars = []
    for memory in node.memory:
        bars.append(BarPlace(memory, Rectangle(x + PAD, cursor, inner, _BAR)))
        cursor += _BAR + 4
    chips, cursor = _chips(node.devices, x + PAD, cursor, inner)
    caches, cells, cursor = _cores(node, x + PAD, cursor + 2, inner, cell)
    place = Rectangle(x, y, width, cursor + PAD - y)
    return NodePlace(node, place, tuple(bars), chips, caches, cells, lines)


def _lines(node: NUMABox, x: float, y: float, inner: float) -> tuple[tuple[LinePlace, ...], float]:
    """Place what a refused pod finds on a node; what is too little there is bold."""
    placed = []
    for want in node.wants:
        for text in break_text(want.text, inner, 12 if want.short else 11, bold=want.short):
            placed.append(LinePlace(text, want.short, x, y + 12))
            y += _LINE
    return tuple(placed), y + (4 if placed else 0)


def chip_width(device: DeviceBox) -> float:
    return text_width(device.id) + 14


def _chips(devices: Sequence[DeviceBox], x: float, y: float, inner: float) -> tuple[tuple[ChipPlace, ...], float]:
    placed = []
    left = x
    for device in devices:
        width = min(chip_width(device), inner)
        if left + width > x + inner and left > x:
            left, y = x, y + CHIP + 4
        placed.append(ChipPlace(device, Rectangle(left, y, width, CHIP)))
        left += width + 4
    return tuple(placed), y + (CHIP + 6 if placed else 0)


def _cores(
    node: NUMABox, x: float, y: float, inner: float, cell: float
) -> tuple[tuple[CachePlace, ...], tuple[CellPlace, ...], float]:
    """Place the caches of a node from left to right; inside a cache, cores are columns and their threads rows."""
    caches: list[CachePlace] = []
    cells: list[CellPlace] = []
    left, row_bottom, bottom = x, y, y
    for cache in node.caches:
        pad = 5 if cache.shown else 0
        head = 13 if cache.shown else 0
        columns = max(1, min(len(cache.cores), int((inner - 2 * pad) // cell), _CORES_PER_ROW[0]))
        width = columns * cell + 2 * pad
        # Half a pixel of tolerance: widths are rounded, and a row that just fits must not wrap.
        if left > x and left + width > x + inner + 0.5:
            left, y = x, row_bottom + 6
        inside, end = _rows(cache, columns, left + pad, y + head, cell)
        cells += inside
        caches.append(CachePlace(cache, Rectangle(left, y, width, end + pad - y)))
        row_bottom = bottom = max(row_bottom, end + pad)
        left += width + 6
    return tuple(caches), tuple(cells), bottom


def _rows(cache: CacheBox, columns: int, x: float, y: float, cell: float) -> tuple[list[CellPlace], float]:
    cells = []
    for start in range(0, len(cache.cores), columns):
        row = cache.cores[start : start + columns]
        for column, core in enumerate(row):
            cells += [CellPlace(cpu, x + column * cell, y + thread * cell) for thread, cpu in enumerate(core.cpus)]
        y += max(len(core.cpus) for core in row) * cell + 5
    return cells, y - 5
