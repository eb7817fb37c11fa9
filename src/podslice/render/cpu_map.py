"""The node's CPU map: who owns which CPU, by socket, NUMA node and core.

The picture model is plain data (`build`), so that every back end draws the same picture; `to_text` is the terminal
back end. A core is a column, its threads are rows: 256 CPUs on 8 NUMA nodes fit on one screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import click

from podslice.core.machine.topology import CPUTopology
from podslice.core.values.cpuset import Bits, format_bits, iter_bits

RESERVED = "×"
SHARED = "·"
_SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class Owner(NamedTuple):
    """Somebody who owns CPUs: a container, or the shared rest of a pod's bubble."""

    label: str
    cpus: Bits
    kind: str


class Cell(NamedTuple):
    """One CPU: its id, the symbol drawn, and the index of its owner (None: reserved or shared pool)."""

    cpu: int
    symbol: str
    owner: int | None


class NUMABlock(NamedTuple):
    """One NUMA node of one socket: `rows[t][c]` is thread *t* of the *c*-th core, None where a core has fewer."""

    socket: int
    node: int
    cpus: Bits
    free: int
    rows: tuple[tuple[Cell | None, ...], ...]


class CPUMap(NamedTuple):
    blocks: tuple[NUMABlock, ...]
    owners: tuple[Owner, ...]
    symbols: tuple[str, ...]
    reserved: Bits
    default: Bits


def build(topology: CPUTopology, default: Bits, reserved: Bits, owners: Iterable[Owner]) -> CPUMap:
    """The map of a node. A CPU with several owners (init containers) shows the last one."""
    owners = tuple(owners)
    symbols = tuple(_SYMBOLS[i % len(_SYMBOLS)] for i in range(len(owners)))
    owner_of: dict[int, int] = {}
    for index, owner in enumerate(owners):
        for cpu in iter_bits(owner.cpus):
            owner_of[cpu] = index
    blocks = []
    for socket, socket_cpus in topology.sockets.items():
        for node, node_cpus in topology.numa_nodes.items():
            cpus = socket_cpus & node_cpus
            if cpus:
                rows = _rows(topology, cpus, owner_of, symbols, reserved)
                blocks.append(NUMABlock(socket, node, cpus, (cpus & default & ~reserved).bit_count(), rows))
    return CPUMap(tuple(blocks), owners, symbols, reserved, default)


def _rows(
    topology: CPUTopology, cpus: Bits, owner_of: Mapping[int, int], symbols: tuple[str, ...], reserved: Bits
) -> tuple[tuple[Cell | None, ...], ...]:
    columns = [list(iter_bits(core & cpus)) for core in topology.cores.values() if core & cpus]
    height = max(map(len, columns))

    def cell(cpu: int) -> Cell:
        owner = owner_of.get(cpu)
        if owner is not None:
            return Cell(cpu, symbols[owner], owner)
        return Cell(cpu, RESERVED if reserved >> cpu & 1 else SHARED, None)

    return tuple(
        tuple(cell(column[thread]) if thread < len(column) else None for column in columns) for thread in range(height)
    )


_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "bright_red", "bright_cyan", "bright_yellow")


def to_text(picture: CPUMap, *, width: int = 100) -> str:
    """The map for a terminal of `width` columns, with colours that `click.echo` drops where there is none."""
    lines: list[str] = []
    socket = None
    for block in picture.blocks:
        if block.socket != socket:
            socket = block.socket
            lines.append(_style(f"Socket {socket}", bold=True))
        lines += _block_lines(block, width)
    lines.append("")
    lines += _legend(picture)
    return "\n".join(lines)


def _block_lines(block: NUMABlock, width: int) -> list[str]:
    lines = [f"  NUMA {block.node:<3} CPUs {format_bits(block.cpus)}, {block.free} free for exclusive use"]
    group = 8
    per_line = max(group, (width - 16) // (group * 2 + 1) * group)
    columns = len(block.rows[0])
    for start in range(0, columns, per_line):
        for thread, row in enumerate(block.rows):
            cells = row[start : start + per_line]
            first = next((cell.cpu for cell in cells if cell is not None), 0)
            drawn = [("  " if i and i % group == 0 else " " if i else "") + _cell(cell) for i, cell in enumerate(cells)]
            label = f"thread {thread}" if len(block.rows) > 1 else "cores"
            lines.append(f"    {label:<9}{first:>5}  " + "".join(drawn))
    return lines


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return " "
    if cell.owner is None:
        return _style(cell.symbol, dim=True)
    return _style(cell.symbol, fg=_COLOURS[cell.owner % len(_COLOURS)], bold=True)


def _legend(picture: CPUMap) -> list[str]:
    rows: list[tuple[str, str, str, str, int | None]] = [
        (RESERVED, "reserved for the system", format_bits(picture.reserved), "", None),
        (SHARED, "shared pool of the node", format_bits(picture.default), "", None),
    ]
    for position, owner in enumerate(picture.owners):
        rows.append((picture.symbols[position], owner.label, format_bits(owner.cpus), owner.kind, position))
    rows = [row for row in rows if row[2]]
    label_width = max((len(row[1]) for row in rows), default=0)
    lines = []
    for symbol, label, cpus, kind, index in rows:
        fg = None if index is None else _COLOURS[index % len(_COLOURS)]
        drawn = _style(symbol, fg=fg, bold=index is not None, dim=index is None)
        lines.append(f"  {drawn}  {label:<{label_width}}  {cpus}{f'  ({kind})' if kind else ''}")
    return lines


def _style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None)
