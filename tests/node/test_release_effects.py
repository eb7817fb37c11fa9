"""Differences between the kubelets and API servers of the releases beside the managers' decisions: rows of
docs/releases.md about starts, cgroups, resizes and evictions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from podslice import KubeletConfig, Node, StartError
from podslice.api.pod.demand import pod_requests
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.resize import validate_resize
from podslice.config.validation import validate
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.effects.qos_cgroup import qos_cgroups
from podslice.node.effects.settings import EVERY_REQUEST, CgroupSettings
from podslice.node.resize.allocation import ResizeNode, check_resize
from podslice.scheduling.eviction import Usage, memory_eviction_message
from podslice.scheduling.predicates import accounted_requests
from podslice.values.quantity import Quantity
from podslice.values.releases.table import RELEASES
from tests.node.resize.helpers import GATES, burstable, guaranteed, pod, resources

MACHINE = from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:2")
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
MI = 1 << 20


# Starts


@pytest.mark.parametrize(
    ("minor", "written", "fate"),
    [
        pytest.param(34, None, "", id="1.34"),
        pytest.param(34, True, "in maintenance mode", id="1.34, asked to"),
        pytest.param(35, None, "unsupported and will be removed in a future release", id="1.35"),
        pytest.param(35, False, "", id="1.35, allowed"),
        pytest.param(37, None, "unsupported and will be removed in a future release", id="1.37"),
    ],
)
def test_a_start_on_cgroup_v1(minor: int, written: bool | None, fate: str) -> None:
    """Since 1.35 a kubelet does not start there unless failCgroupV1 is false."""
    config = KubeletConfig(other_fields={} if written is None else {"failCgroupV1": written})
    text = f"kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is {fate}"
    assert validate(config, RELEASES[minor]) == []
    if not fate:
        assert Node(MACHINE, config, kubernetes=f"1.{minor}", cgroup_version=1).rules.cgroup_version == 1
        return
    with pytest.raises(StartError) as caught:
        Node(MACHINE, config, kubernetes=f"1.{minor}", cgroup_version=1)
    assert caught.value.message == text


# Cgroups


@pytest.mark.parametrize(
    ("minor", "config", "files"),
    [
        pytest.param(35, {}, {"memory.min": 200 * MI, "memory.low": 0, "memory.high": 262561792}, id="1.35"),
        pytest.param(35, {"memory_reservation_policy": "TieredReservation"},
                     {"memory.min": 200 * MI, "memory.low": 0, "memory.high": 262561792}, id="1.35 has no policy"),
        pytest.param(36, {}, {"memory.min": 0, "memory.low": 0, "memory.high": 262561792}, id="1.36"),
        pytest.param(36, {"memory_reservation_policy": "TieredReservation"},
                     {"memory.min": 0, "memory.low": 200 * MI, "memory.high": 262561792}, id="1.36, tiered"),
        pytest.param(37, {}, {"memory.min": 0, "memory.low": 0, "memory.high": "max"}, id="1.37 throttles nothing"),
        pytest.param(37, {"memory_throttling_factor": 0.9},
                     {"memory.min": 0, "memory.low": 0, "memory.high": 262561792}, id="1.37, with a factor"),
    ],
)  # fmt: skip
def test_memory_quality(minor: int, config: dict[str, Any], files: dict[str, int | str]) -> None:
    """What the gate MemoryQoS writes for a Burstable container of 200Mi up to 256Mi."""
    settings = replace(STATIC, feature_gates={"MemoryQoS": True}, **config)
    node = Node(MACHINE, settings, kubernetes=f"1.{minor}")
    wanted = pod({"resources": resources({"memory": "200Mi"}, {"memory": "256Mi"})})
    assert node.admit(wanted).admitted
    effects = node.effects(wanted.metadata.uid)
    assert {name: effects.containers[0].files[name] for name in files} == {
        name: str(one) for name, one in files.items()
    }
    pods_own = {"memory.min": files["memory.min"], "memory.low": files["memory.low"]}
    assert {name: effects.files[name] for name in pods_own} == {name: str(one) for name, one in pods_own.items()}


def test_memory_quality_is_on_in_1_37_and_does_nothing_unasked() -> None:
    """The gate is beta there, and without a factor and a policy no file differs from 1.36."""
    wanted = pod({"resources": resources({"memory": "200Mi"}, {"memory": "256Mi"})})
    files = []
    for minor in (36, 37):
        node = Node(MACHINE, STATIC, kubernetes=f"1.{minor}")
        node.admit(wanted)
        files.append(node.effects(wanted.metadata.uid).containers[0].files)
    assert files[0] == files[1]


def test_classes_without_a_policy() -> None:
    """Up to 1.35 `memory.min` of the classes is the sum of the requests below them."""
    pods = [pod(guaranteed("1", "1Gi")), pod(burstable("1", "200Mi"))]
    found = qos_cgroups(pods, GATES, EVERY_REQUEST)
    assert found["Guaranteed"].memory_qos == {"memory.min": (1 << 30) + 200 * MI}
    assert found["Burstable"].memory_qos == {"memory.min": 200 * MI}


# Admission


@pytest.mark.parametrize(("minor", "cpus"), [(34, 2), (35, 4)])
def test_allocated_resources_of_the_status(minor: int, cpus: int) -> None:
    """Up to 1.34 a pod that is admitted again gets what its status says was allocated, then what it specifies."""
    own = {"cpu": "4", "memory": "1Gi"}
    data = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [{"name": "app", "image": "x", "resources": {"requests": own, "limits": own}}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "2", "memory": "1Gi"}}],
        },
    }
    decision = Node(MACHINE, STATIC, profile=f"kubelet-1.{minor}").admit(pod_from_dict(data))
    assert len(decision.containers[0].cpus) == cpus
    off = replace(STATIC, feature_gates={"InPlacePodVerticalScaling": False}) if minor < 35 else STATIC
    assert len(Node(MACHINE, off, profile=f"kubelet-1.{minor}").admit(pod_from_dict(data)).containers[0].cpus) == 4


# Resizes


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        (("80", "1Gi"), "Node didn't have enough capacity: cpu, requested: 80000, capacity: 8000"),
        (("1", "8Gi"), "Node didn't have enough capacity: memory, requested: 8589934592, capacity: 4294967296"),
        (("80", "8Gi"), "Node didn't have enough capacity: memory, requested: 8589934592, capacity: 4294967296"),
        (("8", "4Gi"), None),
    ],
)
def test_a_resize_beyond_the_node(amounts: tuple[str, str], said: str | None) -> None:
    """Up to 1.35 the kubelet refuses it, and names one resource; later it is the API server's to refuse."""
    capacity = {"cpu": Quantity.parse("8"), "memory": Quantity.parse("4Gi")}
    old, new = pod(burstable("1", "1Gi")), pod(burstable(*amounts))
    verdict = check_resize(new, old, ResizeNode(GATES, allocatable=capacity, release=RELEASES[35]))
    assert (None if verdict is None else verdict.message) == said
    later = check_resize(new, old, ResizeNode(GATES, allocatable=capacity, release=RELEASES[36]))
    assert (later is None) is (said is None)
    assert later is None or later.message.startswith("node didn't have enough allocatable resources: ")


