"""Scenarios of Kubernetes' own end-to-end tests for the Memory Manager, by id (M*, MP*)."""

from __future__ import annotations

import pytest

from podslice import Decision, KubeletConfig, Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import resources

GIB = 1 << 30


def node(policy: str = "Static", *, pod_level: bool = False, **config: object) -> Node:
    settings: dict[str, object] = {
        "cpu_manager_policy": "static",
        "reserved_system_cpus": "0",
        "memory_manager_policy": policy,
        "system_reserved": {"memory": "1Gi"},
        "eviction_hard": {},
        "topology_manager_policy": "restricted",
        "feature_gates": {"PodLevelResourceManagers": pod_level},
        **config,
    }
    if policy == "Static":
        settings["reserved_memory"] = tuple(MemoryReservation(i, {"memory": "512Mi"}) for i in (0, 1))
    return Node(from_synthetic("pack:2 numa:1(memory=8GiB) core:4 pu:2"), KubeletConfig(**settings))  # type: ignore[arg-type]


def pod(
    uid: str, *apps: str | None, init: tuple[str | None, ...] = (), sidecars: int = 0, budget: str | None = None
) -> Pod:
    """Containers of one CPU and the given memory each (None: no resources); `budget` is memory for the pod, 4 CPUs."""
    spec: dict[str, object] = {
        "containers": [
            {"name": f"c{i}", "resources": resources("1", memory) if memory else {}} for i, memory in enumerate(apps)
        ],
        "initContainers": [
            {
                "name": f"i{i}",
                "resources": resources("1", memory) if memory else {},
                **({"restartPolicy": "Always"} if i < sidecars else {}),
            }
            for i, memory in enumerate(init)
        ],
    }
    if budget:
        spec["resources"] = resources("4", budget)
    return pod_from_dict({"metadata": {"name": uid, "uid": uid}, "spec": spec})


def blocks(decision: Decision) -> dict[str, int]:
    assert decision.admitted, decision.message
    return {c.name: c.memory.get("memory", 0) for c in decision.containers if c.memory}


def mems(decision: Decision) -> set[str]:
    return {str(c.memory_nodes) for c in decision.containers}


def test_allocatable() -> None:
    """M01: allocatable memory is that of every NUMA node less its reservation."""
    assert {(b.numa_affinity, b.type, b.size) for b in node().kubelet.manager.memory.allocatable} == {
        ((i,), "memory", 8 * GIB - (512 << 20)) for i in (0, 1)
    }


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([pod("p", "1Gi", init=("2Gi",))], id="M02 init and app"),
        pytest.param([pod("p", "1Gi")], id="M03 app"),
        pytest.param([pod("p", "1Gi"), pod("q", "3Gi"), pod("r", "6Gi")], id="M04 several"),
    ],
)
def test_guaranteed_pods_get_one_node(pods: list[Pod]) -> None:
    """M02 to M05: each container is bound to the NUMA node its blocks are on."""
    fresh = node()
    for one in pods:
        decision = fresh.admit(one)
        assert blocks(decision)
        for container in decision.containers:
            held = fresh.kubelet.manager.memory.blocks(decision.uid, container.name)
            assert len(container.memory_nodes) == 1
            assert all(block.numa_affinity == tuple(container.memory_nodes) for block in held)


def test_more_than_any_node_has_free() -> None:
    """M06: a request that fits nowhere is refused; profile kubelet-1.36 words it as the Memory Manager does."""
    fresh = node(topology_manager_policy="none")
    decision = fresh.admit(pod("p", "20Gi"))
    assert not decision.admitted
    assert decision.message == (
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
        "no NUMA nodes with enough memory is available, which is unexpected"
    )


def test_policy_none() -> None:
    """M07 to M09: with policy None there are no blocks and no binding."""
    decision = node("None").admit(pod("p", "1Gi"))
    assert blocks(decision) == {}
    assert mems(decision) == {""}


POD_SCOPE = [
    pytest.param(("1Gi", "1Gi"), (), "4Gi", {"c0": 1, "c1": 1}, id="MP01 gu"),
    pytest.param((None, None), (), "4Gi", {"c0": 4, "c1": 4}, id="MP02 ngu"),
    pytest.param(("1Gi", None), (), "4Gi", {"c0": 1, "c1": 3}, id="MP03 mixed"),
    pytest.param(("1Gi", None), (None,), "4Gi", {"c0": 1, "c1": 3, "i0": 4}, id="MP04 mixed and init"),
]


