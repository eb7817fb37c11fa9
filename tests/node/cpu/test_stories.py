"""The CPUs that containers get on small machines: one sentence each, no recordings."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.cpu.picking.picker import Picker, check_smt_alignment
from podslice.node.topology.hint import Hint
from podslice.node.topology.merge import Merger
from podslice.node.topology.search import SearchBudget
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks
from tests.conftest import make_node, make_pod

TWO_SOCKETS = "pack:2 numa:1 core:4 pu:2(indexes=pu)"
"""CPUs 0-7 and 8-15; 0-1, 2-3, … are cores."""
TWO_CACHES = "pack:1 numa:1 l3:2 core:4 pu:2(indexes=pu)"
"""L3 caches 0-7 and 8-15 on one NUMA node."""
TWO_NODES = "pack:1 numa:2 core:2 pu:2(indexes=pu)"
"""NUMA nodes 0-3 and 4-7 on one socket."""
FOUR_NODES = "pack:2 numa:2 core:2 pu:2(indexes=pu)"
"""NUMA nodes 0-3, 4-7 on one socket, 8-11, 12-15 on the other."""


class Story(NamedTuple):
    """`count` of the `free` CPUs of a machine are the CPUs `picked`, because `why`."""

    why: str
    machine: str
    free: str
    count: int
    picked: str
    options: CPUPolicyOptions = CPUPolicyOptions()


UNCORE = CPUPolicyOptions(prefer_align_cpus_by_uncorecache=True)
EVEN = CPUPolicyOptions(distribute_cpus_across_numa=True)
EVEN_CORES = CPUPolicyOptions(distribute_cpus_across_numa=True, full_pcpus_only=True)
STORIES = (
    Story("an empty machine is filled from its first core", TWO_SOCKETS, "0-15", 2, "0-1"),
    Story("a request as large as a socket gets a whole one", TWO_SOCKETS, "0-15", 8, "0-7"),
    Story("a socket in use is not a whole one", TWO_SOCKETS, "1-15", 8, "8-15"),
    Story("what is left after a whole socket comes as a whole core", TWO_SOCKETS, "1-15", 10, "2-3,8-15"),
    Story("a whole core is better than two halves", TWO_SOCKETS, "1-15", 2, "2-3"),
    Story("a single CPU comes from a core in use", TWO_SOCKETS, "1-15", 1, "1"),
    Story("a whole core elsewhere is better than halves here", TWO_SOCKETS, "0,2,4,6,8-15", 2, "8-9"),
    Story("without whole cores halves will do", TWO_SOCKETS, "0,2,4,6,8,10", 2, "8,10"),
    Story("the socket with the fewest free CPUs is filled first", TWO_SOCKETS, "0-7,10-13", 4, "10-13"),
    Story("and whole cores are taken there first", TWO_SOCKETS, "0-7,12-13", 2, "12-13"),
    Story("an odd request leaves half a core", TWO_SOCKETS, "0-15", 3, "0-2"),
    Story("a whole NUMA node goes before parts of two", TWO_NODES, "1-7", 4, "4-7"),
    Story("a whole socket goes before its NUMA nodes", FOUR_NODES, "1-15", 8, "8-15"),
    Story("the NUMA node beside one in use goes first", FOUR_NODES, "1-15", 4, "4-7"),
    Story("a whole L3 cache is not broken", TWO_CACHES, "2-15", 8, "8-15", UNCORE),
    Story("a request that fits a cache in use stays there", TWO_CACHES, "2-15", 4, "2-5", UNCORE),
    Story("a cache with just enough is enough", TWO_CACHES, "4-15", 4, "4-7", UNCORE),
    Story("one that does not takes part of another", TWO_CACHES, "2-15", 7, "8-14", UNCORE),
    Story("a whole cache, and the rest from the one in use", TWO_CACHES, "2-15", 10, "2-3,8-15", UNCORE),
    Story("nothing is distributed that fits one NUMA node", TWO_NODES, "0-7", 4, "0-3", EVEN),
    Story("what needs two NUMA nodes is taken evenly", TWO_NODES, "0-7", 6, "0-2,4-6", EVEN),
    Story("the remainder goes to the first that has it", TWO_NODES, "0-7", 5, "0-2,4-5", EVEN),
    Story("the last free CPUs are distributed too", TWO_NODES, "0-2,4-6", 6, "0-2,4-6", EVEN),
    Story("whole cores are distributed whole", TWO_NODES, "0-7", 6, "0-5", EVEN_CORES),
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.why)
@pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36], ids=["podslice", "kubelet-1.36"])
def test_which_cpus(story: Story, quirks: Quirks) -> None:
    """Both profiles pick as the story says."""
    picker = Picker(CPUTopology(from_synthetic(story.machine)), story.options, quirks)
    assert format_bits(picker.take(parse_bits(story.free), story.count).cpus) == story.picked


def test_near_comes_first() -> None:
    """A pick with an affinity takes what the NUMA nodes of it have, and only the rest elsewhere."""
    picker = Picker(CPUTopology(from_synthetic(TWO_SOCKETS)), CPUPolicyOptions(), PODSLICE)
    free = parse_bits("0-15")
    assert format_bits(picker.take_near(free, 4, 0b10).cpus) == "8-11"
    assert format_bits(picker.take_near(parse_bits("0-7,12-15"), 6, 0b10).cpus) == "0-1,12-15"
    assert format_bits(picker.take_near(free, 4, None).cpus) == "0-3"


def test_a_pick_says_whether_it_is_proven() -> None:
    """With an empty search budget CPUs are distributed as well, but not proven to be distributed best."""
    topology = CPUTopology(from_synthetic("pack:4 numa:5 core:4 pu:2(indexes=pu)"))
    picker = Picker(topology, EVEN, PODSLICE)
    uneven = topology.all_cpus & ~parse_bits("0-2,9,20-25,33,70-74,100,121-126")
    proven, rough = picker.take(uneven, 90), picker.take(uneven, 90, SearchBudget(0))
    assert (proven.proven, rough.proven) == (True, False)
    assert proven.cpus.bit_count() == rough.cpus.bit_count() == 90


def test_exactly_enough_is_enough_for_a_hint() -> None:
    """A NUMA node that has just as many CPUs as asked is a hint, one with a CPU less is none."""
    topology = CPUTopology(from_synthetic(TWO_SOCKETS))
    hints = cpu_topology_hints(topology, parse_bits("0-3,8-10"), 0, 4, align_by_socket=False)
    assert hints is not None
    assert list(hints) == [Hint(0b01, True), Hint(0b11, False)]
    together = cpu_topology_hints(topology, parse_bits("0-1,8-10"), 0, 5, align_by_socket=False)
    assert list(together or ()) == [Hint(0b11, False)]
    assert cpu_topology_hints(topology, parse_bits("0-1,8-9"), 0, 5, align_by_socket=False) is None


def test_exactly_enough_whole_cores() -> None:
    """`full-pcpus-only` takes the last free cores, refuses half a core and one core too many."""
    check_smt_alignment(4, 4, 2)
    with pytest.raises(AdmissionError, match="not multiple cpus per core = 2"):
        check_smt_alignment(3, 4, 2)
    with pytest.raises(AdmissionError, match="not enough free physical CPUs"):
        check_smt_alignment(6, 4, 2)


def test_no_wish_is_no_affinity() -> None:
    """Under single-numa-node, a pod without requests is admitted and is not bound to all NUMA nodes; under restricted
    all of them are its affinity."""
    nodes = [(0, None), (1, None)]
    assert Merger("single-numa-node", nodes).merge([None]).verdict == (Hint(None, True), True)
    assert Merger("restricted", nodes).merge([None]).verdict == (Hint(0b11, True), True)


def test_init_containers_lend_their_cpus_once() -> None:
    """The first container after an init container gets its CPUs, the second one gets others."""
    node = make_node("pack:1 numa:1(memory=16GB) core:5 pu:2(indexes=pu)")
    assert node.admit(make_pod("p", ("one", "4"), ("two", "4"), init=(("setup", "4", False),))).admitted
    held = node.view.owners["p"]
    assert held["one"] == held["setup"]
    assert not held["two"] & held["one"]


def test_a_restarted_kubelet_forgets_nobody_too_soon() -> None:
    """Until all sources have reported, a pod that was not admitted again keeps its CPUs; afterwards it is gone."""
    kubelet = make_node("pack:1 numa:1(memory=16GB) core:5 pu:2(indexes=pu)").kubelet
    first, second = make_pod("first", ("c", "4")), make_pod("second", ("c", "4"))
    assert [kubelet.admit(pod) for pod in (first, second)] == [None, None]
    cpus = kubelet.manager.cpu.affinity("second", "c")
    kubelet.save()
    kubelet.restart(gone=["second"])
    assert kubelet.admit(first) is None
    assert kubelet.manager.cpu.affinity("second", "c") == cpus
    kubelet.sources_ready()
    kubelet.collect()
    assert kubelet.manager.cpu.affinity("second", "c") == kubelet.manager.cpu.state.default
