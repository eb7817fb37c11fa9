"""Memory that containers hold on NUMA nodes grows and shrinks in place."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import ExclusiveResize, KubeletConfig, Node, Pod, PodslicePolicy
from podslice.config.kubelet import MemoryReservation
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decide import restart
from podslice.node.decision import ResizeDecision
from podslice.values.cpuset import format_bits
from tests.node.resize.helpers import guaranteed, pod

MACHINE = from_synthetic("pack:2 numa:1(memory=10GiB) core:8 pu:2(indexes=pu)")
STICKY = ExclusiveResize(exclusive=True)
FOLLOW = ExclusiveResize(exclusive=True, memory_nodes="follow")
GIB = 1 << 30


def node(resize: ExclusiveResize = STICKY, *, profile: str = "podslice", gates: Any = None, **config: Any) -> Node:
    """Two NUMA nodes of 16 CPUs and 10 GiB each; of node 0, 2 CPUs and 1 GiB are reserved."""
    settings = KubeletConfig(
        reserved_system_cpus="0-1",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
        eviction_hard={},
        feature_gates=gates or {},
        **{"cpu_manager_policy": "static", "topology_manager_policy": "restricted", **config},
    )
    return Node(MACHINE, settings, profile=profile, policy=PodslicePolicy(resize=resize))


def one(cpu: str, memory: str, name: str = "p") -> Pod:
    return pod(guaranteed(cpu, memory), name=name)


def held(here: Node, name: str = "p", container: str = "c0") -> tuple[str, str, float]:
    """Return the container's CPUs, the NUMA nodes of its memory, and GiB."""
    state, uid = here.state, f"uid-{name}"
    (block,) = state.memory.blocks(uid, container)
    cpus = format_bits(state.cpu.assignment(uid, container) or 0)
    return cpus, ",".join(map(str, block.numa_affinity or ())), block.size / GIB


def free(here: Node) -> list[float]:
    ledger = here.state.memory.machine_state
    return [(state.memory_map or {})["memory"].free / GIB for _, state in sorted(ledger.items())]


def resized(here: Node, *sizes: tuple[str, str]) -> ResizeDecision:
    return [here.resize(one(*size)) for size in sizes][-1]


def agrees_after_restart(here: Node) -> None:
    """Check that a kubelet's own check of its files passes, and nothing moves."""
    files = dict(here.files)
    again = Node.of(here.rules, restart(here.rules, here.state).state)
    assert again.state.memory.assignments == here.state.memory.assignments
    assert again.state.memory.machine_state == here.state.memory.machine_state
    assert dict(again.files) == files


@pytest.mark.parametrize(
    ("sizes", "expected", "left"),
    [
        pytest.param([("4", "6Gi")], ("2-5", "0", 6), [3, 10], id="on-its-node"),
        pytest.param([("4", "6Gi"), ("4", "2Gi")], ("2-5", "0", 2), [7, 10], id="and-back"),
        pytest.param([("4", "12Gi")], ("2-5", "0,1", 12), [0, 7], id="on-a-node-that-nobody-uses"),
        pytest.param([("4", "12Gi"), ("4", "2Gi")], ("2-5", "0,1", 2), [7, 10], id="nodes-stay"),
        pytest.param([("8", "6Gi")], ("2-9", "0", 6), [3, 10], id="with-its-cpus"),
        pytest.param([("2", "6Gi")], ("2-3", "0", 6), [3, 10], id="while-cpus-shrink"),
        pytest.param([("8", "1Gi")], ("2-9", "0", 1), [8, 10], id="while-cpus-grow"),
    ],
)
def test_sizes(sizes: list[tuple[str, str]], expected: tuple[str, str, float], left: list[float]) -> None:
    """Memory grows on the nodes it has, else on unused nodes; what it gives back is free."""
    here = node(ExclusiveResize(exclusive=True, below_baseline="allow"), topology_manager_policy="best-effort")
    here.admit(one("4", "2Gi"))
    decision = resized(here, *sizes)
    assert (decision.outcome, decision.message) == ("Allocated", "")
    assert held(here) == expected
    assert free(here) == left
    agrees_after_restart(here)
    here.remove("uid-p")
    assert free(here) == [9, 10]