@pytest.mark.parametrize(("apps", "init", "budget", "expected"), POD_SCOPE)
def test_pod_scope(
    apps: tuple[str | None, ...], init: tuple[str | None, ...], budget: str, expected: dict[str, int]
) -> None:
    """MP01 to MP04: one NUMA node for the pod, blocks for the pod, the remainder for containers that share."""
    fresh = node(pod_level=True, topology_manager_scope="pod")
    decision = fresh.admit(pod("p", *apps, init=init, budget=budget))
    assert {name: size // GIB for name, size in blocks(decision).items()} == expected
    assert len(mems(decision)) == 1
    (block,) = fresh.kubelet.manager.memory.pod_blocks("p")
    assert block.size == 4 * GIB


@pytest.mark.parametrize("scope", ["pod", "container"], ids=["MP05-MP06", "MP17-MP18"])
@pytest.mark.parametrize("memory", ["1Gi", None], ids=["gu", "ngu"])
def test_pod_that_is_not_guaranteed(scope: str, memory: str | None) -> None:
    """A pod-level pod that is not Guaranteed gets no blocks and may use all NUMA nodes."""
    one = pod_from_dict(
        {
            "metadata": {"uid": "p"},
            "spec": {
                "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}},
                "containers": [{"name": "c", "resources": resources("1", memory) if memory else {}}],
            },
        }
    )
    decision = node(pod_level=True, topology_manager_scope=scope).admit(one)
    assert (blocks(decision), mems(decision)) == ({}, {""})


@pytest.mark.parametrize(
    ("policy", "reason", "end"),
    [
        pytest.param(
            "best-effort", "EmptyPodSharedPoolError",
            "requests equals pod budget, leaving no memory for shared containers", id="MP07",
        ),
        pytest.param("restricted", "TopologyAffinityError", "under pod-scope topology manager", id="MP08"),
    ],
)  # fmt: skip
def test_empty_shared_pool(policy: str, reason: str, end: str) -> None:
    """MP07, MP08: exclusive containers that use the whole memory budget leave nothing for the others."""
    fresh = node(
        pod_level=True, topology_manager_scope="pod", topology_manager_policy=policy, cpu_manager_policy="none",
        reserved_system_cpus="",
    )  # fmt: skip
    decision = fresh.admit(pod("p", "2Gi", "2Gi", None, budget="4Gi"))
    assert decision.reason == reason
    assert decision.message.endswith(end)


@pytest.mark.parametrize("apps", [("3Gi", "3Gi"), ("2Gi", None)], ids=["MP09", "MP10-MP11"])
def test_memory_comes_back(apps: tuple[str | None, ...]) -> None:
    """MP09 to MP11: the budget stays booked while the pod lives and is free for the next one after it."""
    fresh = node(pod_level=True, topology_manager_scope="pod")
    nodes = []
    for uid in ("p", "q"):
        decision = fresh.admit(pod(uid, *apps, budget="6Gi"))
        nodes.append(mems(decision))
        booked = sum(
            ledger.memory_map["memory"].reserved for ledger in fresh.kubelet.manager.memory.machine_state.values()
        )  # type: ignore[index]
        assert booked == 6 * GIB
        fresh.remove(uid)
    assert nodes[0] == nodes[1]


def test_two_pods_of_half_the_node() -> None:
    """MP12: two pods of one NUMA node's memory each, with many sharing containers, both fit."""
    fresh = node(pod_level=True, topology_manager_scope="pod")
    decisions = [fresh.admit(pod(uid, None, None, None, None, budget="7Gi")) for uid in ("p", "q")]
    assert [d.admitted for d in decisions] == [True, True]
    assert mems(decisions[0]) != mems(decisions[1])


@pytest.mark.parametrize(
    ("apps", "init", "budget", "expected"),
    [
        pytest.param(("1Gi", "1Gi"), (), "4Gi", {"c0", "c1"}, id="MP13 gu"),
        pytest.param((None, None), (), "4Gi", set(), id="MP14 ngu"),
        pytest.param(("1Gi", None), (), "4Gi", {"c0"}, id="MP15 mixed"),
        pytest.param(("1Gi", None), ("1Gi",), "4Gi", {"c0", "i0"}, id="MP16 mixed and init"),
        pytest.param(("2Gi", "2Gi"), (), "4Gi", {"c0", "c1"}, id="MP19 sum equals budget"),
    ],
)
def test_container_scope(
    apps: tuple[str | None, ...], init: tuple[str | None, ...], budget: str, expected: set[str]
) -> None:
    """MP13 to MP16, MP19: Guaranteed containers get blocks, the others none."""
    decision = node(pod_level=True).admit(pod("p", *apps, init=init, budget=budget))
    assert set(blocks(decision)) == expected


@pytest.mark.parametrize("memory", ["1Gi", None], ids=["MP20", "MP21"])
def test_gate_off(memory: str | None) -> None:
    """With the gate off a pod-level pod has no blocks and no binding."""
    decision = node().admit(pod("p", memory, budget="4Gi"))
    assert (blocks(decision), mems(decision)) == ({}, {""})
