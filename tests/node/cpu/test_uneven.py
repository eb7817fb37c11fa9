"""CPUs on machines whose parts differ in size, and the arithmetic that finds the evenest NUMA nodes."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from itertools import count as counter

import pytest

from podslice.machine.model import Core, CPUTopology, Machine, NUMANode
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.balance import Balance
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.quirks import PODSLICE

EVEN = CPUPolicyOptions(distribute_cpus_across_numa=True)
UNCORE = CPUPolicyOptions(prefer_align_cpus_by_uncorecache=True)
BY_SOCKET = CPUPolicyOptions(align_by_socket=True)


def machine(*nodes: tuple[int, ...]) -> CPUTopology:
    """NUMA nodes on one socket, each with L3 caches of so many single-threaded cores."""
    cpus, caches = counter(), counter()
    return CPUTopology(
        Machine(
            tuple(
                NUMANode(
                    node,
                    cores=tuple(
                        Core(0, cpu, (cpu,), (cache,))
                        for size in sizes
                        for cache in (next(caches),)
                        for cpu in (next(cpus) for _ in range(size))
                    ),
                )
                for node, sizes in enumerate(nodes)
            )
        )
    )


def picked(topology: CPUTopology, free: str, count: int, options: CPUPolicyOptions) -> str:
    return format_bits(Picker(topology, options, PODSLICE).take(parse_bits(free), count).cpus)


def test_distribution_counts_nodes_of_average_size() -> None:
    """NUMA nodes have four CPUs on average, so five CPUs are distributed over two, though one of them has six."""
    assert picked(machine((6,), (2,)), "0-7", 5, EVEN) == "0-2,6-7"
    assert picked(machine((6,), (2,)), "0-7", 4, EVEN) == "0-3"


def test_a_whole_small_cache_goes_before_a_part_of_a_large_one() -> None:
    """Caches have six CPUs on average. Six CPUs are a whole cache of four and two of the larger one; five are too few
    to look for whole caches, and come from one that has them."""
    caches = machine((8, 4))
    assert picked(caches, "2-11", 6, UNCORE) == "2-3,8-11"
    assert picked(caches, "2-11", 5, UNCORE) == "2-6"


def test_the_last_socket_has_no_more_than_is_needed() -> None:
    """With align-by-socket ten CPUs need two of three sockets: the fullest, and of the others the one they fill."""
    sockets = CPUTopology(from_synthetic("pack:3 numa:1 core:10 pu:1"))
    assert picked(sockets, "0-7,10-15,20-22", 10, BY_SOCKET) == "0-6,20-22"


@pytest.mark.parametrize("frees", [(2, 2, 3, 6, 10, 4, 19, 14, 1), (7, 17, 9, 15, 11, 1, 0, 15, 4), (1, 0, 1), (4, 4)])
def test_balance_is_the_rounded_standard_deviation(frees: tuple[int, ...]) -> None:
    """A score is the deviation in thousandths, from a mean in thousandths, both rounded to the nearest."""
    nearest = Decimal(1)
    mean = (1000 * Decimal(sum(frees)) / len(frees)).quantize(nearest, ROUND_HALF_UP)
    deviation = (sum(((1000 * free - mean) ** 2 for free in frees), Decimal(0)) / len(frees)).sqrt()
    score = Balance(frees, 0).score(sum(free * free for free in frees))
    assert score == int(deviation.quantize(nearest, ROUND_HALF_UP))