@pytest.mark.parametrize(
    ("cpus", "memory", "resize", "expected"),
    [
        pytest.param("4", "2Gi", FOLLOW, ("2-5", "0", 2), id="near-its-cpus"),
        pytest.param("4", "9Gi", FOLLOW, ("2-5", "0", 9), id="a-whole-node"),
        pytest.param("4", "11Gi", FOLLOW, ("2-5", "0,1", 11), id="still-needs-both"),
        pytest.param("4", "2Gi", STICKY, ("2-5", "0,1", 2), id="sticky"),
    ],
)
def test_nodes_that_are_left(cpus: str, memory: str, resize: ExclusiveResize, expected: Any) -> None:
    """Memory leaves the nodes it does not need any more only where the policy says so."""
    here = node(resize, topology_manager_policy="best-effort")
    here.admit(one("4", "12Gi"))
    assert held(here)[1:] == ("0,1", 12)
    assert resized(here, (cpus, memory)).outcome == "Allocated"
    assert held(here) == expected
    agrees_after_restart(here)


def test_memory_stays_near_the_cpus() -> None:
    """Of two nodes memory leaves the one that the container has no CPU on."""
    here = node(FOLLOW, topology_manager_policy="none")
    here.admit(one("14", "1Gi", "other"))
    here.admit(one("4", "1Gi"))
    here.remove("uid-other")
    assert held(here) == ("16-19", "0", 1)
    assert resized(here, ("4", "12Gi"), ("4", "3Gi")).outcome == "Allocated"
    assert held(here) == ("16-19", "1", 3)
    agrees_after_restart(here)


def test_a_group_stays_while_others_are_in_it() -> None:
    """All memory of a group of nodes is on the same nodes: none leaves it alone, and none comes to it."""
    here = node(FOLLOW, topology_manager_policy="best-effort")
    here.admit(one("4", "12Gi"))
    here.admit(one("2", "4Gi", "other"))
    assert held(here, "other")[1:] == ("0,1", 4)
    assert resized(here, ("4", "2Gi")).outcome == "Allocated"
    assert held(here) == ("2-5", "0,1", 2)
    agrees_after_restart(here)


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_others_on_the_node_keep_a_group_from_growing(policy: str) -> None:
    """Memory that shares its node with another pod's cannot spread over a second one, until that pod leaves."""
    here = node(topology_manager_policy=policy)
    here.admit(one("4", "2Gi"))
    here.admit(one("2", "1Gi", "other"))
    assert held(here, "other")[1:] == ("0", 1)
    before = here.files
    assert resized(here, ("4", "12Gi")).outcome == "Deferred"
    assert here.files == before
    here.remove("uid-other")
    assert [one.outcome for one in here.retry_resizes("pods_removed")] == ["Allocated"]
    assert held(here) == ("2-5", "0,1", 12)


def test_a_used_node_does_not_join() -> None:
    """A node that others use does not come to a group."""
    here = node(topology_manager_policy="best-effort")
    here.admit(one("4", "7Gi"))
    here.admit(one("10", "2Gi", "other-0"))
    here.admit(one("2", "1Gi", "other-1"))
    assert [held(here, name)[1] for name in ("other-0", "other-1")] == ["0", "1"]
    here.remove("uid-other-0")
    assert resized(here, ("4", "12Gi")).outcome == "Deferred"
    assert held(here) == ("2-5", "0", 7)


@pytest.mark.parametrize(
    ("policy", "outcome", "expected"),
    [("restricted", "Deferred", ("2-5", "0", 2)), ("best-effort", "Allocated", ("2-5,16-19", "0", 3))],
)
def test_one_verdict_about_cpus_and_memory(policy: str, outcome: str, expected: tuple[str, str, float]) -> None:
    """CPUs that have to go to another node than memory, which stays, are no alignment: `restricted` waits for room on
    memory's node, best effort takes them."""
    here = node(topology_manager_policy=policy)
    here.admit(one("4", "2Gi"))
    here.admit(one("10", "1Gi", "other"))
    assert resized(here, ("8", "3Gi")).outcome == outcome
    assert held(here) == expected
    here.remove("uid-other")
    if outcome == "Deferred":
        assert [one.outcome for one in here.retry_resizes("pods_removed")] == ["Allocated"]
        assert held(here) == ("2-9", "0", 3)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_both_go_to_a_second_node_together(scope: str) -> None:
    """A container that needs two nodes when it is alone gets two: of CPUs and of memory."""
    here = node(topology_manager_scope=scope)
    here.admit(one("4", "2Gi"))
    assert resized(here, ("20", "12Gi")).outcome == "Allocated"
    assert held(here) == ("2-21", "0,1", 12)
    agrees_after_restart(here)


