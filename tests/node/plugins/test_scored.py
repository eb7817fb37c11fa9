"""Scored best-effort: where no set of NUMA nodes suits all resources, what they get of it decides."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import KubeletConfig, Node, PodslicePolicy, StartError, pod_from_dict
from podslice.advise.explain.explain import explain_each
from podslice.advise.explain.table import to_text
from podslice.config.policy import TopologyRules
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.devices.hints import Coverage
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.merge import Merger
from podslice.node.topology.scored import ScoredMerge
from podslice.values.cpuset import bits_of, format_bits

GPU = "example.com/gpu"
WEIGHTS = {"cpu": 10, "memory": 5, "devices": 3}


def device_node(policy: PodslicePolicy, *, taken: tuple[int, int]) -> Node:
    """Two NUMA nodes of 8 CPUs, one device on node 0, and so many CPUs of the nodes taken."""
    machine = from_synthetic("pack:2 numa:1(memory=64GB) core:9 pu:1")
    devices = inventory_from_data([{"resource": GPU, "devices": [{"id": "g0", "numa": [0]}]}])
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,9", topology_manager_policy="best-effort"
    )
    node = Node(machine, config, devices=devices, policy=policy)
    for number, count in enumerate(taken):
        if count:
            amounts = {"cpu": str(count), "memory": "1Gi"}
            node.admit(asking(f"t{number}", amounts))
    return node


def asking(name: str, amounts: dict[str, str]) -> object:
    """A Guaranteed pod of one container."""
    resources = {"requests": amounts, "limits": amounts}
    return pod_from_dict({"metadata": {"name": name, "uid": name}, "spec": {"containers": [
        {"name": "c", "resources": resources}]}})  # fmt: skip


SCORED = PodslicePolicy(topology=TopologyRules("scored"))
FIRST = PodslicePolicy(topology=TopologyRules("scored", {"cpu": 1000, "devices": 1}))


@pytest.mark.parametrize(
    ("policy", "free", "affinity", "cpus"),
    [
        (PodslicePolicy(), 2, "0", "7-8,10-11"),
        (SCORED, 2, "1", "10-13"),
        (PodslicePolicy(), 3, "0", "6-8,10"),
        (SCORED, 3, "0", "6-8,10"),
        (FIRST, 3, "1", "10-13"),
        (PodslicePolicy(), 0, "0", "10-13"),
        (SCORED, 0, "1", "10-13"),
        (SCORED, 4, "0", "5-8"),
    ],
    ids=["upstream", "scored", "upstream 3", "scored 3", "CPU first", "upstream 0", "scored 0", "all agree"],
)
def test_the_articles_example(policy: PodslicePolicy, free: int, affinity: str, cpus: str) -> None:
    """The NUMA node with the CPUs wins over the one with the device, unless most of the CPUs are beside the device;
    upstream takes the lower node and splits the CPUs."""
    node = device_node(policy, taken=(8 - free, 0))
    decision = node.admit(asking("p", {"cpu": "4", "memory": "1Gi", GPU: "1"}))
    assert decision.admitted
    (container,) = decision.containers
    assert (str(container.affinity), str(container.cpus)) == (affinity, cpus)


def test_only_under_best_effort() -> None:
    """Under any other policy of the Topology Manager the section keeps the node from starting."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted")
    with pytest.raises(StartError, match="has no effect under topologyManagerPolicy restricted"):
        Node(from_synthetic("pack:2 numa:1(memory=64GB) core:4 pu:1"), config, policy=SCORED)


NODES = st.integers(2, 5)
FREE = st.lists(st.integers(0, 8), min_size=5, max_size=5)
DEVICES = st.lists(st.integers(0, 2), min_size=5, max_size=5)


def answers(nodes: int, free: list[int], devices: list[int], cpus: int, wanted: int) -> list[ProviderHints]:
    """Hints of CPUs and of one device resource; every node has 8 CPUs."""
    topology = cpu_topology(from_synthetic(f"pack:{nodes} numa:1 core:8 pu:1"))
    left = bits_of(node * 8 + cpu for node in range(nodes) for cpu in range(free[node]))
    cpu = cpu_topology_hints(topology, left, 0, cpus, align_by_socket=False)
    there = {node: ((1 << devices[node]) - 1) << 4 * node for node in range(nodes)}
    coverage = Coverage(there, tuple(range(nodes)))
    device = coverage.hints(coverage.placed, wanted) if coverage.placed else None
    return [{GPU: device or []}, {"cpu": cpu or []}]


