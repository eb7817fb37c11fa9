"""A machine for people: counts, a row per NUMA node, distances, and what is unusual about it."""

from __future__ import annotations

import click

from podslice.core.machine.model import Machine, NUMANode
from podslice.core.machine.topology import CPUTopology, TopologyError
from podslice.core.values.cpuset import CPUSet, format_bits
from podslice.render.table import format_bytes, format_table

_MOST_ROWS = 16


def print_machine(machine: Machine, *, wide: bool = False) -> None:
    """Print the machine to standard output."""
    click.echo(describe(machine, wide=wide))


def describe(machine: Machine, *, wide: bool = False) -> str:
    """The machine as text with terminal colours."""
    parts = [_summary(machine)]
    parts.append(_nodes(machine, wide))
    distances = _distances(machine, wide)
    if distances:
        parts.append(distances)
    if wide:
        parts.append(_cores(machine))
    if machine.warnings:
        shown = machine.warnings if wide else machine.warnings[:3]
        more = len(machine.warnings) - len(shown)
        lines = [click.style(f"warning: {warning}", fg="yellow") for warning in shown]
        parts.append("\n".join(lines + ([f"… and {more} more (-o wide)"] if more else [])))
    return "\n\n".join(part for part in parts if part)


def _summary(machine: Machine) -> str:
    cores = sum(len(node.cores) for node in machine.nodes)
    smt = sorted({len(core.threads) for node in machine.nodes for core in node.cores})
    facts = [
        ("Machine", " · ".join(part for part in (machine.name, machine.description) if part)),
        ("Source", machine.source),
        (
            "CPUs",
            f"{machine.cpu_count} ({_count(machine.socket_count, 'socket')}, "
            f"{_count(cores, 'core')}, {_smt_text(smt)})",
        ),
        ("Memory", format_bytes(machine.memory) if machine.memory else "unknown"),
        ("Uncore (L3)", _uncore_text(machine)),
        ("Core types", ", ".join(f"{t.name} {t.cpus}" for t in machine.core_types)),
        ("Offline", str(machine.offline)),
        ("Isolated", str(machine.isolated)),
    ]
    width = max(len(name) for name, value in facts if value)
    return "\n".join(f"{click.style(f'{name:<{width}}', bold=True)}  {value}" for name, value in facts if value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _smt_text(smt: list[int]) -> str:
    if not smt:
        return "no threads"
    return "no SMT" if smt == [1] else f"{' or '.join(map(str, smt))} threads per core"


def _uncore_text(machine: Machine) -> str:
    try:
        topology = CPUTopology(machine)
    except TopologyError as error:
        return f"none: {error}"
    if not any(core.uncore_caches for node in machine.nodes for core in node.cores):
        return "none smaller or larger than a NUMA node"
    sizes = sorted({cpus.bit_count() for cpus in topology.uncore_caches.values()})
    return f"{len(topology.uncore_caches)} of {' or '.join(map(str, sizes))} CPUs"


def _nodes(machine: Machine, wide: bool) -> str:
    rows = []
    for node in machine.nodes:
        cpus = CPUSet(cpu for core in node.cores for cpu in core.threads)
        sockets = ",".join(map(str, sorted({core.socket for core in node.cores}))) or "-"
        pools = ", ".join(
            f"{p.num_pages} x {format_bytes(p.page_size_ki * 1024)}" for p in node.hugepages if p.num_pages
        )
        rows.append([str(node.id), sockets, str(len(cpus)), str(cpus) or "-", format_bytes(node.memory), pools or "-"])
    if len(rows) > _MOST_ROWS and not wide:
        rows = _folded(machine.nodes, rows)
    return format_table(["NUMA", "SOCKET", "CPUS", "CPU LIST", "MEMORY", "HUGE PAGES"], rows, right=(2, 4), bold=True)


def _folded(nodes: tuple[NUMANode, ...], rows: list[list[str]]) -> list[list[str]]:
    """Runs of nodes that differ only in their id as one row."""
    folded: list[list[str]] = []
    start = 0
    for index in range(1, len(rows) + 1):
        if index < len(rows) and rows[index][1:] == rows[start][1:] and not nodes[index].cores:
            continue
        ids = format_bits(sum(1 << nodes[i].id for i in range(start, index)))
        folded.append([ids, *rows[start][1:]])
        start = index
    return folded


def _distances(machine: Machine, wide: bool) -> str:
    known = [node for node in machine.nodes if node.distances]
    if len(known) < 2:
        return ""
    if len(known) > _MOST_ROWS and not wide:
        values = sorted({distance for node in known for distance in node.distances or ()})
        return f"Distances between {len(known)} NUMA nodes: {', '.join(map(str, values))} (-o wide for the matrix)"
    headings = ["DISTANCE", *(str(node.id) for node in known)]
    rows = [[str(node.id), *map(str, node.distances or ())] for node in known]
    rows = [row[: len(headings)] + [""] * (len(headings) - len(row)) for row in rows]
    return format_table(headings, rows, right=range(1, len(headings)), bold=True)


def _cores(machine: Machine) -> str:
    rows = [
        [
            str(node.id),
            str(core.socket),
            str(min(core.threads)),
            ",".join(map(str, core.threads)),
            ",".join(map(str, core.uncore_caches)) or "-",
        ]
        for node in machine.nodes
        for core in node.cores
    ]
    return format_table(["NUMA", "SOCKET", "CORE", "THREADS", "UNCORE CACHE"], rows, right=(0, 1, 2), bold=True)
