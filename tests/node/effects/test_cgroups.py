"""Cgroup values of pods, containers and sandboxes (pod-level-resources 8)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.effects.cgroup import declares_limit, pod_cgroup, pod_cgroup_path, pod_quota_disabled
from podslice.node.effects.files import cpu_max, huge_page_files
from podslice.node.effects.huge_pages import page_size_from_name, page_size_name, page_size_of
from podslice.node.effects.qos_cgroup import qos_cgroups
from podslice.node.effects.sandbox import sandbox, sandbox_update
from podslice.node.effects.settings import LIMITED_SWAP, TIERED, CgroupSettings, cgroup_settings
from podslice.node.effects.tree import Pin
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from podslice.values.releases.table import DEFAULT
from tests.node.effects.helpers import GI, MI, effects, gates, node, pod, requirements

SMALL, EQUAL = requirements("100m/100Mi"), requirements("1/1Gi", "1/1Gi")
OVERHEAD = {"cpu": "250m", "memory": "120Mi"}


def test_worked_example() -> None:
    """The example (pod-level-resources 8.3): pod limit 2 CPU and 1Gi; a requests 500m, b limits memory to 256Mi."""
    one = pod({"requests": {"cpu": "500m"}}, {"limits": {"memory": "256Mi"}}, resources=requirements(limits="2/1Gi"))
    a, b = (container.resources for container in effects(one).containers)
    assert (a.cpu_shares, a.cpu_quota, a.memory_limit) == (512, 200_000, GI)
    assert (b.cpu_shares, b.cpu_quota, b.memory_limit) == (2048, 200_000, 256 * MI)


def test_e2e_rows() -> None:
    """Two rows of upstream's end-to-end table: limits at pod level decide, partial limits give no cpu.max."""
    tight = pod({"limits": {"cpu": "50m"}}, {"limits": {"cpu": "30m"}}, resources={"limits": {"cpu": "100m"}})
    assert effects(tight).files["cpu.max"] == "10000 100000"
    partial = pod({"limits": {"cpu": "50m"}}, {}, resources={"requests": {"cpu": "100m"}})
    assert effects(partial).files["cpu.max"] == "max 100000"


def test_overhead_belongs_to_the_pod() -> None:
    """Overhead is added to the pod's cgroup and to no container."""
    seen = effects(pod(EQUAL, overhead=OVERHEAD))
    assert (seen.cgroup.cpu_shares, seen.cgroup.cpu_quota) == (1280, 125_000)
    assert seen.files["memory.max"] == str((1024 + 120) * MI)
    assert seen.containers[0].files["memory.max"] == str(GI)


@pytest.mark.parametrize(
    ("one", "declared"),
    [
        pytest.param(pod(EQUAL, {}), False, id="one app container without"),
        pytest.param(pod(EQUAL, init={"i": {}}), False, id="a plain init container without"),
        pytest.param(pod(EQUAL, init={"s+": EQUAL, "i": {}}), True, id="an init container after a limited sidecar"),
        pytest.param(pod(EQUAL, init={"i": {}, "s+": EQUAL}), False, id="an init container before it"),
        pytest.param(pod({}, resources={"limits": {"cpu": "1"}}), True, id="the pod has one"),
        pytest.param(pod({}, resources={"limits": {"cpu": "0"}}), False, id="the pod's is zero"),
        pytest.param(pod(EQUAL, ephemeralContainers=[{"name": "debug"}]), True, id="ephemeral containers do not count"),
    ],
)
def test_declared_limits(one: Pod, declared: bool) -> None:
    """The pod's cgroup is limited when every container is, or the pod."""
    assert declares_limit(one, "cpu", pod_level=True) is declared


