"""Scenarios of Kubernetes' own end-to-end tests for the Topology Manager, by id (T*)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import Decision, KubeletConfig, Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import Machine, NUMANode
from podslice.machine.readers.synthetic import from_synthetic

NIC = "example.com/nic"
DEVICES = inventory_from_data(
    [{"resource": NIC, "devices": [{"id": f"nic-{node}-{i}", "numa": [node]} for node in (0, 1) for i in range(2)]}]
)
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def node(policy: str = "single-numa-node", scope: str = "container", **config: Any) -> Node:
    """Two NUMA nodes of 8 CPUs, CPU 0 reserved, two devices each."""
    settings = {
        "cpu_manager_policy": "static",
        "reserved_system_cpus": "0",
        "topology_manager_policy": policy,
        "topology_manager_scope": scope,
        "eviction_hard": {},
        **config,
    }
    return Node(from_synthetic("pack:2 numa:1(memory=8GiB) core:4 pu:2"), KubeletConfig(**settings), devices=DEVICES)


def container(name: str, cpus: int, nics: int = 0, *, sidecar: bool = False) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "100Mi", **({NIC: str(nics)} if nics else {})}
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **policy}


def pod(uid: str, *apps: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    return pod_from_dict(
        {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": list(apps), "initContainers": list(init)}}
    )


def aligned(decision: Decision) -> bool:
    """CPUs and devices of every container are on one NUMA node."""
    for one in decision.containers:
        nodes = set(one.numa_nodes) if one.exclusive else set()
        nodes |= {int(device.split("-")[1]) for ids in one.devices.values() for device in ids}
        if len(nodes) > 1:
            return False
    return decision.admitted


@pytest.mark.parametrize("options", [{}, {"max-allowable-numa-nodes": "8"}], ids=["T01", "T06"])
@pytest.mark.parametrize("policy", POLICIES)
def test_cpu_results_under_every_policy(policy: str, options: dict[str, str]) -> None:
    """T01, T06: single and several Guaranteed pods and containers get their CPUs under each policy, others share."""
    fresh = node(policy, topology_manager_policy_options=options)
    shared = pod_from_dict({"metadata": {"uid": "ngu"}, "spec": {"containers": [{"name": "c"}]}})
    decisions = [
        fresh.admit(shared),
        fresh.admit(pod("one", container("c", 1))),
        fresh.admit(pod("two", container("c", 2))),
        fresh.admit(pod("multi", container("c1", 1), container("c2", 2))),
    ]
    assert [[len(c.cpus) for c in d.containers if c.exclusive] for d in decisions] == [[], [1], [2], [1, 2]]
    owned = [c.cpus for d in decisions for c in d.containers if c.exclusive]
    assert len({cpu for cpus in owned for cpu in cpus}) == 6


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([pod("p", container("c", 1, 1))], id="one core and a device"),
        pytest.param([pod("p", container("c", 2, 1))], id="two cores and a device"),
        pytest.param([pod("p", container("c", 8, 1))], id="a whole NUMA node"),
        pytest.param([pod("p", container("c", 4, 2)), pod("q", container("c", 4, 2))], id="two pods"),
        pytest.param([pod("p", container("a", 2, 1), container("b", 2, 1))], id="two containers"),
        pytest.param([pod("p", container("a", 2, 1), init=(container("s", 2, 1, sidecar=True),))], id="sidecar"),
    ],
)
def test_container_scope_aligns(pods: list[Pod]) -> None:
    """T02: under single-numa-node CPUs and devices of each container are on one NUMA node."""
    fresh = node()
    assert all(aligned(fresh.admit(one)) for one in pods)


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(pod("p", container("c", 9, 1)), id="container"),
        pytest.param(pod("p", container("c", 1), init=(container("s", 9, 1, sidecar=True),)), id="sidecar"),
        pytest.param(
            pod("p", container("c", 1), init=(container("s1", 1, sidecar=True), container("s2", 9, sidecar=True))),
            id="second sidecar",
        ),
    ],
)
def test_beyond_one_node_is_refused(refused: Pod) -> None:
    """T03: one core more than a NUMA node has is refused, and nothing is left behind."""
    fresh = node()
    before = dict(fresh.files)
    assert fresh.admit(refused).reason == "TopologyAffinityError"
    assert dict(fresh.files) == before


@pytest.mark.parametrize(
    ("pods", "verdicts"),
    [
        pytest.param([pod("p", container("a", 3, 1), container("b", 3, 1))], [True], id="two containers"),
        pytest.param([pod("p", container("a", 5), container("b", 5))], [False], id="sum beyond a node"),
        pytest.param(
            [pod("p", container("a", 5)), pod("q", container("a", 5)), pod("r", container("a", 5))],
            [True, True, False],
            id="two pods on two nodes",
        ),
        pytest.param([pod("p", container("a", 3), init=(container("s", 3, sidecar=True),))], [True], id="sidecar"),
        pytest.param([pod("p", container("a", 5), init=(container("s", 5, sidecar=True),))], [False], id="sidecar sum"),
    ],
)
def test_pod_scope(pods: list[Pod], verdicts: list[bool]) -> None:
    """T04: in pod scope the whole pod is on one NUMA node or refused."""
    fresh = node(scope="pod")
    decisions = [fresh.admit(one) for one in pods]
    assert [d.admitted for d in decisions] == verdicts
    for decision in decisions:
        assert len({str(c.numa_nodes) for c in decision.containers if c.exclusive}) <= 1


def test_prefer_closest_numa_nodes() -> None:
    """T05: pods that need two NUMA nodes get the nearest pairs, and the last one a far pair if that is all."""
    rows = [(10, 12, 30, 31), (12, 10, 31, 30), (30, 31, 10, 12), (31, 30, 12, 10)]
    plain = from_synthetic("pack:4 numa:1(memory=8GiB) core:4 pu:1")
    machine = Machine(
        nodes=tuple(NUMANode(n.id, n.memory, n.hugepages, rows[i], n.cores) for i, n in enumerate(plain.nodes))
    )
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"distribute-cpus-across-numa": "true"},
        reserved_system_cpus="0,4,8,12",
        topology_manager_policy="best-effort",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
        eviction_hard={},
    )
    fresh = Node(machine, config)
    near = [fresh.admit(pod(uid, container("c", 6))).containers[0].numa_nodes for uid in ("p", "q")]
    assert {str(nodes) for nodes in near} == {"0-1", "2-3"}
    fresh.remove("p")
    fresh.remove("q")
    assert fresh.admit(pod("x", container("c", 2))).admitted
    assert fresh.admit(pod("y", container("c", 6))).containers[0].affinity is not None
    assert fresh.admit(pod("z", container("c", 4))).admitted
