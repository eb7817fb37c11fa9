"""Cores that are free as a whole, and the numbers of CPUs that they make up."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits


def reachable(sizes: Iterable[int], limit: int) -> Bits:
    """The numbers up to `limit` that some of these sizes add up to, as bits."""
    sums, mask = 1, (2 << limit) - 1
    for size in sizes:
        sums |= sums << size & mask
    return sums


def whole_cores_in(topology: CPUTopology, free: Bits) -> list[Bits]:
    """The cores that are free as a whole."""
    return [core for core in topology.cores.values() if core & free == core]


def sums_of(topology: CPUTopology, free: Bits, limit: int) -> Bits:
    """The numbers of CPUs up to `limit` that whole free cores make up."""
    return reachable([core.bit_count() for core in whole_cores_in(topology, free)], limit)
