"""Resizes that a kubelet grants, refuses and defers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from podslice.api.pod.spec import Pod, allocation_of, apply_allocation
from podslice.node.effects.settings import CgroupSettings
from podslice.node.resize.allocation import ResizeNode, ResizeVerdict, check_resize, try_resize
from podslice.node.resize.pending import PendingResize, ResizeQueue, sort_pending
from podslice.values.errors import Refusal, RefusalKind
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from podslice.values.releases.table import RELEASES
from podslice.values.series import series
from tests.node.resize.helpers import GATES, burstable, guaranteed, pod, resources

MANAGED = FeatureGates.from_overrides({"PodLevelResourceManagers": True})
EXCLUSIVE = FeatureGates.from_overrides({"InPlacePodVerticalScalingExclusiveCPUs": True})
SWAP = CgroupSettings(
    memory_capacity=16 << 30, swap_capacity=8 << 30, swap_controller=True, swap_behavior="LimitedSwap"
)
STATIC_CPU = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'


def whole(cpu: str, memory: str = "4Gi") -> Pod:
    """A Guaranteed pod that asks for everything at pod level."""
    return pod({}, pod_level=resources({"cpu": cpu, "memory": memory}, {"cpu": cpu, "memory": memory}))


def shared(cpu: str, memory: str, **fields: Any) -> Pod:
    """A Burstable pod with a memory limit."""
    return pod({"resources": resources({"cpu": cpu, "memory": memory}, {"memory": "1Gi"}), **fields})


NO_RESTART = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "NotRequired"}]}
RESTART = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}

CHECKS = [
    pytest.param({}, guaranteed("1", "1Gi"), guaranteed("2", "2Gi"), None, id="plain node"),
    pytest.param(
        {"os": "windows"}, burstable("1"), burstable("2"),
        ("In-place pod resize is not supported on Windows", "windows"), id="windows",
    ),
    pytest.param(
        {"os": "darwin"}, burstable("1"), burstable("2"),
        ("In-place pod resize is not supported on this node", "unsupported_platform"), id="other platform",
    ),
    pytest.param(
        {"gates": {**GATES, "InPlacePodVerticalScaling": False}}, burstable("1"), burstable("2"),
        ("InPlacePodVerticalScaling is disabled", "feature_gate_off"), id="gate",
    ),
    pytest.param(
        {"cpu_policy": "static"}, guaranteed("1", "1Gi"), guaranteed("2", "1Gi"),
        (STATIC_CPU, "guaranteed_pod_cpu_manager_static_policy"), id="static CPUs",
    ),
    pytest.param({"cpu_policy": "static"}, guaranteed("1", "1Gi"), guaranteed("1", "2Gi"), None, id="memory only"),
    pytest.param({"cpu_policy": "static"}, burstable("1"), burstable("2"), None, id="static CPUs, Burstable pod"),
    pytest.param(
        {"cpu_policy": "static", "gates": EXCLUSIVE}, guaranteed("1", "1Gi"), guaranteed("2", "1Gi"), None,
        id="static CPUs that can grow",
    ),
    pytest.param(
        {"memory_policy": "Static"}, guaranteed("1", "1Gi"), guaranteed("2", "2Gi"),
        (STATIC_MEMORY, "guaranteed_pod_memory_manager_static_policy"), id="static memory",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "old", "new", "expected"), CHECKS)
def test_the_resize_check(
    facts: dict[str, Any], old: dict[str, Any], new: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    """Resizes that no waiting would help are infeasible, with the kubelet's message and metric label."""
    verdict = check_resize(pod(new), pod(old), ResizeNode(**{"gates": GATES, **facts}))
    assert verdict == (None if expected is None else ResizeVerdict("Infeasible", *expected))


