"""Traces say what happened, with stable codes, and recording changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podslice import Node, Pod
from podslice.core.explain.codes import REFUSALS
from podslice.core.explain.explain import Explanation, explain
from podslice.core.explain.fork import fork
from podslice.core.explain.record import recording
from podslice.core.machine.devices import inventory_from_data
from podslice.core.pod.defaults import default_pod
from podslice.render.explanation import to_text
from tests.conftest import make_node, make_pod
from tests.explain.random_nodes import refusals

TWO_NODES = "pack:1 numa:2(memory=8GB) core:4 pu:2"


def explained(node: Node, pod: Pod, *, fixes: bool = False) -> Explanation:
    return explain(node.kubelet, pod, fixes=fixes)


def test_trace_of_an_admitted_pod() -> None:
    """Requests and their source, eligibility, hints as NUMA sets, the merge, picks in whole cores, and the writes."""
    node = make_node(TWO_NODES, topology_manager_policy="single-numa-node")
    answer = explained(node, make_pod("db", ("main", "4"), ("helper", "500m"), ("idle", None)))
    assert answer.trace.qos == "Burstable"
    assert [facts.eligibility for facts in answer.trace.containers] == ["not-guaranteed"] * 3
    answer = explained(node, make_pod("db", ("main", "4"), ("helper", "500m")))
    trace = answer.trace
    assert [(facts.name, facts.eligibility, facts.exclusive_cpus) for facts in trace.containers] == [
        ("main", "exclusive", 4),
        ("helper", "fraction", 0),
    ]
    assert (trace.containers[0].requested[0].amount, trace.containers[0].requested[0].source) == (
        "4",
        "requests = limits",
    )
    step = trace.steps[0]
    assert [(a.provider, [(str(h.nodes), h.preferred) for h in a.hints or ()]) for a in step.answers] == [
        ("cpu", [("0", True), ("1", True), ("0-1", False)])
    ]
    assert [str(nodes) for nodes in step.common] == ["0", "1"]
    assert (str(step.nodes), step.preferred, step.admitted) == ("0", True, True)
    assert [row.verdict for row in step.candidates] == ["fits", "fits", "wide-single"]
    assert [(unit.what, str(unit.cpus)) for unit in trace.picks[0].order] == [("core", "2-3"), ("core", "4-5")]
    writes = {(write.where, write.owner): write.value for write in trace.writes}
    assert writes["cpu_manager_state entries", "db/main"] == "2-5"
    assert writes["cpu_manager_state defaultCpuSet", "node"] == "0-1,6-15"
    assert writes["cpuset.cpus", "helper"] == "0-1,6-15"
    assert "db" not in node.kubelet.active


REFUSED: dict[str, tuple[dict[str, Any], list[Pod], Pod]] = {
    "cpu-short": ({}, [make_pod("a", ("c", "9"))], make_pod("x", ("c", "8"))),
    "cpu-too-big": ({"topology_manager_policy": "single-numa-node"}, [], make_pod("x", ("c", "9"))),
    "cpu-scattered": ({}, [make_pod("a", ("c", "5")), make_pod("b", ("c", "5"))], make_pod("x", ("c", "4"))),
    "smt-fraction": ({"cpu_manager_policy_options": {"full-pcpus-only": "true"}}, [], make_pod("x", ("c", "3"))),
    "smt-short": (
        {"cpu_manager_policy_options": {"full-pcpus-only": "true"}, "topology_manager_policy": "none"},
        [make_pod("a", ("c", "14"))],
        make_pod("x", ("c", "2")),
    ),
    "node-total": ({}, [make_pod("a", ("c", "8500m"))], make_pod("x", ("c", "7"))),
    "pod-pool-empty": (
        {"feature_gates": {"PodLevelResourceManagers": True}, "topology_manager_scope": "pod"},
        [],
        make_pod("x", ("c", "4"), ("d", None), budget="4", memory="1Gi"),
    ),
    "too-many-pods": ({"max_pods": 1}, [make_pod("a", ("c", "1"))], make_pod("x", ("c", "1"))),
}


@pytest.mark.parametrize("code", REFUSED)
def test_refusal_codes(code: str) -> None:
    """Each cause has its own stable code beside upstream's reason."""
    config, running, pod = REFUSED[code]
    node = make_node(TWO_NODES if code != "pod-pool-empty" else "pack:1 numa:2(memory=32GB) core:4 pu:2", **config)
    for other in running:
        assert node.admit(other).admitted
    trace = explained(node, pod).trace
    assert not trace.admitted
    if code == "pod-pool-empty":
        assert trace.code in ("pod-pool-empty", "cpu-scattered")
    else:
        assert trace.code == code


