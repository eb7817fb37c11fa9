"""Free whole cores, and the numbers of CPUs that they add up to."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits


def reachable_sums(sizes: Iterable[int], limit: int) -> Bits:
    """Return the numbers up to `limit` that some of these sizes add up to, as bits."""
    sums, mask = 1, (2 << limit) - 1
    for size in sizes:
        # Bit i of `sums` says that i can be reached: one shift adds a core to every sum so far.
        sums |= sums << size & mask
    return sums


def free_cores(topology: CPUTopology, free: Bits) -> list[Bits]:
    """Return the cores all of whose CPUs are free."""
    return [core for core in topology.cores.values() if core & free == core]


def whole_core_sums(topology: CPUTopology, free: Bits, limit: int) -> Bits:
    """Return the numbers of CPUs up to `limit` that free whole cores add up to, as bits."""
    return reachable_sums([core.bit_count() for core in free_cores(topology, free)], limit)