@pytest.mark.parametrize("minor", [32, 33])
@pytest.mark.parametrize(
    ("policies", "manager"),
    [
        pytest.param({"cpu_policy": "static", "memory_policy": "Static"}, "CPU", id="both"),
        pytest.param({"memory_policy": "Static"}, "Memory", id="memory"),
    ],
)
def test_older_releases_resize_nothing_beside_a_static_manager(
    minor: int, policies: dict[str, str], manager: str
) -> None:
    """Up to 1.33 any resize of a Guaranteed pod is infeasible there; from 1.34 on only what the manager holds is."""
    old, new = pod(guaranteed("1", "1Gi")), pod(guaranteed("1", "2Gi") if manager == "CPU" else guaranteed("2", "1Gi"))
    said = f"Resize is infeasible for Guaranteed Pods alongside {manager} Manager static policy"
    verdict = check_resize(new, old, ResizeNode(GATES, **policies, release=RELEASES[minor]))  # type: ignore[arg-type]
    assert verdict is not None
    assert (verdict.outcome, verdict.message) == ("Infeasible", said)
    assert check_resize(pod(burstable("2")), pod(burstable("1")), ResizeNode(GATES, **policies)) is None  # type: ignore[arg-type]
    only = {name: value for name, value in policies.items() if name.startswith(manager.lower())}
    assert check_resize(new, old, ResizeNode(GATES, **only, release=RELEASES[34])) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("minor", "refused"), [(33, True), (35, True), (36, False)])
def test_static_pods_are_resized_from_1_36_on(minor: int, refused: bool) -> None:
    """Before, the kubelet refuses to resize pods of its own sources."""
    old, new = (
        replace(one, metadata=replace(one.metadata, annotations={"kubernetes.io/config.source": "file"}))
        for one in (pod(burstable("1")), pod(burstable("2")))
    )
    verdict = check_resize(new, old, ResizeNode(GATES, release=RELEASES[minor]))
    said = "In-place resize of static-pods is not supported"
    assert (None if verdict is None else verdict.message) == (said if refused else None)


def test_pod_level_changes_need_their_gate() -> None:
    """Without its gate a kubelet does not resize at pod level."""
    off = FeatureGates.from_overrides({"InPlacePodLevelResourcesVerticalScaling": False})
    verdict = check_resize(whole("2"), whole("1"), ResizeNode(off))
    assert verdict is not None
    assert verdict[1:3] == ("InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off")


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        pytest.param(shared("1", "64Mi"), shared("1", "128Mi"), True, id="request changes"),
        pytest.param(shared("1", "64Mi", **NO_RESTART), shared("1", "1Gi", **NO_RESTART), True, id="swap before"),
        pytest.param(shared("1", "64Mi", **RESTART), shared("1", "128Mi", **RESTART), False, id="restarts anyway"),
        pytest.param(shared("1", "64Mi"), shared("2", "64Mi"), False, id="cpu only"),
    ],
)
def test_swapping_containers(old: Pod, new: Pod, refused: bool) -> None:
    """The memory request of a container that swaps cannot change without a restart."""
    verdict = check_resize(new, old, ResizeNode(GATES, cgroups=SWAP))
    expected = ResizeVerdict(
        "Infeasible", "In-place resize of containers with swap is not supported.", "swap_limitation"
    )
    assert verdict == (expected if refused else None)
    assert check_resize(new, old, ResizeNode(GATES)) is None


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_what_is_held_for_the_whole_pod(resource: str) -> None:
    """Upstream resizes a pod under the managers that hold CPUs or memory for it; profile podslice refuses."""
    new = whole("2", "8Gi") if resource == "memory" else whole("4")
    upstream = ResizeNode(MANAGED, "static", "Static", pod_scope=True, quirks=KUBELET_1_36)
    assert check_resize(new, whole("2"), upstream) is None
    verdict = check_resize(new, whole("2"), msgspec.structs.replace(upstream, quirks=PODSLICE))
    assert verdict is not None
    assert verdict.message == (STATIC_CPU if resource == "cpu" else STATIC_MEMORY)
    for fact in ({"gates": GATES}, {"pod_scope": False}):
        nothing_held = msgspec.structs.replace(upstream, quirks=PODSLICE, **fact)
        assert check_resize(new, whole("2"), nothing_held) is None


def test_one_try() -> None:
    """Unchanged pods are settled without a question; otherwise the admission chain decides once, and its refusal is
    not a last word."""
    asked = []

    def refuse(desired: Pod) -> Refusal:
        asked.append(desired)
        return Refusal(RefusalKind("full", "no room", "OutOfcpu"))

    old, new, node = pod(burstable("1")), pod(burstable("2")), ResizeNode(GATES)
    assert try_resize(old, old, node, refuse) == ResizeVerdict("Unchanged")
    assert not asked
    assert try_resize(new, old, node, refuse) == ResizeVerdict("Deferred", "no room", reason="OutOfcpu")
    assert asked == [new]
    assert try_resize(new, old, node, lambda desired: None) == ResizeVerdict("Allocated")


