"""Hints of the CPU Manager for a request, on machines small enough to count on fingers."""

from __future__ import annotations

import pytest

from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import parse_bits

TWO = CPUTopology(from_synthetic("pack:2 numa:1 core:4 pu:1"))
"""NUMA node 0 has CPUs 0-3, node 1 has 4-7."""
FOUR = CPUTopology(from_synthetic("pack:2 numa:2 core:4 pu:1"))
"""Nodes 0 and 1 are on socket 0, 2 and 3 on socket 1; four CPUs each."""


def hints(topology: CPUTopology, free: str, count: int, *, reusable: str = "", align: bool = False) -> list[Hint]:
    found = cpu_topology_hints(topology, parse_bits(free), parse_bits(reusable), count, align_by_socket=align)
    return list(found or [])


def test_every_set_with_enough_free_is_a_hint() -> None:
    """Node 0 has too little free; node 1 is preferred, both together would do but are more than needed."""
    assert hints(TWO, "3-7", 2) == [Hint(0b10, True), Hint(0b11, False)]


def test_no_set_has_enough() -> None:
    """More than is free is not a hint at all."""
    assert hints(TWO, "3-7", 6) == []


def test_preferred_is_what_an_empty_machine_needs() -> None:
    """Four CPUs fit one empty node. None has four free, so both together do, but not as a preferred hint."""
    assert hints(TWO, "1-6", 4) == [Hint(0b11, False)]


@pytest.mark.parametrize(("reusable", "nodes"), [("0-1", 0b01), ("6-7", 0b10)])
def test_reusable_cpus_bind_to_their_node(reusable: str, nodes: int) -> None:
    """CPUs that an init container leaves are to be used: a set without their node is not a hint."""
    assert hints(TWO, "0-7", 2, reusable=reusable) == [Hint(nodes, True), Hint(0b11, False)]


def test_reusable_cpus_on_two_nodes_need_both() -> None:
    """A single node cannot hold what was left on two."""
    assert hints(TWO, "0-7", 2, reusable="3-4") == [Hint(0b11, False)]


def test_align_by_socket_prefers_as_few_sockets_as_needed() -> None:
    """Six CPUs need two nodes, so one socket: only the two nodes of a socket are aligned, but sets of the smallest
    size are preferred as well."""
    preferred = [hint.mask for hint in hints(FOUR, "0-15", 6, align=True) if hint.preferred]
    assert preferred == [0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100]


def test_align_by_socket_counts_a_begun_socket() -> None:
    """Ten CPUs need three nodes, which are on two sockets: all four nodes, on as many sockets, are preferred too."""
    assert all(hint.preferred for hint in hints(FOUR, "0-15", 10, align=True))
    assert [hint for hint in hints(FOUR, "0-15", 10) if not hint.preferred] == [Hint(0b1111, False)]