@pytest.mark.parametrize(
    ("size", "policy", "detail"),
    [
        (("4", "20Gi"), "best-effort", "memory"),
        (("20", "2Gi"), "restricted", "topology"),
        (("4", "12Gi"), "single-numa-node", "topology"),
    ],
)
def test_never(size: tuple[str, str], policy: str, detail: str) -> None:
    """A resize that no departure would make possible is Infeasible, and changes no byte."""
    here = node(topology_manager_policy=policy)
    here.admit(one("4", "2Gi"))
    before = here.files
    decision = resized(here, size)
    assert (decision.outcome, decision.detail) == ("Infeasible", detail)
    assert here.files == before


def test_containers_give_and_take() -> None:
    """One container gets the memory that another frees in the same resize."""
    here = node(topology_manager_policy="single-numa-node")
    here.admit(pod(guaranteed("2", "6Gi"), guaranteed("2", "2Gi")))
    assert here.resize(pod(guaranteed("2", "1Gi"), guaranteed("2", "8Gi"))).outcome == "Allocated"
    assert [held(here, container=name)[2] for name in ("c0", "c1")] == [1, 8]
    assert free(here) == [0, 10]
    agrees_after_restart(here)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_containers_that_grow_together(scope: str) -> None:
    """Two containers that fit one by one but not together wait."""
    here = node(topology_manager_policy="best-effort", topology_manager_scope=scope)
    here.admit(pod(guaranteed("2", "2Gi"), guaranteed("2", "2Gi")))
    here.admit(one("2", "1Gi", "other"))
    before = here.files
    assert here.resize(pod(guaranteed("2", "5Gi"), guaranteed("2", "5Gi"))).outcome == "Infeasible"
    assert here.resize(pod(guaranteed("2", "4Gi"), guaranteed("2", "5Gi"))).outcome == "Deferred"
    assert here.files == before
    here.remove("uid-other")
    assert [one.outcome for one in here.retry_resizes("pods_removed")] == ["Allocated"]
    assert free(here) == [0, 10]


def test_memory_without_exclusive_cpus() -> None:
    """A Guaranteed container on shared CPUs holds memory too, and leaves its highest node first."""
    here = node(FOLLOW, topology_manager_policy="best-effort")
    here.admit(one("1500m", "2Gi"))
    assert resized(here, ("1500m", "12Gi")).outcome == "Allocated"
    assert resized(here, ("1500m", "3Gi")).outcome == "Allocated"
    assert held(here) == ("", "0", 3)


@pytest.mark.parametrize(("profile", "expected"), [("podslice", 6), ("kubelet-1.36", 2)])
def test_the_gate_will_do(profile: str, expected: int) -> None:
    """With upstream's gate profile podslice resizes memory, and profile kubelet-1.36 grants and leaves the blocks."""
    here = node(
        ExclusiveResize(),
        profile=profile,
        gates={"InPlacePodVerticalScalingExclusiveMemory": True},
        topology_manager_policy="best-effort",
    )
    here.admit(one("4", "2Gi"))
    assert resized(here, ("4", "6Gi")).outcome == "Allocated"
    assert held(here) == ("2-5", "0", expected)
    assert resized(here, ("6", "6Gi")).detail == "guaranteed_pod_cpu_manager_static_policy"


def test_without_leave() -> None:
    """Without gate and policy the answer is a kubelet's."""
    here = node(ExclusiveResize())
    here.admit(one("4", "2Gi"))
    decision = resized(here, ("4", "6Gi"))
    assert (decision.outcome, decision.detail) == ("Infeasible", "guaranteed_pod_memory_manager_static_policy")