def test_allocated_pod() -> None:
    """The kubelet's other parts see the specification with the resources that were granted."""
    old, new = whole("1"), whole("2")
    record = allocation_of(old, GATES)
    assert apply_allocation(new, record, GATES) == old
    assert apply_allocation(new, None, GATES) == new
    off = FeatureGates.from_overrides({"InPlacePodLevelResourcesVerticalScaling": False})
    assert allocation_of(old, off).pod_level is None
    assert apply_allocation(new, allocation_of(old, off), off).spec.resources == new.spec.resources


# The pending list


def pending(name: str, old: str, new: str, since: float | None = None, **spec: Any) -> PendingResize:
    return PendingResize(pod(burstable(old), name=name, **spec), pod(burstable(new), name=name, **spec), since)


def test_the_order_of_tries() -> None:
    """Resizes that free something come first, then priority, then Guaranteed pods, then the longest wait."""
    fair = PendingResize(pod(guaranteed("1", "1Gi"), name="fair"), pod(guaranteed("2", "1Gi"), name="fair"), 9.0)
    resizes = [
        pending("new", "1", "2"),
        pending("late", "1", "2", 5.0),
        pending("early", "1", "2", 0.0),
        fair,
        pending("important", "1", "2", priority=100),
        pending("modest", "2", "1"),
    ]
    names = [one.desired.metadata.name for one in sort_pending(resizes, GATES)]
    assert names == ["modest", "important", "fair", "early", "late", "new"]


def test_the_queue() -> None:
    """Deferred resizes wait and are tried again; what one gives back lets the others try once more."""
    queue = ResizeQueue(GATES)
    room = [1000]

    def attempt(resize: PendingResize) -> ResizeVerdict:
        def cpu(one: Pod) -> int:
            return (one.spec.containers[0].resources.requests or {})["cpu"].milli_value()

        grows = cpu(resize.desired) - cpu(resize.allocated)
        if grows > room[0]:
            return ResizeVerdict("Deferred", "no room")
        room[0] -= grows
        return ResizeVerdict("Allocated")

    queue.submit(pending("big", "1", "4"))
    assert [one.verdict.outcome for one in queue.retry("pod_updated", attempt)] == ["Deferred"]
    assert queue.uids == ["uid-big"]
    queue.submit(pending("small", "3", "1"))
    attempts = queue.retry("pod_updated", attempt)
    assert [(one.pod.metadata.name, one.verdict.outcome, one.trigger) for one in attempts] == [
        ("small", "Allocated", "pod_updated"),
        ("big", "Allocated", "pod_updated"),
    ]
    assert queue.uids == []
    assert queue.metrics == {series("pod_deferred_accepted_resizes_total", retry_trigger="pod_updated"): 1}


def test_a_pod_keeps_its_place() -> None:
    """A pod that changes its request while it waits keeps its place; only a newcomer has the list sorted."""
    queue = ResizeQueue(GATES)
    queue.submit(pending("first", "1", "3", 1.0))
    queue.submit(pending("second", "1", "3", 2.0))
    queue.submit(pending("second", "3", "1", 7.0))
    assert queue.uids == ["uid-first", "uid-second"]
    queue.submit(pending("third", "1", "3", 3.0))
    assert queue.uids == ["uid-second", "uid-first", "uid-third"]
    queue.drop("uid-first")
    assert queue.uids == ["uid-second", "uid-third"]


def test_infeasible_resizes_leave_the_queue() -> None:
    """An infeasible resize is not tried again, and is counted by its reason; another pod's shrinking retries."""
    queue = ResizeQueue(GATES)
    queue.submit(pending("wait", "1", "2"))
    queue.submit(pending("never", "1", "2"))
    queue.submit(pending("shrink", "2", "1"))
    tries: list[str] = []

    def attempt(resize: PendingResize) -> ResizeVerdict:
        tries.append(resize.desired.metadata.name)
        outcome = {"never": "Infeasible", "shrink": "Allocated"}.get(tries[-1], "Deferred")
        return ResizeVerdict(outcome, "", "windows" if outcome == "Infeasible" else "")  # type: ignore[arg-type]

    attempts = queue.retry("periodic_retry", attempt)
    assert tries == ["shrink", "wait", "never", "wait"]
    assert attempts[-1].trigger == "pod_resized"
    assert queue.uids == ["uid-wait"]
    assert queue.metrics == {series("pod_infeasible_resizes_total", reason_detail="windows"): 1}
