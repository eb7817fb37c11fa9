"""Traces say what happened, with stable codes, and recording changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podslice import CPUSet, KubeletConfig, MemoryReservation, Node, Pod
from podslice.advise.explain.candidates import Candidate
from podslice.advise.explain.codes import REFUSALS
from podslice.advise.explain.columns import Cell
from podslice.advise.explain.explain import Explanation, explain
from podslice.advise.explain.table import to_text
from podslice.advise.explain.verdict import refusal_code
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import HugePages
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import Refusal, RefusalKind
from tests.advise.explain.random_nodes import refusals
from tests.conftest import make_node, make_pod

TWO_NODES = "pack:1 numa:2(memory=8GB) core:4 pu:2(indexes=pu)"


def explain_pod(node: Node, pod: Pod, *, fixes: bool = False) -> Explanation:
    return explain(node, pod, fixes=fixes)


def test_trace_of_an_admitted_pod() -> None:
    """Requests and their source, eligibility, hints as NUMA sets, the merge, picks in whole cores, and the writes."""
    node = make_node(TWO_NODES, topology_manager_policy="single-numa-node")
    answer = explain_pod(node, make_pod("db", ("main", "4"), ("helper", "500m"), ("idle", None)))
    assert answer.trace.qos == "Burstable"
    assert [facts.eligibility for facts in answer.trace.containers] == ["not-guaranteed"] * 3
    answer = explain_pod(node, make_pod("db", ("main", "4"), ("helper", "500m")))
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
    node = make_node(
        TWO_NODES if code != "pod-pool-empty" else "pack:1 numa:2(memory=32GB) core:4 pu:2(indexes=pu)", **config
    )
    for other in running:
        assert node.admit(other).admitted
    trace = explain_pod(node, pod).trace
    assert not trace.admitted
    assert trace.code == code


def test_device_and_cpu_apart() -> None:
    """Free CPUs on one node and free devices on the other: no common set, and the table shows both numbers."""
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
    answer = explain_pod(node, pod, fixes=True)
    assert answer.trace.code == "no-common-set"
    first, second = answer.trace.steps[0].candidates[:2]
    assert [(cell.resource, cell.need, cell.free, cell.verdict) for cell in first.cells] == [
        ("cpu", 4, 1, "short"),
        ("example.com/gpu", 1, 1, "fits"),
    ]
    assert [cell.verdict for cell in second.cells] == ["fits", "small"]
    assert {"shrink", "move-pods", "empty-node"} <= {fix.code for fix in answer.fixes}
    assert any("NUMA 0: cpu needs 4, 1 free" in sentence for sentence in answer.story)


def test_huge_pages_elsewhere_than_memory() -> None:
    """Memory and huge pages are taken together: the trace names which is short, and which would fit by itself."""
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
    answer = explain_pod(node, pod, fixes=True)
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
    """If a v1.36.2 kubelet would crash, the trace says so instead of failing, and fixes are searched."""
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
    answer = explain_pod(node, pod, fixes=True)
    assert (answer.trace.admitted, answer.trace.code) == (False, "upstream-defect")
    assert "Leave out hugepages-2Mi of container c" in [fix.text for fix in answer.fixes]
    assert answer.story[0].endswith("would get no answer.")
    assert answer.story[-1].startswith("The kubelet crashes: ")


def test_a_search_without_end_merges_nothing() -> None:
    """A kubelet that never answers has neither merged nor refused: the story says that and what would end it."""
    gpus = [{"resource": "x.io/gpu", "devices": [{"id": "g", "numa": list(range(30))}]}]
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="best-effort",
        topology_manager_policy_options={"max-allowable-numa-nodes": "64"},
    )
    machine = from_synthetic("numa:30(memory=1GiB) core:2 pu:1")
    node = Node(machine, config, profile="kubelet-1.36", devices=inventory_from_data(gpus))
    limits = {"cpu": "1", "memory": "1Mi", "x.io/gpu": "1"}
    pod = pod_from_dict(
        {
            "metadata": {"name": "x", "uid": "x"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }
    )
    text = " ".join(explain_pod(node, pod).story)
    assert "never answers, and the pod stays Pending" in text
    assert "What would end it: topologyManagerPolicy none" in text
    assert "Merged under" not in text
    assert "The kubelet's message" not in text


@pytest.mark.parametrize("seed", range(300, 320))
def test_recording_changes_no_decision(seed: int) -> None:
    """A recorded admission decides and writes the same, and every trace has a known code."""
    for setup, pod in refusals(seed):
        node = setup.node()
        plain, listened = node.kubelet.copy(), node.kubelet.copy()
        defaulted = default_pod(pod, node.view.gates)
        refusal = plain.admit(defaulted)
        with Trial(listened).recording() as record:
            assert listened.admit(defaulted) == refusal
        managers = listened.manager
        assert managers.topology.providers == (managers.device, managers.cpu, managers.memory)
        plain.save()
        listened.save()
        assert plain.files == listened.files
        assert record.before.container is None
        answer = explain_pod(node, pod)
        assert answer.trace.code in REFUSALS
        assert answer.trace.reason == (refusal.reason if refusal else "")


@pytest.mark.parametrize("seed", range(400, 410))
def test_fork_is_independent(seed: int) -> None:
    """Changes to a copy leave the original as it is, and both decide alike."""
    for setup, pod in refusals(seed):
        node = setup.node()
        before = dict(node.files)
        copy = node.kubelet.copy()
        for other in setup.running:
            copy.remove_pod(other.metadata.uid)
        copy.collect()
        copy.save()
        assert dict(node.files) == before
        assert not setup.running or copy.files != before or not copy.active
        again = node.kubelet.copy()
        defaulted = default_pod(pod, node.view.gates)
        assert again.admit(defaulted) is not None


def test_machines_with_many_nodes() -> None:
    """Beyond what can be listed the chosen set is in the table, and the story does not call hints impossible."""
    node = make_node("pack:16 numa:4(memory=16GiB) core:8 pu:1", topology_manager_policy="restricted")
    answer = explain_pod(node, make_pod("x", ("c", "200")))
    step = answer.trace.steps[0]
    assert [hint.nodes for hint in step.answers[0].hints or ()] == [step.nodes]
    assert not step.answers[0].complete
    chosen = next(row for row in step.candidates if row.nodes == step.nodes)
    assert [cell.verdict for cell in chosen.cells] == ["fits"]
    assert "too many sets to list them all" in " ".join(answer.story)
    assert "the smallest 1024 were looked at" in to_text(answer)


def cell(resource: str, verdict: str) -> Cell:
    return Cell(resource, need=1, free=1, capacity=1, verdict=verdict)


@pytest.mark.parametrize("order", [("memory", "hugepages-2Mi"), ("hugepages-2Mi", "memory")])
def test_the_cause_of_a_scattered_pair_is_what_lacks_itself(order: tuple[str, str]) -> None:
    """Of memory and huge pages, taken together, the code names the one that does not fit, in whatever order they
    are listed."""
    verdicts = {"memory": "joint", "hugepages-2Mi": "short"}
    cells = tuple(cell(resource, verdicts[resource]) for resource in order)
    table = [Candidate(CPUSet((0,)), cells, "short", order)]
    refusal = Refusal(RefusalKind("not-aligned", ""))
    assert refusal_code(refusal, table, policy="single-numa-node", merged=True) == "hugepages-scattered"


POD_LEVEL = {
    "feature_gates": {"PodLevelResourceManagers": True},
    "system_reserved": {"memory": "512Mi"},
    "reserved_memory": (MemoryReservation(0, {"memory": "512Mi"}),),
    "memory_manager_policy": "Static",
    "topology_manager_scope": "pod",
}


def with_budget(budget: dict[str, str], own: dict[str, str]) -> Pod:
    containers = [{"name": "a", "resources": {"limits": own}}, {"name": "b"}]
    spec = {"resources": {"requests": budget, "limits": budget}, "containers": containers}
    return pod_from_dict({"metadata": {"name": "x", "uid": "x"}, "spec": spec})


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize(
    ("resource", "budget", "own", "said"),
    [
        ("cpu", "4", "4", "4 CPUs"),
        ("memory", "4Gi", "4Gi", "4Gi memory"),
        ("hugepages-2Mi", "64Mi", "64Mi", "64Mi hugepages-2Mi"),
    ],
)
def test_an_empty_pod_pool_is_named(policy: str, resource: str, budget: str, own: str, said: str) -> None:
    """Under every policy the code is pod-pool-empty, and the missing resource is named; nothing counts as held."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy=policy,
        eviction_hard={},
        **POD_LEVEL,  # type: ignore[arg-type]
    )
    machine = from_synthetic("pack:1 numa:2(memory=32GB) core:4 pu:2(indexes=pu)")
    pages = tuple(msgspec.structs.replace(numa, hugepages=(HugePages(2048, 64),)) for numa in machine.nodes)
    node = Node(msgspec.structs.replace(machine, nodes=pages), config)
    pod = with_budget(
        {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "128Mi", resource: budget},
        {"cpu": "2", "memory": "4Gi", "hugepages-2Mi": "64Mi", resource: own}
        | ({"memory": "2Gi"} if resource != "memory" else {}),
    )
    answer = explain_pod(node, pod)
    assert answer.trace.code == "pod-pool-empty"
    assert "already lies elsewhere" not in "\n".join(answer.story)
    why = node.admit(pod).why
    assert f"The pod's budget is {said}" in why
    assert "leave nothing for b" in why