def test_quota_is_not_enforced() -> None:
    """cpuCFSQuota false: -1 for the pod, nothing at all for containers."""
    seen = effects(pod(EQUAL), node(cfs_quota=False))
    assert (seen.cgroup.cpu_quota, seen.cgroup.cpu_period) == (-1, 100_000)
    assert (seen.containers[0].resources.cpu_quota, seen.containers[0].resources.cpu_period) == (0, 0)
    assert {seen.files["cpu.max"], seen.containers[0].files["cpu.max"]} == {"max 100000"}


def test_custom_period() -> None:
    """The configured period counts; without its gate the quota ignores it, yet the pod's cgroup gets it."""
    one = pod(EQUAL)
    assert effects(one, node(cfs_period_us=10_000)).files["cpu.max"] == "10000 10000"
    off = effects(one, node(cfs_period_us=10_000), CustomCPUCFSQuotaPeriod=False)
    assert (off.files["cpu.max"], off.containers[0].files["cpu.max"]) == ("100000 10000", "100000 100000")


# Exclusive CPUs

PINS = {"c0": Pin("2-3", "0", exclusive=True), "c1": Pin("0-1,4-7", "0")}


def test_exclusive_cpus_have_no_quota() -> None:
    """A container that owns CPUs is not throttled, nor is its pod; its neighbour keeps its quota."""
    seen = effects(pod(EQUAL, EQUAL), pins=PINS)
    assert [container.files["cpu.max"] for container in seen.containers] == ["max 100000", "100000 100000"]
    assert seen.files["cpu.max"] == "max 100000"
    assert seen.sandbox.resources.cpu_quota == -1
    assert [container.files["cpuset.cpus"] for container in seen.containers] == ["2-3", "0-1,4-7"]
    assert [container.files["cpuset.mems"] for container in seen.containers] == ["0", "0"]
    kept = effects(pod(EQUAL, EQUAL), pins=PINS, DisableCPUQuotaWithExclusiveCPUs=False)
    assert [container.files["cpu.max"] for container in kept.containers] == ["100000 100000"] * 2


@pytest.mark.parametrize(
    ("owners", "managers", "off"),
    [
        pytest.param(["c0"], False, True, id="one owner suffices"),
        pytest.param([], False, False, id="no owner"),
        pytest.param(["c0"], True, False, id="with the managers, the pod's budget stays for the others"),
        pytest.param(["c0", "c1"], True, True, id="with the managers, all must own"),
    ],
)
def test_pod_quota(owners: list[str], managers: bool, off: bool) -> None:
    """When the quota of a pod with pod-level resources is off."""
    one = pod(EQUAL, EQUAL, resources=requirements("2/4Gi", "2/4Gi"))
    assert pod_quota_disabled(one, gates(PodLevelResourceManagers=managers), owners) is off


# Huge pages

PAGES = {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}


def test_huge_pages() -> None:
    """The pod's value for the pod, a container's own before the pod's for the container, 0 for other sizes."""
    seen = effects(pod(PAGES, {}, resources={"limits": {"cpu": "2", "hugepages-2Mi": "8Mi"}}))
    assert (seen.files["hugetlb.2MB.max"], seen.files["hugetlb.1GB.max"]) == (str(8 * MI), "0")
    own, implied = (container.files for container in seen.containers)
    assert (own["hugetlb.2MB.max"], implied["hugetlb.2MB.max"]) == (str(4 * MI), str(8 * MI))
    assert own["hugetlb.1GB.max"] == "0"


def test_huge_pages_without_pod_level() -> None:
    """Sums for the pod; sizes the machine lacks are the pod's business only."""
    two = {"cpu": "1", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}
    seen = effects(pod({"requests": two, "limits": two}, PAGES), node(huge_pages=(2 * MI,)))
    assert (seen.files["hugetlb.2MB.max"], seen.files["hugetlb.1GB.max"]) == (str(8 * MI), str(GI))
    assert "hugetlb.1GB.max" not in seen.containers[0].files


def test_huge_pages_round_down() -> None:
    """The kernel counts whole huge pages."""
    assert huge_page_files({2 * MI: 5 * MI}) == {"hugetlb.2MB.max": str(4 * MI)}


