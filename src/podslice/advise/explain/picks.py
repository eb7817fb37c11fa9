"""CPUs as the units in which they are picked: whole NUMA nodes and sockets, caches, cores, single CPUs (cpu-topology
4.6)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits, CPUSet, iter_bits

_LEVELS = (
    ("NUMA node", "numa_nodes"),
    ("socket", "sockets"),
    ("L3 cache", "uncore_caches"),
    ("core", "cores"),
)


class Unit(msgspec.Struct, frozen=True, rename="camel"):
    """One unit: `what` (`NUMA node`, `socket`, `L3 cache`, `core`, `CPU`), its id, its CPUs."""

    what: str
    id: int
    cpus: CPUSet


def units(topology: CPUTopology, cpus: Bits, near: Bits | None) -> tuple[Unit, ...]:
    """Return the largest whole units that make up `cpus`; those in `near` (the affinity's CPUs) come first."""
    parts = [cpus] if near is None else [cpus & near, cpus & ~near]
    return tuple(unit for part in parts for unit in _whole(topology, part))


def _whole(topology: CPUTopology, cpus: Bits) -> Iterator[Unit]:
    for what, attribute in _LEVELS:
        # A cache as wide as a NUMA node is not a unit of its own: the node was tried already.
        if what == "L3 cache" and len(topology.uncore_caches) <= len(topology.numa_nodes):
            continue
        for key, members in getattr(topology, attribute).items():
            if members & ~cpus == 0 and members.bit_count() > 1:
                yield Unit(what, key, CPUSet.from_bits(members))
                cpus &= ~members
    for cpu in iter_bits(cpus):
        yield Unit("CPU", cpu, CPUSet.from_bits(1 << cpu))