def test_a_resize_beyond_the_node_waits_since_1_36() -> None:
    """A 1.35 kubelet calls it infeasible, whatever it predicts; a 1.36 API server does not store it."""
    node = Node(MACHINE, profile="kubelet-1.35")
    node.admit(pod(burstable("1")))
    decision = node.resize(pod(burstable("80")))
    assert (decision.outcome, decision.message) == (
        "Infeasible",
        "Node didn't have enough capacity: cpu, requested: 80000, capacity: 8000",
    )


@pytest.mark.parametrize(("minor", "refused"), [(32, False), (33, True), (36, True)])
def test_a_resize_of_a_container_that_can_swap(minor: int, refused: bool) -> None:
    """Since 1.33 the memory request of a container that can swap stays, unless it restarts."""
    swap = CgroupSettings(
        memory_capacity=16 << 30, swap_capacity=8 << 30, swap_controller=True, swap_behavior="LimitedSwap"
    )
    old, new = (pod({"resources": resources({"memory": amount}, {"memory": "1Gi"})}) for amount in ("128Mi", "256Mi"))
    verdict = check_resize(new, old, ResizeNode(GATES, cgroups=swap, release=RELEASES[minor]))
    assert (verdict is not None) is refused


@pytest.mark.parametrize(("minor", "refused"), [(33, True), (34, False)])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_lower_memory_limit(minor: int, refused: bool, restarts: bool) -> None:
    """Up to 1.33 the API server refuses it unless the container restarts for it."""
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}] if restarts else []
    old, new = (
        pod({"resources": resources({"memory": "64Mi"}, {"memory": limit}), "resizePolicy": policy})
        for limit in ("256Mi", "128Mi")
    )
    said = [str(one) for one in validate_resize(new, old, GATES, RELEASES[minor])]
    path = "spec.containers[0].resources.limits[memory]"
    text = f"{path}: Forbidden: memory limits cannot be decreased unless resizePolicy is RestartContainer"
    assert said == ([text] if refused and not restarts else [])


