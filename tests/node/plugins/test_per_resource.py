"""Scored best-effort with a set of NUMA nodes for each resource (mode `perResource`)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import KubeletConfig, Node, PodslicePolicy
from podslice.advise.explain.explain import explain_each
from podslice.advise.explain.table import to_text
from podslice.config.policy import TopologyRules
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.topology.merge import Merger
from podslice.node.topology.per_resource import Remoteness
from podslice.node.topology.scored import ScoredMerge
from podslice.values.cpuset import bits_of
from tests.node.plugins.test_scored import DEVICES, FREE, GPU, NODES, answers, asking, device_node

APART = PodslicePolicy(topology=TopologyRules("scored", mode="perResource"))


def apart_of(nodes: int, *, far: int) -> dict[int, list[int]]:
    """Distances of nodes that are all as far from each other."""
    return {one: [10 if one == other else far for other in range(nodes)] for one in range(nodes)}


def test_each_resource_where_it_is_best() -> None:
    """In the article's example the CPUs come from the node that has them, the device stays where it is, and both are
    reported; explain names the set of each."""
    node = device_node(APART, taken=(6, 0))
    asked = asking("p", {"cpu": "4", "memory": "1Gi", GPU: "1"})
    (explained,) = explain_each(node, [asked])
    decision = node.admit(asked)
    (container,) = decision.containers
    assert decision.admitted
    assert (str(container.affinity), str(container.cpus), container.devices) == ("1", "10-13", {GPU: ["g0"]})
    assert {name: str(nodes) for name, nodes in container.affinities.items()} == {"cpu": "1", GPU: "0"}
    text = to_text(explained.explanation)
    assert "chosen for cpu" in text
    assert f"chosen for {GPU}" in text


@pytest.mark.parametrize(("mode", "ids"), [("common", ["d0", "d2"]), ("perResource", ["d2", "d3"])])
def test_devices_follow_their_own_set(mode: Any, ids: list[str]) -> None:
    """Two devices come from the node that has both, although the CPUs are elsewhere."""
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,9,18", topology_manager_policy="best-effort"
    )
    placed = [{"id": "d0", "numa": [0]}, {"id": "d2", "numa": [2]}, {"id": "d3", "numa": [2]}]
    node = Node(
        from_synthetic("pack:3 numa:1(memory=64GB) core:9 pu:1"),
        config,
        devices=inventory_from_data([{"resource": GPU, "devices": placed}]),
        policy=PodslicePolicy(topology=TopologyRules("scored", mode=mode)),
    )
    for name in ("t0", "t1", "t2"):
        assert node.admit(asking(name, {"cpu": "6", "memory": "1Gi"})).admitted
    node.remove("t1")
    (container,) = node.admit(asking("p", {"cpu": "7", "memory": "1Gi", GPU: "2"})).containers
    assert (str(container.cpus), container.devices) == ("10-16", {GPU: ids})


@settings(deadline=None, max_examples=100)
@given(NODES, FREE, DEVICES, st.integers(1, 20), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20))
def test_near_machines_give_every_resource_its_best(
    nodes: int, free: list[int], devices: list[int], cpus: int, wanted: int, cpu_weight: int, device_weight: int
) -> None:
    """On machines whose nodes are all as near as a node is to itself, or without distances, each resource has a set
    than which none is better for it; preferred winners are upstream's, and the pod is admitted."""
    hints = answers(nodes, free, devices, cpus, wanted)
    numa = [(node, None) for node in range(nodes)]
    weights, every = {"cpu": cpu_weight, "devices": device_weight}, bits_of(range(nodes))
    masks = [bits_of(some) for size in range(1, nodes + 1) for some in combinations(range(nodes), size)]
    for distances in (apart_of(nodes, far=10), {}):
        scorer = ScoredMerge(weights, every, distances)
        merged = Merger("best-effort", numa, scored=scorer).merge(hints)
        assert merged.admitted
        if merged.hint.preferred:
            assert not merged.parts
            continue
        for name, mask in merged.parts.items():
            worth = {one: {q.resource: q.millionths for q in scorer.qualities(hints, one)}[name] for one in masks}
            assert worth[mask] == max(worth.values())
        assert merged.hint.mask == merged.parts.get("cpu", merged.hint.mask)


@settings(deadline=None, max_examples=100)
@given(NODES, FREE, DEVICES, st.integers(1, 20), st.integers(1, 3), st.integers(1, 20), st.integers(11, 60))
def test_distance_costs(
    nodes: int, free: list[int], devices: list[int], cpus: int, wanted: int, cpu_weight: int, far: int
) -> None:
    """The sets are worth at least what all resources have in the common set, distances counted, whatever the order of
    providers."""
    hints = answers(nodes, free, devices, cpus, wanted)
    numa = [(node, None) for node in range(nodes)]
    weights, every = {"cpu": cpu_weight, "devices": 7}, bits_of(range(nodes))
    distances = apart_of(nodes, far=far)
    remoteness = Remoteness(distances)
    scorer = ScoredMerge(weights, every, distances)
    merged = Merger("best-effort", numa, scored=scorer).merge(hints)
    assert Merger("best-effort", numa, scored=ScoredMerge(weights, every, distances)).merge(hints[::-1]) == merged
    if not merged.parts:
        return
    common = ScoredMerge(weights, every).best(hints, merged.hint.mask, lambda mask: (0, mask))
    assert common is not None

    def value(parts: dict[str, int]) -> int:
        names = list(parts)
        worth = sum(
            one.weight * one.millionths
            for name in names
            for one in scorer.qualities(hints, parts[name])
            if one.resource == name
        )
        heavy = {name: weights["cpu" if name == "cpu" else "devices"] for name in names}
        cost = sum(
            min(heavy[one], heavy[other]) * remoteness.of(parts[one], [parts[other]])[0]
            for one, other in combinations(names, 2)
        )
        return worth - cost

    assert value(dict(merged.parts)) >= value(dict.fromkeys(merged.parts, common))


def test_far_nodes_keep_resources_together() -> None:
    """A resource does not leave the others for a gain that is less than the way."""
    hints = answers(2, [2, 8, 0, 0, 0], [1, 0, 0, 0, 0], 4, 1)
    numa = [(node, None) for node in range(2)]
    for distances, parts in ((apart_of(2, far=10), {GPU: 1, "cpu": 2}), (apart_of(2, far=40), {GPU: 2, "cpu": 2})):
        scorer = ScoredMerge({"cpu": 10, "devices": 3}, 3, distances)
        merged = Merger("best-effort", numa, scored=scorer).merge(hints)
        assert dict(merged.parts) == parts
