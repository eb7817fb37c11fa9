"""General predicates, preemption and node allocatable (memory-device 3.4, 3.8)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice import Node, load_machine
from podslice.api.pod.spec import ObjectMeta, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.config.reservation import node_resources, prepare_reservations
from podslice.machine.model import Core, HugePages, Machine, NUMANode
from podslice.scheduling.predicates import (
    NodeObject,
    OtherPods,
    PodOnNode,
    Verdict,
    general_predicates,
    is_critical,
    pod_on_node,
)
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks

GATES = FeatureGates.from_overrides({})
ROOMY = {"cpu": "4", "memory": "8Gi", "pods": "3", "hugepages-2Mi": "1Gi", "example.com/gpu": "2"}


def quantities(amounts: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in amounts.items()}


def pod(uid: str = "new", requests: dict[str, str] | None = None, *, limits: bool = False, **fields: Any) -> PodOnNode:
    """A pod with one container; `limits` sets them to the requests. `meta` and `spec` fields are merged in."""
    resources: dict[str, Any] = {"requests": requests or {}}
    if limits:
        resources["limits"] = requests
    spec = {"containers": [{"name": "c", "resources": resources}], **fields.get("spec", {})}
    metadata = {"name": uid, "uid": uid, **fields.get("meta", {})}
    return pod_on_node(pod_from_dict({"metadata": metadata, "spec": spec}), GATES, KUBELET_1_36)


def check(
    wanted: PodOnNode,
    *others: PodOnNode,
    name: str | None = None,
    labels: dict[str, str] | None = None,
    devices_in_use: dict[str, int] | None = None,
    **changed: str,
) -> Verdict:
    """The verdict on a node with room for 4 CPUs, 8Gi and 3 pods; keywords change what is allocatable."""
    allocatable = quantities({**ROOMY, **{key.replace("_", "-"): text for key, text in changed.items()}})
    return general_predicates(
        wanted, OtherPods.of(others), NodeObject(allocatable, name, labels), devices_in_use=devices_in_use
    )


def words(verdict: Verdict) -> tuple[str, str] | None:
    """Return a verdict's reason and message, None where the pod fits."""
    return None if verdict.refusal is None else (verdict.refusal.reason, verdict.refusal.message)


def short(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    return (
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}",
    )


@pytest.mark.parametrize(
    ("requests", "used", "refusal"),
    [
        pytest.param({"cpu": "4"}, {}, None, id="all CPUs"),
        pytest.param({"cpu": "4001m"}, {}, short("cpu", 4001, 0, 4000), id="a little more CPU"),
        pytest.param({"cpu": "1"}, {"cpu": "3500m"}, short("cpu", 1000, 3500, 4000), id="CPU beside another pod"),
        pytest.param({"memory": "8Gi"}, {"memory": "1"}, short("memory", 8 << 30, 1, 8 << 30), id="memory"),
        pytest.param({"hugepages-2Mi": "2Gi"}, {}, short("hugepages-2Mi", 2 << 30, 0, 1 << 30), id="huge pages"),
        pytest.param({"hugepages-1Gi": "1Gi"}, {}, short("hugepages-1Gi", 1 << 30, 0, 0), id="unknown huge pages"),
        pytest.param(
            {"example.com/gpu": "2"}, {"example.com/gpu": "1"}, short("example.com/gpu", 2, 1, 2), id="devices"
        ),
        pytest.param({"example.com/other": "9"}, {}, None, id="extended resource nobody knows"),
        pytest.param({"x.kubernetes.io/other": "9"}, {}, short("x.kubernetes.io/other", 9, 0, 0), id="native name"),
        pytest.param({"ephemeral-storage": "9Ti"}, {}, None, id="root file system unknown"),
        pytest.param({"cpu": "5", "memory": "9Gi"}, {}, short("cpu", 5000, 0, 4000), id="CPU is reported first"),
        pytest.param({"cpu": "0"}, {"cpu": "5"}, None, id="nothing asked of a full node"),
    ],
)
def test_resources(requests, used, refusal):
    """The first resource that is short names the refusal; CPUs count in milli, the rest in whole units."""
    assert words(check(pod(requests=requests), pod("other", used))) == refusal


def test_ephemeral_storage():
    """Local storage is checked where the node's is known."""
    wanted = pod(requests={"ephemeral-storage": "2Gi"})
    assert words(check(wanted, ephemeral_storage="1Gi")) == short("ephemeral-storage", 2 << 30, 0, 1 << 30)