@pytest.mark.parametrize(("size", "name"), [(2 * MI, "2MB"), (GI, "1GB"), (64 << 10, "64KB"), (16 << 30, "16GB")])
def test_page_size_names(size: int, name: str) -> None:
    """Sizes are written as the kernel writes them, and read back."""
    assert page_size_name(size) == name
    assert page_size_from_name(name) == size


def test_page_size_of_a_resource() -> None:
    """The size is part of the resource's name; a name without one counts as 0."""
    assert [page_size_of(f"hugepages-{text}") for text in ("2Mi", "1Gi", "foo", "")] == [2 * MI, GI, 0, 0]


# Sandbox


def test_sandbox() -> None:
    """The pod without overhead, and the overhead beside it."""
    one = pod(EQUAL, overhead=OVERHEAD)
    found = sandbox(one, gates(), node(), PODSLICE)
    assert (found.resources.cpu_shares, found.resources.cpu_quota, found.resources.memory_limit) == (1024, 100_000, GI)
    assert (found.overhead.cpu_shares, found.overhead.memory_limit) == (256, 120 * MI)
    assert sandbox(pod(EQUAL), gates(), node(), PODSLICE).overhead.cpu_shares == 0


def test_sandbox_of_a_partly_limited_pod() -> None:
    """v1.36.2 announces the limit of the one container that has one; profile podslice announces none."""
    one = pod(EQUAL, SMALL)
    upstream, ours = (sandbox(one, gates(), node(), quirks).resources for quirks in (KUBELET_1_36, PODSLICE))
    assert (upstream.cpu_quota, upstream.memory_limit) == (100_000, GI)
    assert (ours.cpu_quota, ours.memory_limit) == (0, 0)
    assert (ours.cpu_shares, ours.cpu_period) == (upstream.cpu_shares, upstream.cpu_period)


def test_sandbox_update() -> None:
    """A resize announces the pod's cgroup less the overhead, computed in millicores."""
    one = pod(EQUAL, overhead=OVERHEAD)
    found = sandbox_update(one, pod_cgroup(one, gates()), gates(), node()).resources
    assert (found.cpu_shares, found.cpu_quota, found.cpu_period, found.memory_limit) == (1024, 100_000, 100_000, GI)
    off = pod_cgroup(one, gates(), enforce_cpu_limits=False)
    assert sandbox_update(one, off, gates(), node(cfs_quota=False)).resources.cpu_quota == -25_001


# Swap, OOM group, cgroup v1


@pytest.mark.parametrize(
    ("resources", "swap"),
    [
        pytest.param(requirements("100m/2Gi"), str(GI), id="in proportion to the request"),
        pytest.param(requirements("100m/1Gi", "1/1Gi"), "0", id="request equals limit"),
        pytest.param({}, "0", id="no memory of its own"),
        pytest.param(requirements("100m/9Gi"), "0", id="more than the machine has"),
    ],
)
def test_limited_swap(resources: dict[str, Any], swap: str) -> None:
    """LimitedSwap with 4Gi of swap on 8Gi of memory."""
    settings = node(swap_controller=True, swap_behavior=LIMITED_SWAP, swap_capacity=4 * GI)
    seen = effects(pod(resources, SMALL), settings)
    assert seen.containers[0].files["memory.swap.max"] == swap


def test_no_swap() -> None:
    """None without LimitedSwap and for critical pods; cgroup v1 limits memory and swap together."""
    settings = node(swap_controller=True, swap_behavior=LIMITED_SWAP, swap_capacity=4 * GI)
    assert effects(pod(SMALL), node(swap_controller=True)).containers[0].files["memory.swap.max"] == "0"
    critical = pod(SMALL, priority=2_000_000_000)
    assert effects(critical, settings).containers[0].files["memory.swap.max"] == "0"
    v1 = effects(pod(EQUAL), node(swap_controller=True, cgroup_version=1)).containers[0].resources
    assert (v1.memory_swap_limit, v1.unified) == (GI, {})


