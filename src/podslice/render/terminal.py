"""The terminal back end: cores are columns, threads are rows: 256 CPUs on 8 NUMA nodes fit on one screen."""

from __future__ import annotations

import click

from podslice.core.values.cpuset import Bits, format_bits
from podslice.render.picture import CPU, RESERVED, Core, NUMABox, Picture

RESERVED_SYMBOL = "×"
SHARED_SYMBOL = "·"
_SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "bright_red", "bright_cyan", "bright_yellow")
_GROUP = 8


def to_text(picture: Picture, *, width: int = 100) -> str:
    """The picture for a terminal of `width` columns, with colours that `click.echo` drops where there is none."""
    lines: list[str] = []
    for socket in picture.sockets:
        if socket.id is None:
            continue
        lines.append(_style(f"Socket {socket.id}", bold=True))
        for node in socket.nodes:
            lines += _node_lines(node, width)
    lines.append("")
    lines += _legend(picture)
    return "\n".join(lines)


def _node_lines(node: NUMABox, width: int) -> list[str]:
    lines = [f"  NUMA {node.id:<3} CPUs {format_bits(node.cpus)}, {node.free} free for exclusive use"]
    cores = sorted((core for cache in node.caches for core in cache.cores), key=lambda core: core.id)
    per_line = max(_GROUP, (width - 16) // (_GROUP * 2 + 1) * _GROUP)
    threads = max(len(core.cpus) for core in cores)
    for start in range(0, len(cores), per_line):
        for thread in range(threads):
            lines.append(_row(cores[start : start + per_line], thread, threads))
    return lines


def _row(cores: list[Core], thread: int, threads: int) -> str:
    cells = [core.cpus[thread] if thread < len(core.cpus) else None for core in cores]
    first = next((cpu.id for cpu in cells if cpu is not None), 0)
    drawn = [("  " if i and i % _GROUP == 0 else " " if i else "") + _cell(cpu) for i, cpu in enumerate(cells)]
    label = f"thread {thread}" if threads > 1 else "cores"
    return f"    {label:<9}{first:>5}  " + "".join(drawn)


def _cell(cpu: CPU | None) -> str:
    if cpu is None:
        return " "
    if cpu.owner is None:
        symbol = RESERVED_SYMBOL if cpu.kind == RESERVED else SHARED_SYMBOL
        return _style(symbol, dim=not cpu.changed, reverse=cpu.changed)
    symbol = _SYMBOLS[cpu.owner % len(_SYMBOLS)]
    return _style(symbol, fg=_COLOURS[cpu.owner % len(_COLOURS)], bold=True, reverse=cpu.changed)


def _legend(picture: Picture) -> list[str]:
    rows: list[tuple[str, str, Bits, str, int | None]] = [
        (RESERVED_SYMBOL, "reserved for the system", picture.reserved, "", None),
        (SHARED_SYMBOL, "shared pool of the node", picture.shared, "", None),
    ]
    for index, owner in enumerate(picture.owners):
        kind = "pod shared pool" if owner.kind == "pod shared" else owner.kind
        rows.append((_SYMBOLS[index % len(_SYMBOLS)], owner.label, owner.cpus, kind, index))
    rows = [row for row in rows if row[2]]
    label_width = max((len(row[1]) for row in rows), default=0)
    lines = []
    for symbol, label, cpus, kind, owner_index in rows:
        fg = None if owner_index is None else _COLOURS[owner_index % len(_COLOURS)]
        drawn = _style(symbol, fg=fg, bold=owner_index is not None, dim=owner_index is None)
        lines.append(f"  {drawn}  {label:<{label_width}}  {format_bits(cpus)}{f'  ({kind})' if kind else ''}")
    return lines


def _style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False, reverse: bool = False) -> str:
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None, reverse=reverse or None)
