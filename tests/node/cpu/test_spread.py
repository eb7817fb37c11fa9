"""`distribute-cpus-across-cores`: one CPU of every core before a second one of any, however siblings are numbered."""

from __future__ import annotations

import pytest

from podslice.machine.gallery import load_gallery
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.quirks import KUBELET_1_36, PODSLICE

SPREAD = CPUPolicyOptions(distribute_cpus_across_cores=True)
POWER = CPUTopology(load_gallery("power10-s1022-smt8"))
LINUX = CPUTopology(load_gallery("xeon-6338-2s"))


@pytest.mark.parametrize(
    ("topology", "taken", "count", "podslice", "upstream"),
    [
        pytest.param(POWER, "0-7", 4, "8,16,24,32", "8-11", id="siblings-adjacent"),
        pytest.param(LINUX, "0,64", 4, "1-4", "1-4", id="siblings-far-apart"),
        pytest.param(LINUX, "0-30,64,66-127", 2, "31,65", "31,65", id="a-core-in-part"),
    ],
)
def test_cores(topology: CPUTopology, taken: str, count: int, podslice: str, upstream: str) -> None:
    """CPUs land on as many cores as there are; a kubelet goes by ids, which says nothing about cores."""
    free = topology.all_cpus & ~parse_bits(taken)
    for quirks, expected in ((PODSLICE, podslice), (KUBELET_1_36, upstream)):
        assert format_bits(Picker(topology, SPREAD, quirks).take(free, count).cpus) == expected


@pytest.mark.parametrize(
    "shape", ["pack:2 numa:2 core:3 pu:4", "pack:1 numa:2 core:4 pu:2", "pack:2 numa:1 core:4 pu:1"]
)
def test_no_core_gives_two_before_all_gave_one(shape: str) -> None:
    """Whatever the number of CPUs, the cores of a socket give equally many, one more or less."""
    topology = CPUTopology(from_synthetic(shape))
    reserved = topology.cores[0]
    free = topology.all_cpus & ~reserved
    for count in range(1, min(free.bit_count(), topology.smallest_numa_node - 1) + 1):
        cpus = Picker(topology, SPREAD, PODSLICE).take(free, count).cpus
        assert cpus.bit_count() == count
        socket = next(socket for socket in topology.sockets.values() if socket & cpus)
        shares = [(core & cpus).bit_count() for core in topology.cores.values() if core & socket & ~reserved]
        assert sum(shares) == count
        assert max(shares) - min(shares) <= 1
