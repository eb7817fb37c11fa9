"""hwloc's synthetic strings: `pack:2 numa:2 l3:1 core:8 pu:2` (hwloc documentation, "Synthetic topologies").

Levels go from the outermost to the innermost, each with how many of it are in one of the level above. We read the
levels that matter to a kubelet; caches below L3, dies and groups only multiply.
"""

from __future__ import annotations

import re
from math import prod

from podslice.core.errors import InputError
from podslice.core.machine.model import Machine, NUMANode
from podslice.core.machine.shape import Shape, expand

_LEVEL = re.compile(r"(?:(?P<kind>[A-Za-z][A-Za-z0-9]*):)?(?P<count>[0-9]+)(?:\((?P<attributes>[^)]*)\))?\Z")
_ATTACHED = re.compile(r"\[(?P<kind>[A-Za-z]+)(?:\((?P<attributes>[^)]*)\))?\]\Z")
_ALIASES = {
    "package": "pack", "socket": "pack", "numanode": "numa", "node": "numa", "l3cache": "l3", "l3u": "l3",
    "l2cache": "l2", "l1cache": "l1", "l1d": "l1", "l1i": "l1", "l2u": "l2", "l4": "group", "l5": "group",
}  # fmt: skip
_KINDS = ("pack", "numa", "l3", "l2", "l1", "core", "pu", "die", "group", "cluster", "tile", "module")
_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
DEFAULT_MEMORY = 1 << 30
"""Bytes per NUMA node where the string does not say, as hwloc has it."""
_REMEDY = "write for example: pack:2 numa:2 core:8 pu:2"


def from_synthetic(text: str) -> Machine:
    """The machine a synthetic string describes. Raises `InputError`."""
    levels, memory, order = _parse(text)
    kinds = [kind for kind, _ in levels]
    if kinds[-1] != "pu":
        raise InputError(f"{text!r} does not end with processing units", remedy=_REMEDY)

    def count(wanted: str) -> int:
        return prod(number for kind, number in levels[: kinds.index(wanted) + 1]) if wanted in kinds else 0

    sockets = count("pack") or 1
    numa = count("numa") or sockets
    pus = count("pu")
    cores = count("core") or pus
    l3 = count("l3")
    if numa % sockets or cores % numa:
        raise InputError(f"{text!r} has NUMA nodes that span packages", remedy="give it as hwloc XML instead")
    machine = expand(
        Shape(
            sockets=sockets,
            numa_per_socket=numa // sockets,
            cores_per_numa=cores // numa,
            threads_per_core=pus // cores,
            numbering="consecutive",
            memory_per_numa=str(memory),
            cores_per_l3=cores // l3 if l3 and cores % l3 == 0 else 0,
            cpu_order=order,
        )
    )
    return machine if "numa" in kinds else _in_one_node(machine)


def _in_one_node(machine: Machine) -> Machine:
    """Without a NUMA level hwloc attaches one node to the whole machine."""
    cores = tuple(core for node in machine.nodes for core in node.cores)
    return Machine(nodes=(NUMANode(id=0, memory=DEFAULT_MEMORY, distances=(10,), cores=cores),))


def _parse(text: str) -> tuple[list[tuple[str, int]], int, tuple[int, ...]]:
    levels: list[tuple[str, int]] = []
    memory = DEFAULT_MEMORY
    order: tuple[int, ...] = ()
    words = re.sub(r"\(([^)]*)\)", lambda match: match[0].replace(" ", ";"), text).split()
    if not words:
        raise InputError("the synthetic description is empty", remedy=_REMEDY)
    for word in words:
        attached = _ATTACHED.match(word)
        if attached and _kind(attached["kind"], text) == "numa":
            levels.append(("numa", 1))
            memory = _memory(attached["attributes"]) or memory
            continue
        match = _LEVEL.match(word)
        if match is None or int(match["count"]) < 1:
            raise InputError(f"{word!r} is not a level", remedy=_REMEDY)
        kind = _kind(match["kind"] or "", text)
        levels.append((kind, int(match["count"])))
        if kind == "numa":
            memory = _memory(match["attributes"]) or memory
        if kind == "pu":
            order = _indexes(match["attributes"])
    return _name_bare_levels(levels), memory, order


def _kind(name: str, text: str) -> str:
    kind = _ALIASES.get(name.lower(), name.lower())
    if kind and kind not in _KINDS:
        raise InputError(f"unknown level {name!r} in {text!r}", remedy=f"levels are {', '.join(_KINDS)}")
    return kind


def _name_bare_levels(levels: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Numbers without a kind, innermost outward: processing units, cores, packages; anything further groups."""
    names = ["pu", "core", "pack"]
    named = []
    for kind, number in reversed(levels):
        if kind:
            if kind in names:
                names = names[names.index(kind) + 1 :]
            named.append((kind, number))
        else:
            named.append((names.pop(0) if names else "group", number))
    return named[::-1]


def _memory(attributes: str | None) -> int:
    match = re.search(r"memory=([0-9]+)([A-Za-z]*)", attributes or "")
    if match is None:
        return 0
    unit = _UNITS.get(match[2].upper())
    if unit is None:
        raise InputError(f"unknown unit {match[2]!r} of memory", remedy="B, kB, MB, GB, KiB, MiB, GiB")
    return int(match[1]) * unit


def _indexes(attributes: str | None) -> tuple[int, ...]:
    match = re.search(r"indexes=([0-9,]+)", attributes or "")
    return tuple(int(number) for number in match[1].split(",")) if match else ()


def to_synthetic(machine: Machine) -> str:
    """The shortest synthetic string of a regular machine. Raises `InputError` saying what is irregular."""
    nodes = [node for node in machine.nodes if node.cores]
    if len(nodes) != len(machine.nodes):
        raise InputError("memory-only NUMA nodes do not fit a synthetic string", remedy="use -o yaml or json")
    cores = [core for node in nodes for core in node.cores]
    sockets = len({core.socket for core in cores})
    per_node = {len(node.cores) for node in nodes}
    widths = {len(core.threads) for core in cores}
    memories = {node.memory for node in nodes}
    if len(per_node) != 1 or len(widths) != 1 or len(memories) != 1 or len(nodes) % sockets:
        raise InputError("the machine is not regular", remedy="use -o yaml or json")
    memory = memories.pop()
    words = [f"pack:{sockets}", f"numa:{len(nodes) // sockets}" + (f"(memory={memory}B)" if memory else "")]
    caches = [core.uncore_caches[:1] for core in cores]
    size = caches.count(caches[0])
    if caches[0] and size and per_node == {len(nodes[0].cores)} and len(nodes[0].cores) % size == 0:
        words.append(f"l3:{len(nodes[0].cores) // size}")
        words.append(f"core:{size}")
    else:
        words.append(f"core:{len(nodes[0].cores)}")
    order = [cpu for core in cores for cpu in core.threads]
    pu = f"pu:{widths.pop()}"
    if order != list(range(len(order))):
        pu += f"(indexes={','.join(map(str, order))})"
    return " ".join([*words, pu])