def test_device_and_cpu_apart() -> None:
    """Free CPUs on one node and free devices on the other: no common set, and the table shows both numbers."""
    from podslice import KubeletConfig
    from podslice.core.machine.synthetic import from_synthetic
    from podslice.core.pod.spec import pod_from_dict

    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        eviction_hard={},
    )
    devices = inventory_from_data([{"resource": "example.com/gpu", "devices": [{"id": "gpu-0", "numa": [0]}]}])
    node = Node(from_synthetic(TWO_NODES), config, devices=devices)
    assert node.admit(make_pod("a", ("c", "6"))).admitted
    amounts = {"cpu": "4", "memory": "1Gi", "example.com/gpu": "1"}
    pod = pod_from_dict(
        {
            "metadata": {"name": "x", "uid": "x"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}]},
        }
    )
    answer = explained(node, pod, fixes=True)
    assert answer.trace.code == "no-common-set"
    first, second = answer.trace.steps[0].candidates[:2]
    assert [(cell.resource, cell.need, cell.free, cell.verdict) for cell in first.cells] == [
        ("cpu", 4, 1, "short"),
        ("example.com/gpu", 1, 1, "fits"),
    ]
    assert [cell.verdict for cell in second.cells] == ["fits", "small"]
    assert {"shrink", "move-pods", "evict-pods", "empty-node"} <= {fix.code for fix in answer.fixes}
    assert any("NUMA 0: cpu needs 4, 1 free" in sentence for sentence in answer.story)


def test_huge_pages_elsewhere_than_memory() -> None:
    """Memory and huge pages are taken together: what lacks is named, what would fit by itself is said to."""
    from podslice import KubeletConfig
    from podslice.core.config.kubelet import MemoryReservation
    from podslice.core.machine.model import HugePages
    from podslice.core.machine.synthetic import from_synthetic
    from podslice.core.pod.spec import pod_from_dict

    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        memory_manager_policy="Static",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        eviction_hard={},
    )
    machine = from_synthetic(TWO_NODES)
    pages = tuple(msgspec.structs.replace(node, hugepages=(HugePages(2048, 64),)) for node in machine.nodes)
    node = Node(msgspec.structs.replace(machine, nodes=pages), config, predicates=False)
    limits = {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "256Mi"}
    container = {"name": "c", "resources": {"limits": limits}}
    pod = pod_from_dict({"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": [container]}})
    answer = explained(node, pod, fixes=True)
    assert answer.trace.code == "hugepages-too-big"
    for row in answer.trace.steps[0].candidates[:2]:
        assert [(cell.resource, cell.verdict) for cell in row.cells] == [
            ("cpu", "fits"),
            ("memory", "joint"),
            ("hugepages-2Mi", "small"),
        ]
        assert row.verdict == "small"
    assert {"shrink", "hugepages"} <= {fix.code for fix in answer.fixes}


def test_upstream_defect_is_named() -> None:
    """Where a v1.36.2 kubelet would crash, the trace says so instead of failing, and fixes are looked for."""
    from podslice import KubeletConfig
    from podslice.core.config.kubelet import MemoryReservation
    from podslice.core.machine.synthetic import from_synthetic
    from podslice.core.pod.spec import pod_from_dict

    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        memory_manager_policy="Static",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        eviction_hard={},
    )
    node = Node(from_synthetic(TWO_NODES), config, profile="kubelet-1.36")
    limits = {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "64Mi"}
    container = {"name": "c", "resources": {"limits": limits}}
    pod = pod_from_dict({"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": [container]}})
    answer = explained(node, pod, fixes=True)
    assert (answer.trace.admitted, answer.trace.code) == (False, "upstream-defect")
    assert "Leave out hugepages-2Mi of container c" in [fix.text for fix in answer.fixes]


@pytest.mark.parametrize("seed", range(300, 320))
def test_recording_changes_no_decision(seed: int) -> None:
    """A recorded admission decides and writes the same, and every trace has a known code."""
    for setup, pod in refusals(seed):
        node = setup.node()
        plain, listened = fork(node.kubelet), fork(node.kubelet)
        defaulted = default_pod(pod, node.kubelet.manager.context.gates)
        refusal = plain.admit(defaulted)
        with recording(listened) as record:
            assert listened.admit(defaulted) == refusal
        assert listened.manager.topology.providers == [
            listened.manager.device,
            listened.manager.cpu,
            listened.manager.memory,
        ]
        plain.save()
        listened.save()
        assert plain.files == listened.files
        assert record.before.container is None
        answer = explained(node, pod)
        assert answer.trace.code in REFUSALS
        assert answer.trace.reason == (refusal.reason if refusal else "")


@pytest.mark.parametrize("seed", range(400, 410))
def test_fork_is_independent(seed: int) -> None:
    """What happens to a copy does not happen to the original, and both decide alike."""
    for setup, pod in refusals(seed):
        node = setup.node()
        before = dict(node.files)
        copy = fork(node.kubelet)
        for other in setup.running:
            copy.remove_pod(other.metadata.uid)
        copy.collect()
        copy.save()
        assert dict(node.files) == before
        assert not setup.running or copy.files != before or not copy.active
        again = fork(node.kubelet)
        defaulted = default_pod(pod, node.kubelet.manager.context.gates)
        assert again.admit(defaulted) is not None


def test_machines_with_many_nodes() -> None:
    """Beyond what can be listed the chosen set is in the table, and the story does not call hints impossible."""
    node = make_node("pack:16 numa:4(memory=16GiB) core:8 pu:1", topology_manager_policy="restricted")
    answer = explained(node, make_pod("x", ("c", "200")))
    step = answer.trace.steps[0]
    assert [hint.nodes for hint in step.answers[0].hints or ()] == [step.nodes]
    assert not step.answers[0].complete
    chosen = next(row for row in step.candidates if row.nodes == step.nodes)
    assert [cell.verdict for cell in chosen.cells] == ["fits"]
    assert "too many sets to list them all" in " ".join(answer.story)
    assert "the smallest 1024 were looked at" in to_text(answer)
