"""Parts of the CPUs for claims that devices represent, by name (docs/dra.md): those of a CPU class in a NUMA node,
single CPUs, cores, and all of an L3 cache, NUMA node, socket or the machine.

Parts are named after what does not change while the machine runs, whichever of them are offered: a prepared claim keeps
its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from podslice.machine.cores import free_cores
from podslice.machine.model import CPUTopology, Machine
from podslice.values.cpuset import Bits, iter_bits, union

PartKind: TypeAlias = Literal["class", "cpu", "core", "l3Cache", "numaNode", "socket", "machine"]
PARTITIONS: tuple[PartKind, ...] = ("l3Cache", "numaNode", "socket", "machine")
"""Kinds of partitions, from small to large."""


class ClaimPart(NamedTuple):
    """A part of the CPUs for claims; `id` of the core, NUMA node or socket, of a cache its lowest CPU; `name` of the
    class."""

    kind: PartKind
    id: int
    cpus: Bits
    name: str = ""
    """Of the class."""


def l3_caches(machine: Machine) -> dict[int, Bits]:
    """Return the CPUs of each L3 cache by the lowest of them."""
    return {min(one.cpus): one.cpus.bits for one in machine.caches if one.level == 3 and one.cpus}


def claimable_cpus(cpus: Bits, topology: CPUTopology, *, reserved: Bits, strict: bool, whole_cores: bool) -> Bits:
    """Return those of the CPUs for claims that claims can get. `strict`: other containers may not share reserved CPUs,
    so one CPU is kept for them where they have no other."""
    cpus &= topology.all_cpus & ~reserved
    if strict and not topology.all_cpus & ~reserved & ~cpus:
        cpus &= cpus - 1
    return union(free_cores(topology, cpus)) if whole_cores else cpus


def claim_parts(
    machine: Machine, topology: CPUTopology, cpus: Bits, classes: Mapping[str, Bits]
) -> dict[str, ClaimPart]:
    """Return the parts of these CPUs, by name."""
    return {name: part for name, part in _parts(machine, topology, cpus, classes) if part.cpus}


def _parts(
    machine: Machine, topology: CPUTopology, cpus: Bits, classes: Mapping[str, Bits]
) -> Iterator[tuple[str, ClaimPart]]:
    """Yield the name and content of each part that may be claimed, empty ones included."""
    for numa, members in topology.numa_nodes.items():
        for name, of_class in classes.items():
            yield f"numa-{numa}-{name}", ClaimPart("class", numa, cpus & members & of_class, name)
    for cpu in iter_bits(cpus):
        yield f"cpu-{cpu}", ClaimPart("cpu", cpu, 1 << cpu)
    for core, members in topology.cores.items():
        yield f"core-{core}", ClaimPart("core", core, cpus & members)
    for first, members in l3_caches(machine).items():
        yield f"whole-l3-{first}", ClaimPart("l3Cache", first, cpus & members)
    for numa, members in topology.numa_nodes.items():
        yield f"whole-numa-{numa}", ClaimPart("numaNode", numa, cpus & members)
    for socket, members in topology.sockets.items():
        yield f"whole-socket-{socket}", ClaimPart("socket", socket, cpus & members)
    yield "whole-machine", ClaimPart("machine", 0, cpus)
