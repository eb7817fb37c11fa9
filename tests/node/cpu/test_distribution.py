"""The bounded search for NUMA nodes to distribute CPUs over finds what scoring every combination finds."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.balance import Balance, Distribution
from podslice.node.cpu.picking.bounded import BoundedSearch
from podslice.node.cpu.picking.combinations import Combinations, overwrite_by_next
from podslice.node.cpu.picking.distribute import Distributor
from podslice.node.cpu.picking.packed import Accumulator, Packer
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.errors import UpstreamDefectError
from podslice.values.quirks import KUBELET_1_36, PODSLICE

SHAPES = ("pack:2 numa:4 core:4 pu:2", "pack:10 numa:1 core:3 pu:2", "pack:2 numa:3 core:16 pu:2", "numa:9 core:2 pu:1")


def both_searches(topology: CPUTopology, available: Bits, count: int, group: int) -> None:
    work = Accumulator(Packer(topology, PODSLICE), available, count)
    search = Combinations(work, Distribution(count, group), PODSLICE, SearchBudget(1 << 62))
    frees = [search.free[node] for node in search.numas]
    for size in range(1, len(frees) + 1):
        bounded = BoundedSearch(frees, size, search.deal, search.balance, search.search_budget).run()
        assert bounded == search._walk(size), (frees, size, count, group)


def fragmented(topology: CPUTopology, random: Random) -> Bits:
    usual = random.random()
    available = 0
    for cpus in topology.numa_nodes.values():
        share = random.choice([usual, random.random(), 1])
        available |= bits_of(cpu for cpu in iter_bits(cpus) if random.random() < share)
    return available


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_random_machines(shape: str) -> None:
    """In any state of up to ten NUMA nodes, and for groups of one and two CPUs, both searches agree."""
    topology = CPUTopology(from_synthetic(shape))
    for seed in range(80):
        random = Random(seed)
        available = fragmented(topology, random)
        group = random.choice([1, 2])
        count = random.randint(1, max(1, available.bit_count())) // group * group
        if available and count:
            both_searches(topology, available, count, group)


def test_every_state_of_four_nodes() -> None:
    """For every number of free CPUs on four nodes of three CPUs, and every request, both searches agree."""
    topology = CPUTopology(from_synthetic("numa:4 core:3 pu:1"))
    for frees in product(range(4), repeat=4):
        available = bits_of(node * 3 + cpu for node, free in enumerate(frees) for cpu in range(free))
        for count in range(1, available.bit_count() + 1):
            both_searches(topology, available, count, 1)


def test_the_next_combination_overwrites_a_perfect_one() -> None:
    """A remembered combination reads as its successor exactly where the two share storage upstream
    (cpu-topology 4.8)."""
    assert overwrite_by_next((0, 1, 2, 3), 8) == (0, 1, 2, 4)
    assert overwrite_by_next((0, 1, 2, 7), 8) == (0, 1, 2, 7)
    assert overwrite_by_next((0, 1, 2), 8) == (0, 1, 2)


def test_many_nodes_end_soon() -> None:
    """64 NUMA nodes, 10**18 combinations, take a bounded number of steps and give the right number of CPUs."""
    topology = CPUTopology(from_synthetic("pack:2 numa:32 core:4 pu:2"))
    random = Random(3)
    for quirks in (KUBELET_1_36, PODSLICE):
        available = fragmented(topology, random)
        for count in (7, 64, available.bit_count() // 2, available.bit_count()):
            pick = Distributor(Packer(topology, quirks), 1).take(available, count)
            assert pick.cpus.bit_count() == count


def test_an_ended_search_still_answers() -> None:
    """A search out of steps takes the fullest nodes, which can hold the request."""
    frees = [5, 1, 4, 8, 7]
    found = BoundedSearch(frees, 2, Distribution(10, 1), Balance(frees, 10), SearchBudget(0)).run()
    assert found is not None
    assert found[0] == (3, 4)


def test_too_many_combinations_count_as_endless() -> None:
    """Profile `kubelet-1.36` reports a defect where upstream would score 10**18 combinations one by one."""
    topology = CPUTopology(from_synthetic("pack:2 numa:32 core:4 pu:2"))
    work = Accumulator(Packer(topology, KUBELET_1_36), topology.all_cpus, 256)
    search = Combinations(work, Distribution(256, 2), KUBELET_1_36, SearchBudget())
    with pytest.raises(UpstreamDefectError, match="combinations of 32 NUMA nodes"):
        search._walk(32)