def by_hand(given_: list[ProviderHints], free: list[int], devices: list[int], cpus: int, wanted: int, mask: int,
            weights: dict[str, int]) -> int:  # fmt: skip
    """Return the score of a mask, computed from the counts."""
    nodes = [node for node in range(5) if mask >> node & 1]
    total = 0
    for name, has, need in (("cpu", free, cpus), (GPU, devices, wanted)):
        hints = next(answer[name] for answer in given_ if answer and name in answer)
        if isinstance(hints, HintSet):
            on_hand = min(need, sum(has[node] for node in nodes))
            smallest = min(hints.smallest, len(nodes))
            total += weights["cpu" if name == "cpu" else "devices"] * (
                10**6 * on_hand * smallest // (need * len(nodes))
            )
    return total


@settings(deadline=None, max_examples=150)
@given(NODES, FREE, DEVICES, st.integers(1, 20), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20))
@pytest.mark.slow
def test_the_best_of_all_masks(
    nodes: int, free: list[int], devices: list[int], cpus: int, wanted: int, cpu_weight: int, device_weight: int
) -> None:
    """The mask that is chosen has the highest score of all, by exhaustive search; preferred winners are upstream's; the
    verdict is always positive; the order of providers and a common factor of the weights change nothing."""
    weights = {"cpu": cpu_weight, "devices": device_weight}
    hints = answers(nodes, free, devices, cpus, wanted)
    numa = [(node, None) for node in range(nodes)]
    every = bits_of(range(nodes))
    upstream = Merger("best-effort", numa).merge(hints)
    scored = Merger("best-effort", numa, scored=ScoredMerge(weights, every)).merge(hints)
    assert scored.admitted
    assert scored.hint.preferred == upstream.hint.preferred
    if upstream.hint.preferred:
        assert scored == upstream
        return
    masks = [bits_of(some) for size in range(1, nodes + 1) for some in combinations(range(nodes), size)]
    scores = {mask: by_hand(hints, free, devices, cpus, wanted, mask, weights) for mask in masks}
    if max(scores.values()):
        assert scored.hint.mask is not None
        assert scores[scored.hint.mask] == max(scores.values()), format_bits(scored.hint.mask)
    for other in (
        Merger("best-effort", numa, scored=ScoredMerge(weights, every)).merge(hints[::-1]),
        Merger("best-effort", numa, scored=ScoredMerge({name: 3 * one for name, one in weights.items()}, every)).merge(
            hints
        ),
    ):
        assert other.hint == scored.hint


@settings(deadline=None, max_examples=60)
@given(NODES, FREE, DEVICES, st.integers(1, 20), st.integers(1, 3), st.integers(1, 20))
def test_more_weight_never_takes_away(
    nodes: int, free: list[int], devices: list[int], cpus: int, wanted: int, weight: int
) -> None:
    """Raising a resource's weight never makes the chosen mask worse for it."""
    hints = answers(nodes, free, devices, cpus, wanted)
    every = bits_of(range(nodes))
    numa = [(node, None) for node in range(nodes)]
    found = []
    for mine in (weight, 3 * weight):
        scorer = ScoredMerge({"cpu": mine, "devices": 7}, every)
        mask = Merger("best-effort", numa, scored=scorer).merge(hints).hint.mask
        assert mask is not None
        found.append({one.resource: one.millionths for one in scorer.qualities(hints, mask)}.get("cpu", 0))
    assert found[0] <= found[1]


def test_the_table_that_explain_shows() -> None:
    """The worked example in numbers: 8, 10 and 6.5, what is chosen first, and what upstream takes; where all agree
    there is no table."""
    node = device_node(SCORED, taken=(6, 0))
    (explained,) = explain_each(node, [asking("p", {"cpu": "4", "memory": "1Gi", GPU: "1"})])
    (step,) = explained.explanation.trace.steps
    assert [(str(row.nodes), row.score / 10**6, row.upstream) for row in step.scores] == [
        ("1", 10.0, False),
        ("0", 8.0, True),
        ("0-1", 6.5, False),
    ]
    text = to_text(explained.explanation)
    assert re.search(r"^0 +3 × 1\.00 +10 × 0\.50 +8\.00 +upstream's choice$", text, re.MULTILINE)
    agreed = device_node(SCORED, taken=(4, 0))
    (explained,) = explain_each(agreed, [asking("p", {"cpu": "4", "memory": "1Gi", GPU: "1"})])
    assert "Scores for" not in to_text(explained.explanation)