def test_number_of_pods_comes_first():
    """A full node refuses on the number of pods before any resource."""
    others = [pod(str(i)) for i in range(3)]
    assert words(check(pod(requests={"cpu": "9"}), *others)) == short("pods", 1, 3, 3)
    assert check(pod(), *others[:2]) == Verdict()


def test_effective_requests_count():
    """Init peaks, pod-level requests and overhead count as the scheduler counts them."""
    init = {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]}
    assert words(check(pod(spec=init))) == short("cpu", 5000, 0, 4000)
    stanza = {"resources": {"requests": {"cpu": "4500m"}}, "overhead": {"cpu": "1"}}
    assert words(check(pod(requests={"cpu": "1"}, spec=stanza))) == short("cpu", 5500, 0, 4000)


@pytest.mark.parametrize(
    ("gate", "stanza", "freed"),
    [
        pytest.param(True, {"requests": {"cpu": "3"}}, {"cpu": 3000}, id="only the pod-level requests"),
        pytest.param(
            False, {"requests": {"cpu": "3"}}, {"cpu": 3000, "memory": 1}, id="over the containers', gate off"
        ),
        pytest.param(True, {"limits": {"cpu": "3"}}, {}, id="pod-level limits hide the containers"),
        pytest.param(True, None, {"cpu": 1000, "memory": 1}, id="the containers"),
    ],
)
def test_what_preemption_would_free(gate, stanza, freed):
    """A preempted pod frees what the eviction rule says it requests, as recorded."""
    gates = FeatureGates.from_overrides(
        {} if gate else {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    )
    resources = {"requests": {"cpu": "1", "memory": "1"}}
    spec = {"containers": [{"name": "c", "resources": resources}], "resources": stanza}
    assert pod_on_node(pod_from_dict({"spec": spec}), gates, KUBELET_1_36).reclaimable == freed


def test_devices_in_use_raise_what_is_allocatable():
    """A pod that holds devices passes although their plugin is away and reports none."""
    wanted = pod(requests={"example.com/gpu": "2"})
    gone = {"example.com/gpu": "0"}
    assert words(check(wanted, **gone)) == short("example.com/gpu", 2, 0, 0)
    assert check(wanted, devices_in_use={"example.com/gpu": 2}, **gone) == Verdict()


def test_devices_in_use_lower_nothing():
    """A pod that holds one of two devices may run beside another that holds the second."""
    wanted, other = pod(requests={"example.com/gpu": "1"}), pod("other", {"example.com/gpu": "1"})
    assert check(wanted, other, devices_in_use={"example.com/gpu": 1}) == Verdict()


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        pytest.param(
            {"meta": {"labels": {"kubernetes.io/os": "windows"}}},
            (
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            ),
            id="label",
        ),
        pytest.param(
            {"spec": {"os": {"name": "windows"}}},
            ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
            id="field",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"disk": "ssd"}}},
            (
                "NodeAffinity",
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
            id="selector",
        ),
        pytest.param(
            {"spec": {"nodeName": "other"}},
            ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"),
            id="node name",
        ),
        pytest.param(
            {"meta": {"labels": {"kubernetes.io/os": "linux"}}, "spec": {"os": {"name": "linux"}, "nodeName": "n"}},
            None,
            id="all right",
        ),
    ],
)
def test_node(fields, refusal):
    """A pod for another operating system or node is refused with upstream's words."""
    assert words(check(pod(**fields), name="n", labels={"disk": "hdd"})) == refusal


def test_unknown_name_and_labels_are_not_checked():
    """A simulated node without name and labels takes pods meant for any."""
    assert check(pod(spec={"nodeSelector": {"disk": "ssd"}, "nodeName": "other"})) == Verdict()


def test_no_node():
    """Without a Node object nothing is admitted."""
    verdict = general_predicates(pod(), OtherPods.of([]), None)
    assert words(verdict) == ("InvalidNodeInfo", "Kubelet cannot get node info.")


def test_a_refusal_carries_its_facts():
    """A refusal can be read without its message; a pod too many has a code of its own."""
    refusal = check(pod(requests={"cpu": "9"})).refusal
    assert refusal is not None
    assert refusal.code == "node-total"
    assert refusal.facts == {"resource": "cpu", "requested": 9000, "used": 0, "capacity": 4000}
    crowded = check(pod(), *(pod(str(i)) for i in range(3))).refusal
    assert crowded is not None
    assert (crowded.code, crowded.reason) == ("too-many-pods", "OutOfpods")