def test_devices_on_one_node_are_not_held_elsewhere() -> None:
    """Sets with NUMA nodes that have none of a device have no hints; the pod holds nothing."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        eviction_hard={},
    )
    listed = [{"resource": "example.com/vf", "devices": [{"id": f"vf{i}", "numa": [0]} for i in range(2)]}]
    node = Node(from_synthetic(TWO_NODES), config, devices=inventory_from_data(listed))
    assert node.admit(make_pod("a", ("c", "6"))).admitted
    amounts = {"cpu": "4", "memory": "1Gi", "example.com/vf": "1"}
    containers = [{"name": "c", "resources": {"limits": amounts}}]
    pod = pod_from_dict({"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": containers}})
    answer = explain_pod(node, pod)
    both = answer.trace.steps[-1].candidates[2]
    assert [(found.resource, found.verdict) for found in both.cells] == [("cpu", "wide"), ("example.com/vf", "bare")]
    assert "the pod holds" not in "\n".join(answer.story)


def test_a_pod_that_is_not_placed_as_a_whole_owns_nothing() -> None:
    """In container scope a pod with pod-level resources owns no CPUs in the trace; in pod scope it does."""
    pod = make_pod("g", ("a", None), ("b", None), budget="4")
    gates = {"PodLevelResourceManagers": True}
    by_container = explain_pod(make_node(feature_gates=gates, topology_manager_scope="container"), pod).trace
    assert (by_container.containers[0].eligibility, by_container.containers[0].exclusive_cpus) == ("by-container", 0)
    whole = explain_pod(make_node(feature_gates=gates, topology_manager_scope="pod"), pod).trace
    assert (whole.containers[0].eligibility, whole.containers[0].exclusive_cpus) == ("exclusive", 4)


def test_a_budget_that_is_no_whole_number_is_not_divided() -> None:
    """A container with whole CPUs owns none where its pod's budget has a fraction, and the trace has the reason."""
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted",
        topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True}, eviction_hard={},
    )  # fmt: skip
    node = Node(from_synthetic("pack:1 numa:2(memory=32GiB) core:4 pu:1"), config)
    pod = make_pod("p", ("a", "2"), ("b", None), budget="2500m")
    facts = {one.name: (one.eligibility, one.exclusive_cpus) for one in explain_pod(node, pod).trace.containers}
    assert facts == {"": ("fraction", 0), "a": ("budget-fraction", 0), "b": ("no-cpu", 0)}
    decision = node.admit(pod)
    assert decision.admitted, decision.message
    assert decision.containers[0].isolation == "host"