def test_a_policy_without_a_static_cpu_manager() -> None:
    """Whole and other amounts are the same if no container owns CPUs."""
    here = node(cpu_manager_policy="none")
    here.admit(one("4", "2Gi"))
    assert resized(here, ("4500m", "3Gi")).outcome == "Allocated"
    assert held(here) == ("", "0", 3)


# Pods as a whole


def pod_node(resize: ExclusiveResize = STICKY, **config: Any) -> Node:
    gates = {"PodLevelResourceManagers": True}
    return node(resize, gates=gates, topology_manager_scope="pod", **config)


def budget(memory: str, slice_: str, cpu: str = "8", name: str = "p") -> Pod:
    """A pod with a budget, one container with a slice of its own, and one that shares the rest."""
    amounts = {"cpu": cpu, "memory": memory}
    return pod(guaranteed("4", slice_), {}, pod_level={"requests": amounts, "limits": dict(amounts)}, name=name)


def shown(here: Node) -> tuple[Any, ...]:
    (whole,) = here.state.memory.pod_assignments["uid-p"]
    parts = [held(here, container=name) for name in ("c0", "c1")]
    assert {nodes for _, nodes, _ in parts} == {",".join(map(str, whole.numa_affinity or ()))}
    return parts[0][1], whole.size / GIB, parts[0][2], parts[1][2]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([("6Gi", "1Gi")], ("0", 6, 1, 5), id="all-new-is-shared"),
        pytest.param([("4Gi", "3Gi")], ("0", 4, 3, 1), id="a-slice-grows-in-it"),
        pytest.param([("8Gi", "6Gi"), ("3Gi", "1Gi")], ("0", 3, 1, 2), id="shrinks"),
        pytest.param([("12Gi", "1Gi")], ("0,1", 12, 1, 11), id="to-a-second-node"),
        pytest.param([("12Gi", "1Gi"), ("4Gi", "2Gi")], ("0,1", 4, 2, 2), id="nodes-stay"),
        pytest.param([("8Gi", "1Gi", "12")], ("0", 8, 1, 7), id="with-its-cpus"),
    ],
)
def test_pods_as_a_whole(sizes: list[tuple[str, ...]], expected: tuple[Any, ...]) -> None:
    """The pod's memory, its slices and the memory that the others share are resized together."""
    here = pod_node(topology_manager_policy="best-effort")
    here.admit(budget("4Gi", "1Gi"))
    assert shown(here) == ("0", 4, 1, 3)
    for size in sizes:
        decision = here.resize(budget(*size))
        assert (decision.outcome, decision.message) == ("Allocated", "")
    assert shown(here) == expected
    agrees_after_restart(here)
    here.remove("uid-p")
    assert free(here) == [9, 10]


def test_a_pod_leaves_a_node() -> None:
    """With the policy's leave a pod gives a node back, and its containers' slices go along."""
    here = pod_node(FOLLOW, topology_manager_policy="best-effort")
    here.admit(budget("4Gi", "1Gi"))
    assert here.resize(budget("12Gi", "2Gi")).outcome == "Allocated"
    assert here.resize(budget("5Gi", "2Gi")).outcome == "Allocated"
    assert shown(here) == ("0", 5, 2, 3)
    agrees_after_restart(here)


def test_a_pod_waits() -> None:
    """A pod that has no room to grow keeps what it has until there is some."""
    here = pod_node()
    here.admit(budget("4Gi", "1Gi"))
    here.admit(one("2", "3Gi", "other"))
    before = here.files
    assert here.resize(budget("8Gi", "1Gi")).outcome == "Deferred"
    assert here.files == before
    here.remove("uid-other")
    assert [one.outcome for one in here.retry_resizes("pods_removed")] == ["Allocated"]
    assert shown(here) == ("0", 8, 1, 7)


def test_a_pod_without_shared_memory() -> None:
    """Slices may not use up what the others share."""
    here = pod_node()
    here.admit(budget("4Gi", "1Gi"))
    decision = here.resize(budget("4Gi", "4Gi"))
    assert (decision.outcome, decision.detail) == ("Infeasible", "empty_pod_pool")
    assert "leaving no memory for shared containers" in decision.message
