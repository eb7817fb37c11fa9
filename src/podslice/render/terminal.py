"""The terminal back end: cores are columns, threads are rows, bars part L3 groups; 256 CPUs on 8 NUMA nodes fit on one
screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.render.ansi import style
from podslice.render.picture import CPU, RESERVED, CoreBox, DeviceBox, Memory, NUMABox, Picture
from podslice.render.prose import fold
from podslice.render.table import format_bytes
from podslice.values.cpuset import Bits, format_bits

RESERVED_SYMBOL = "×"
SHARED_SYMBOL = "·"
GROWTH_MARK = "+"
"""Mark after a CPU that its owner has beyond what was promised."""
OBSTACLE_MARK = "!"
"""Mark before what is in the way of a refused pod."""
_SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "bright_red", "bright_cyan", "bright_yellow")
_GROUP = 8
_INDENT = 20
_MOST_POOLED = 12
_DETAILS = 11


def to_text(picture: Picture, *, width: int = 100) -> str:
    """Return the picture for a terminal of `width` columns, with colours that `click.echo` drops elsewhere."""
    lines: list[str] = []
    for refusal in picture.refusals:
        lines += fold(_style(refusal, fg="red", bold=True), width, indent=2)
    lines += [""] * bool(picture.refusals)
    for socket in picture.sockets:
        lines.append(_style("Memory without CPUs" if socket.id is None else f"Socket {socket.id}", bold=True))
        for node in socket.nodes:
            lines += _node_lines(picture, node, width)
    if picture.loose_devices:
        text = f"{_style('Devices without NUMA node', bold=True)}  {_devices(picture.loose_devices)}"
        lines += fold(text, width, indent=2)
    lines.append("")
    lines += _legend(picture, width)
    if 1 < len(picture.distances) <= (width - 6) // 4:
        lines += ["", *_distances(picture)]
    return "\n".join(lines)


def _node_lines(picture: Picture, node: NUMABox, width: int) -> list[str]:
    free = "" if node.free is None else f", {node.free} free"
    cpus = [f"CPUs {format_bits(node.cpus)}{free}"] if node.cpus else []
    details = [*cpus, *map(_memory, node.memory)]
    if node.devices:
        details.append(_devices(node.devices))
    lines = fold(f"  NUMA {node.id:<3} {' · '.join(details)}", width, indent=_DETAILS)
    for want in node.wants:
        text = _style(want.text, fg="red", bold=True) if want.short else want.text
        lines += fold(f"  {OBSTACLE_MARK if want.short else ' '} {text}", width, indent=_DETAILS)
    threads = max((len(core.cpus) for cache in node.caches for core in cache.cores), default=0)
    for groups in _fit_groups(_groups(node), width - _INDENT):
        lines += [_row(picture, groups, thread, threads) for thread in range(threads)]
    return lines


def _memory(memory: Memory) -> str:
    name = memory.resource.replace("hugepages-", "huge pages ")
    used = "" if memory.used is None else f"{format_bytes(memory.used)} used of "
    return f"{name} {used}{format_bytes(memory.total)}"


def _devices(devices: Sequence[DeviceBox]) -> str:
    def state(device: DeviceBox) -> str:
        return f"({device.owner})" if device.owner else "free" if device.healthy else "unhealthy"

    return ", ".join(f"{device.id} {state(device)}" for device in devices)


def _groups(node: NUMABox) -> list[tuple[str, list[CoreBox]]]:
    """Return groups of up to eight cores, each with its lead: a bar where an L3 group begins."""
    found: list[tuple[str, list[CoreBox]]] = []
    for cache in node.caches:
        cores = sorted(cache.cores, key=lambda core: core.id)
        for start in range(0, len(cores), _GROUP):
            found.append((" ┊ " if cache.shown and not start else "  ", cores[start : start + _GROUP]))
    return found


def _fit_groups(groups: list[tuple[str, list[CoreBox]]], width: int) -> Iterator[list[tuple[str, list[CoreBox]]]]:
    """Yield lines of groups that fit into the width."""
    line: list[tuple[str, list[CoreBox]]] = []
    taken = 0
    for gap, cores in groups:
        needed = len(gap) + 2 * len(cores) - 1
        if line and taken + needed > width:
            yield line
            line, taken = [], 0
        line.append((gap, cores))
        taken += needed
    if line:
        yield line


def _row(picture: Picture, groups: list[tuple[str, list[CoreBox]]], thread: int, threads: int) -> str:
    first = next((core.cpus[thread].id for _, cores in groups for core in cores if thread < len(core.cpus)), 0)
    drawn = ""
    for place, (gap, cores) in enumerate(groups):
        cells = [core.cpus[thread] if thread < len(core.cpus) else None for core in cores]
        drawn += gap[1:] if place else ""
        drawn += "".join(_cell(picture, cpu) + (GROWTH_MARK if cpu and cpu.growth else " ") for cpu in cells)
    label = f"thread {thread}" if threads > 1 else "cores"
    return f"    {label:<9}{first:>5}  {drawn}".rstrip(" ")


def _distances(picture: Picture) -> list[str]:
    ids = [node for node, _ in picture.distances]
    lines = [_style("NUMA distances", bold=True), "      " + "".join(f"{node:>4}" for node in ids)]
    return lines + [f"  {node:>4}" + "".join(f"{distance:>4}" for distance in row) for node, row in picture.distances]


def _cell(picture: Picture, cpu: CPU | None) -> str:
    if cpu is None:
        return " "
    if cpu.owner is None:
        symbol = RESERVED_SYMBOL if cpu.kind == RESERVED else SHARED_SYMBOL
        return _style(symbol, dim=not cpu.changed, reverse=cpu.changed)
    look = picture.owners[cpu.owner].look
    return _style(_SYMBOLS[look % len(_SYMBOLS)], fg=_COLOURS[look % len(_COLOURS)], bold=True, reverse=cpu.changed)


def _legend(picture: Picture, width: int) -> list[str]:
    rows: list[tuple[str, str, Bits, str, int | None]] = [
        (RESERVED_SYMBOL, "reserved for the system", picture.reserved, "", None),
        (SHARED_SYMBOL, "shared pool of the node", picture.shared, "", None),
    ]
    for owner in picture.owners:
        kind = "pod shared pool" if owner.kind == "pod shared" else owner.kind
        kind += f"; {owner.remark}" if owner.remark else ""
        rows.append((_SYMBOLS[owner.look % len(_SYMBOLS)], owner.label, owner.cpus, kind, owner.look))
    rows = [row for row in rows if row[2]]
    pooled = [pod.label for pod in picture.pods if pod.pooled]
    label_width = min(max((len(row[1]) for row in rows), default=0), max(8, width // 2))
    lines = []
    for symbol, label, cpus, kind, look in rows:
        fg = None if look is None else _COLOURS[look % len(_COLOURS)]
        drawn = _style(symbol, fg=fg, bold=look is not None, dim=look is None)
        text = f"  {drawn}  {label:<{label_width}}  {format_bits(cpus)}{f'  ({kind})' if kind else ''}"
        lines += fold(text, width, indent=5)
    for name, cpus in picture.classes:
        lines += fold(f"     {f'class {name}':<{label_width}}  {format_bits(cpus) or '-'}", width, indent=5)
    if picture.grows:
        lines += fold(
            f"  {GROWTH_MARK}  behind a CPU: growth, beyond what was promised at the admission", width, indent=5
        )
    if pooled:
        more = f" and {len(pooled) - _MOST_POOLED} more" if len(pooled) > _MOST_POOLED else ""
        lines += fold(f"  In the shared pool: {', '.join(pooled[:_MOST_POOLED])}{more}", width, indent=4)
    for note in picture.notes:
        lines += fold(f"  {note}", width, indent=4)
    return lines


def _style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False, reverse: bool = False) -> str:
    return style(text, fg=fg, bold=bold or None, dim=dim or None, reverse=reverse or None)
