"""CPU hints under `full-pcpus-only` on machines whose cores differ in size. Every set of NUMA nodes is tried: how many
CPUs whole cores can make up does not follow from how many are free."""

from __future__ import annotations

from podslice.machine.cores import sums_of
from podslice.machine.model import CPUTopology
from podslice.node.topology.hint import Hint, enumerate_masks
from podslice.values.cpuset import Bits, iter_bits


def cpu_hints_of_cores(topology: CPUTopology, available: Bits, reusable: Bits, count: int) -> list[Hint]:
    """Return hints for `count` CPUs, `reusable` ones included. A set of NUMA nodes qualifies if whole free cores on it
    make up the rest exactly; it is preferred if no smaller set would qualify on an empty machine."""
    nodes, required = tuple(iter_bits(topology.numa_mask)), topology.numa_nodes_of(reusable)
    missing = count - reusable.bit_count()
    masks = [mask for mask in enumerate_masks(nodes) if not required & ~mask]
    smallest = next(
        (mask.bit_count() for mask in enumerate_masks(nodes) if _make_up(topology, mask, topology.all_cpus, count)), 0
    )
    if missing <= 0:
        return [Hint(mask, mask.bit_count() == smallest) for mask in masks]
    return [
        Hint(mask, mask.bit_count() == smallest)
        for mask in masks
        if _make_up(topology, mask, available & ~reusable, missing)
    ]


def _make_up(topology: CPUTopology, mask: Bits, free: Bits, count: int) -> bool:
    """Whether whole cores of `free` on these NUMA nodes make up `count` CPUs."""
    there = free & topology.cpus_in_numa_nodes(mask)
    return there.bit_count() >= count and sums_of(topology, there, count) >> count & 1 == 1