@pytest.mark.parametrize(("minor", "refused"), [(34, True), (35, False)])
def test_a_resize_at_pod_level(minor: int, refused: bool) -> None:
    """Up to 1.34 the API server resizes no pod with pod-level resources."""
    old, new = (pod({}, pod_level=resources({"cpu": cpu})) for cpu in ("1", "2"))
    said = [one.detail for one in validate_resize(new, old, GATES, RELEASES[minor])]
    assert said == (["pods with pod-level resources cannot be resized"] if refused else [])


# What others count


def resizing() -> Pod:
    """A pod of two containers: one asks for more CPUs than are in force, the other for fewer."""
    one = pod(burstable("3"), burstable("1"))
    in_force = ("1", "3")
    statuses = [
        {"name": f"c{index}", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        for index, cpu in enumerate(in_force)
    ]
    status = pod_from_dict({"metadata": {"name": "p"}, "spec": {"containers": []},
                            "status": {"containerStatuses": statuses}}).status  # fmt: skip
    return replace(one, status=status)


def test_requests_while_several_containers_are_resized() -> None:
    """1.36 adds up the largest amount of each container, 1.37 takes the largest sum."""
    assert accounted_requests(resizing(), GATES, RELEASES[36])["cpu"] == 6000
    assert accounted_requests(resizing(), GATES, RELEASES[37])["cpu"] == 4000
    assert pod_requests(resizing())["cpu"] == Quantity.parse("4")


@pytest.mark.parametrize(
    ("minor", "named"),
    [(31, ["app"]), (32, ["side", "app"]), (33, ["side", "app"]), (34, ["p", "side", "app"])],
)
def test_messages_of_evictions(minor: int, named: list[str]) -> None:
    """1.32 names init containers, 1.34 the pod as a whole."""
    small = {"requests": {"memory": "1Mi"}}
    wanted = pod_from_dict({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "resources": {"requests": {"memory": "4Mi"}},
            "initContainers": [{"name": "side", "restartPolicy": "Always", "image": "x", "resources": small}],
            "containers": [{"name": "app", "image": "x", "resources": small}],
        },
    })  # fmt: skip
    usage = Usage(wanted, 20 * MI, {"side": 10 * MI, "app": 10 * MI})
    message, annotations = memory_eviction_message(usage, GATES, release=RELEASES[minor])
    words = message.split()
    assert [words[place - 1] for place, word in enumerate(words) if word == "was" and place > 2] == named
    assert ("offending_pod" in annotations) is (minor >= 34)
