"""The choice of victims."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from podslice import Node
from podslice.cluster.model.eviction import Evictable, Eviction, choose_cheapest, find_victims
from podslice.cluster.model.model import ClusterModel
from podslice.node.decide import release, shape_of
from podslice.values.errors import UpstreamDefectError
from tests.cluster.model.drawn import DrawnCluster, admits
from tests.conftest import make_node, make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:4 pu:2"


@pytest.mark.slow
def test_drawn_nodes() -> None:
    """On random nodes: without the victims the pod is admitted, with any one of them back it is not, no pod of the same
    priority leaves, and where there are no victims no set of pods of lower priority would help."""
    helped = hopeless = 0
    for seed in range(12):
        cluster = DrawnCluster(Random(seed), "podslice", nodes=2, fill=7)
        for name, node in cluster.nodes.items():
            running = [Evictable(uid, cluster.r.choice([0, 5, 10]), float(at)) for at, uid in enumerate(node.pods)]
            for _ in range(4):
                pod = cluster.pod()
                if admits(node, pod):
                    continue
                found = find_victims(node.rules, node.state, shape_of(node.rules, pod), running, below=10)
                lower = [one for one in running if one.priority < 10]
                if found is None:
                    hopeless += 1
                    for few in combinations(lower, min(2, len(lower))):
                        assert not admits(without(node, few), pod), (seed, name)
                    continue
                helped += 1
                assert admits(without(node, found), pod)
                assert set(found) <= set(lower)
                for one in found:
                    assert not admits(without(node, [other for other in found if other != one]), pod)
    assert helped > 5
    assert hopeless > 5


def without(node: Node, leaving: object) -> Node:
    state = node.state
    for one in leaving:  # type: ignore[attr-defined]
        try:
            state = release(node.rules, state, one.uid)
        except UpstreamDefectError:
            break
    return Node.of(node.rules, state)


def test_the_cheapest_node() -> None:
    """The node whose most important victim matters least; then the smaller sum, fewer pods, those that began last."""
    low, high = Evictable("low", 1, 5.0), Evictable("high", 7, 1.0)
    assert choose_cheapest([]) is None
    assert choose_cheapest([("a", (high,)), ("b", (low, low, low))]) == Eviction("b", ("low",) * 3)
    assert choose_cheapest([("a", (low, low)), ("b", (low,))]) == Eviction("b", ("low",))
    late = Evictable("late", 1, 9.0)
    assert choose_cheapest([("a", (low,)), ("b", (late,))]) == Eviction("b", ("late",))


def test_room_is_kept() -> None:
    """The node is held for the pod that evicts at once: no other pod gets what its victims leave."""
    node = make_node(MACHINE, topology_manager_policy="single-numa-node")
    other = make_node(MACHINE, topology_manager_policy="single-numa-node")
    for uid, one in (("a", node), ("b", node), ("c", other), ("d", other)):
        one.admit(make_pod(uid, ("c", "5")))
    model = ClusterModel()
    nodes = {"n0": node, "n1": other}
    for name, one in nodes.items():
        model.add_node(name, one.rules, one.state)
    running = {"n0": [Evictable("a", 3), Evictable("b", 3)], "n1": [Evictable("c", 1), Evictable("d", 5)]}
    pod = make_pod("big", ("c", "6"))
    assert model.choose(pod, 0.0) is None
    found = model.preempt(pod, 0.0, states=lambda name: nodes[name].state, running=running.__getitem__, below=4)
    assert found == Eviction("n1", ("c",))
    assert model.filter(pod, ["n1"], 0.0).nodes == []
    other.remove("c")
    model.apply_removal("n1", "c", other.state)
    assert model.filter(make_pod("thief", ("c", "6")), ["n1"], 1.0).nodes == []
    assert model.filter(pod, ["n1"], 1.0).nodes == ["n1"]
    assert model.bind("big", "n1", 1.0).error == ""
