"""Merges of a few hints that one can follow with a pencil."""

from __future__ import annotations

from itertools import product

from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.topology.fold import reachable
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.topology.merge import Merger

FOUR = CPUTopology(from_synthetic("pack:2 numa:2 core:4 pu:1"))
"""Nodes 0 and 1 are on socket 0, 2 and 3 on socket 1; four CPUs each."""


def merged(policy: str, *lists: list[Hint]) -> Hint:
    nodes = [(node, None) for node in range(4)]
    return Merger(policy, nodes).merge([{f"resource-{i}": hints} for i, hints in enumerate(lists)]).hint


def test_too_narrow_is_better_than_too_wide() -> None:
    """No set is preferred by all, and two nodes are the target. One node can be reached and three can: one wins."""
    first = [Hint(0b0011, False), Hint(0b1110, False)]
    second = [Hint(0b1001, False), Hint(0b1110, False)]
    assert merged("best-effort", first, second) == Hint(0b0001, False)


def test_sets_of_one_socket_come_first() -> None:
    """With align-by-socket CPUs prefer sets of one socket; among what a plugin prefers as well, such a set wins over a
    lower one that is on two."""
    cpus = cpu_topology_hints(FOUR, FOUR.all_cpus, 0, 6, align_by_socket=True, sockets_first=True)
    plugin = [Hint(0b0101, True), Hint(0b1100, True)]
    nodes = [(node, None) for node in range(4)]
    assert Merger("best-effort", nodes).merge([{"cpu": cpus}, {"plugin": plugin}]).hint == Hint(0b1100, True)
    anywhere = cpu_topology_hints(FOUR, FOUR.all_cpus, 0, 6, align_by_socket=True)
    assert Merger("best-effort", nodes).merge([{"cpu": anywhere}, {"plugin": plugin}]).hint == Hint(0b0101, True)


def test_many_intersections_are_counted_as_few_are_listed() -> None:
    """All pairs of 127 sets are too many to intersect one by one: counting finds the same sets, and never the empty
    one, which no pod can be put on."""
    everything = list(range(1, 1 << 7))
    hints = [Hint(mask, False) for mask in everything]
    found = reachable([hints, hints], (1 << 7) - 1)
    assert found == {a & b for a, b in product(everything, repeat=2)} - {0}


def test_one_node_is_better_than_more_than_wanted() -> None:
    """The first resource needs three nodes at least. What both can have are one node or a group of four: one is
    nearer from below, and below goes before above however near that is."""
    nodes = tuple(range(7))
    first = HintSet(nodes, 3, 0, multis=(0b0001111, 0b1110000))
    second = HintSet(nodes, 1, 0b0000001, multis=(0b0001111,))
    merger = Merger("best-effort", [(node, None) for node in nodes])
    assert merger.merge([{"first": first}, {"second": second}]).hint == Hint(0b0000001, False)
    assert merger.merge([{"first": list(first)}, {"second": list(second)}]).hint == Hint(0b0000001, False)