def test_oom_group() -> None:
    """On cgroup v2 the kernel kills a container as a whole, unless the kubelet is configured otherwise."""
    assert effects(pod(SMALL)).containers[0].files["memory.oom.group"] == "1"
    assert effects(pod(SMALL), node(kill_whole_container=False)).containers[0].files["memory.oom.group"] == "0"


# QoS classes


def test_qos_cgroups() -> None:
    """Burstable weight is that of its pods together; protection sums up towards the root."""
    pods = [pod(EQUAL), pod(SMALL), pod(SMALL, SMALL), pod({})]
    tree = qos_cgroups(pods, gates(), TIERED)
    assert tree["Burstable"].cpu_shares == 307
    assert tree["BestEffort"].cpu_shares == 2
    assert tree["Guaranteed"].memory_qos == {"memory.min": GI + 300 * MI}
    assert tree["Burstable"].memory_qos == {"memory.low": 300 * MI}
    assert tree["Burstable"].cpu_weight == 12
    assert qos_cgroups(pods, gates())["Guaranteed"].memory_qos == {"memory.min": 0}


# Files


def test_kernel_rounding() -> None:
    """The kernel keeps whole pages."""
    one = pod({"limits": {"cpu": "1", "memory": "1000001"}})
    assert effects(one).files["memory.max"] == "999424"
    assert effects(one, node(page_size=65536)).files["memory.max"] == "983040"


@pytest.mark.parametrize(
    ("quota", "period", "text"),
    [(0, 0, "max 100000"), (-1, 50_000, "max 50000"), (1000, 100_000, "1000 100000")],
)
def test_cpu_max(quota: int, period: int, text: str) -> None:
    """Quota and period in one line; no quota is `max`."""
    assert cpu_max(quota, period) == text


@pytest.mark.parametrize(
    ("qos", "systemd", "cgroupfs"),
    [
        ("Guaranteed", "/kubepods.slice/kubepods-pod0_1.slice", "/kubepods/pod0-1"),
        (
            "Burstable",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0_1.slice",
            "/kubepods/burstable/pod0-1",
        ),
        (
            "BestEffort",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0_1.slice",
            "/kubepods/besteffort/pod0-1",
        ),
    ],
)
def test_pod_path(qos: str, systemd: str, cgroupfs: str) -> None:
    """Both cgroup drivers' names of a pod's cgroup."""
    assert pod_cgroup_path("0-1", qos) == systemd
    assert pod_cgroup_path("0-1", qos, systemd=False) == cgroupfs


def test_settings_of_a_configuration() -> None:
    """A kubelet configuration and a machine say what the effects need to know."""
    machine = from_synthetic("pack:1 numa:1(memory=64GB) core:4 pu:1")
    config = KubeletConfig(
        cpu_cfs_quota_period="10ms",
        single_process_oom_kill=True,
        memory_swap={"swapBehavior": LIMITED_SWAP},
        memory_reservation_policy=TIERED,
        memory_throttling_factor=0.5,
    )
    settings = cgroup_settings(config, DEFAULT, memory_capacity=machine.memory, memory_allocatable=GI, swap_capacity=GI)
    assert settings == CgroupSettings(
        memory_capacity=machine.memory,
        memory_allocatable=GI,
        swap_capacity=GI,
        cfs_period_us=10_000,
        kill_whole_container=False,
        swap_behavior=LIMITED_SWAP,
        reservation_policy=TIERED,
        throttling_factor=0.5,
    )
    defaults = cgroup_settings(KubeletConfig(), DEFAULT, memory_capacity=machine.memory, cgroup_version=1)
    assert (defaults.cfs_period_us, defaults.throttling_factor, defaults.kill_whole_container) == (100_000, 0.9, False)