def test_resource_failures_before_others():
    """An ordinary pod that fails both ways hears about the resource, a critical one about the node."""
    wrong = {"requests": {"cpu": "9"}, "spec": {"nodeName": "other"}}
    assert words(check(pod(**wrong), name="n")) == short("cpu", 9000, 0, 4000)
    critical = pod(**{**wrong, "spec": {"nodeName": "other", "priority": 2_000_000_000}})
    assert check(critical, name="n").refusal.reason == "NodeName"


@pytest.mark.parametrize(
    ("fields", "critical"),
    [
        ({}, False),
        ({"spec": {"priority": 1_999_999_999}}, False),
        ({"spec": {"priority": 2_000_000_000}}, True),
        ({"meta": {"annotations": {"kubernetes.io/config.source": "api"}}}, False),
        ({"meta": {"annotations": {"kubernetes.io/config.source": "file"}}}, True),
        ({"meta": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, True),
    ],
)
def test_critical_pods(fields, critical):
    """Static and mirror pods and the highest priorities are critical."""
    assert is_critical(pod(**fields).pod) is critical


def critical(**requests: str) -> PodOnNode:
    return pod("critical", requests, spec={"priority": 2_000_001_000})


def guaranteed(uid: str, cpu: str) -> PodOnNode:
    return pod(uid, {"cpu": cpu, "memory": "1Gi"}, limits=True)


@pytest.mark.parametrize(
    ("others", "wanted", "victims"),
    [
        pytest.param([pod("a", {"cpu": "2"})], {"cpu": "2"}, (), id="room enough"),
        pytest.param([guaranteed("g", "2"), pod("b", {"cpu": "2"})], {"cpu": "2"}, ("b",), id="Burstable first"),
        pytest.param([pod("a", {"cpu": "1"}), pod("b", {"cpu": "2"})], {"cpu": "3"}, ("b",), id="the closest fit"),
        pytest.param([pod("a", {"cpu": "2"}), pod("b", {"cpu": "2"})], {"cpu": "2"}, ("b",), id="of equals the later"),
        pytest.param(
            [pod("a", {"cpu": "2", "memory": "1Gi"}), pod("b", {"cpu": "2", "memory": "2Gi"})],
            {"cpu": "2"},
            ("a",),
            id="less memory",
        ),
        pytest.param(
            [guaranteed("g", "3"), pod("b", {"cpu": "1"})], {"cpu": "4"}, ("b", "g"), id="classes in order of eviction"
        ),
        pytest.param([pod(str(i)) for i in range(3)], {}, ("2",), id="a place among the pods"),
    ],
)
def test_preemption(others, wanted, victims):
    """A critical pod takes the place of as few pods as are needed, higher QoS classes last."""
    assert check(critical(**wanted), *others) == Verdict(None, victims)


def test_preemption_that_cannot_succeed():
    """A critical pod is refused when even all others leaving would not suffice."""
    verdict = check(critical(cpu="5"), pod("a", {"cpu": "2"}))
    assert words(verdict) == (
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of "
        "pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]",
    )


def test_critical_pods_spare_each_other():
    """Among critical pods only a higher priority preempts."""
    high = pod("high", {"cpu": "4"}, spec={"priority": 2_000_001_001})
    assert check(critical(cpu="1"), high).refusal is not None
    assert check(high, critical(cpu="1")) == Verdict(None, ("critical",))


amount = st.integers(0, 4000).map(lambda milli: f"{milli}m")


@given(st.lists(st.tuples(amount, st.booleans()), max_size=3), amount)
def test_victims_make_room(others, wanted):
    """Whatever is preempted, the pod fits afterwards, and every victim was needed in its class."""
    running = [
        guaranteed(str(i), cpu) if equal and cpu != "0m" else pod(str(i), {"cpu": cpu})
        for i, (cpu, equal) in enumerate(others)
    ]
    new = critical(cpu=wanted)
    verdict = check(new, *running, pods="9")
    assert verdict.refusal is None
    left = [other for other in running if other.pod.metadata.uid not in verdict.victims]
    assert check(new, *left, pods="9") == Verdict()


MACHINE = Machine(
    tuple(
        NUMANode(
            i,
            memory=8 << 30,
            hugepages=(HugePages(2048, 512), HugePages(1 << 20, 1)),
            cores=tuple(Core(0, 2 * i + c, (2 * i + c,)) for c in range(2)),
        )
        for i in range(2)
    )
)


def test_node_allocatable():
    """Allocatable is capacity less reservations; memory also less all huge pages; devices as reported."""
    config = KubeletConfig(
        kube_reserved={"cpu": "500m", "memory": "1Gi"}, eviction_hard={"memory.available": "1Gi"}, max_pods=20
    )
    reservation = prepare_reservations(config, MACHINE).total
    capacity, allocatable = node_resources(
        MACHINE, config, reservation, device_capacity={"example.com/gpu": 4}, device_allocatable={"example.com/gpu": 3}
    )
    assert {name: str(amount) for name, amount in capacity.items()} == {
        "cpu": "4",
        "memory": "16Gi",
        "hugepages-2Mi": "2Gi",
        "hugepages-1Gi": "2Gi",
        "pods": "20",
        "example.com/gpu": "4",
    }
    assert {name: str(amount) for name, amount in allocatable.items()} == {
        "cpu": "3500m",
        "memory": "10Gi",
        "hugepages-2Mi": "2Gi",
        "hugepages-1Gi": "2Gi",
        "pods": "20",
        "example.com/gpu": "3",
    }


def test_allocatable_is_never_negative():
    """Huge pages larger than the rest of the memory leave 0, not less."""
    config = KubeletConfig(kube_reserved={"memory": "15Gi"}, eviction_hard={})
    allocatable = node_resources(MACHINE, config, prepare_reservations(config, MACHINE).total).allocatable
    assert str(allocatable["memory"]) == "0"


@pytest.mark.parametrize(("per_core", "pods"), [(0, "110"), (10, "40"), (100, "110")])
def test_pods_per_core(per_core, pods):
    """podsPerCore lowers the number of pods, never raises it."""
    config = KubeletConfig(pods_per_core=per_core)
    assert str(node_resources(MACHINE, config, {}).capacity["pods"]) == pods


@pytest.mark.parametrize(
    ("resources", "gates", "quirks", "used"),
    [
        ({"requests": {"cpu": "2"}}, {}, KUBELET_1_36, 3000),
        ({"requests": {"cpu": "2"}}, {}, PODSLICE, 2500),
        ({"requests": {"memory": "1Gi"}}, {}, KUBELET_1_36, 1500),
        (None, {}, KUBELET_1_36, 1500),
        ({"requests": {"cpu": "2"}}, {"InPlacePodLevelResourcesVerticalScaling": False}, KUBELET_1_36, 2500),
    ],
)
def test_overhead_of_a_running_pod(
    resources: dict[str, Any] | None, gates: dict[str, bool], quirks: Quirks, used: int
) -> None:
    """v1.36.2 counts the overhead of a running pod twice for what its pod level requests, as its status names the
    overhead too; never for the pod that comes."""
    own = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"containers": [own], "overhead": {"cpu": "500m"}}
    if resources:
        spec["resources"] = resources
    running = pod_on_node(pod_from_dict({"metadata": {"uid": "r"}, "spec": spec}), {**GATES, **gates}, quirks)
    assert OtherPods.of([running]).used["cpu"] == used
    once = 2500 if resources and "cpu" in resources["requests"] else 1500
    assert running.requests["cpu"] == once


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_running_pods_are_counted_one_after_the_other(profile: str) -> None:
    """Admitted again after a restart with less room, a pod competes with those before it, not with those after."""
    machine = load_machine("pack:1 core:8 pu:1")
    pods = [
        pod_from_dict({
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        })
        for name in ("old", "new")
    ]  # fmt: skip
    for bring_back in (Node.readmit, Node.resume):
        node = Node(machine, KubeletConfig(system_reserved={"cpu": "3"}), profile=profile, predicates=True)
        (refused,) = bring_back(node, pods)
        assert (refused.name, refused.reason) == ("new", "OutOfcpu")
        assert "requested: 3000, used: 3000, capacity: 5000" in refused.message
        late = msgspec.structs.replace(pods[1], metadata=ObjectMeta(name="z", uid="z"))
        assert node.admit(late).reason == "OutOfcpu"
