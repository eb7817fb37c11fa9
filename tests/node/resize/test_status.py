"""The resources in the pod's status."""

from __future__ import annotations

import msgspec
import pytest

from podslice.api.pod.spec import Pod, PodAllocation, ResourceRequirements, allocation_of
from podslice.node.resize.status import ObservedCgroup, allocated_resources, is_in_progress, status_resources
from podslice.values.quantity import Quantity
from tests.node.resize.helpers import GATES, burstable, pod, resources

GI = 1 << 30


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}


def sized(cpu: str = "1", limit: str = "2") -> Pod:
    return pod(burstable("500m", "256Mi"), pod_level=resources({"cpu": cpu}, {"cpu": limit, "memory": "1Gi"}))


def test_allocated_resources() -> None:
    """The request of the pod as granted, overhead included."""
    one = pod(burstable("1", "1Gi"), pod_level=resources({"cpu": "2"}), overhead={"cpu": "250m"})
    assert allocated_resources(one, GATES) == amounts(cpu="2250m", memory="1Gi")


def test_pods_that_do_not_run() -> None:
    """Before a pod runs its status shows effective requests and limits."""
    one = sized()
    waiting = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase="Pending"))
    assert status_resources(waiting, GATES, ObservedCgroup(), None) == ResourceRequirements(
        amounts(cpu="1", memory="256Mi"), amounts(cpu="2", memory="1Gi")
    )


def test_running_pods_report_their_cgroup() -> None:
    """A running pod shows what its cgroup says; weights are coarse, so 1 CPU reads 975m."""
    cgroup = ObservedCgroup(cpu_weight=39, cpu_quota=150_000, cpu_period=100_000, memory_max=2 * GI)
    shown = status_resources(sized(), GATES, cgroup, None)
    assert shown.requests == amounts(cpu="975m", memory="256Mi")
    assert shown.limits == amounts(cpu="1500m", memory="2Gi")
    assert str((shown.limits or {})["memory"]) == "2Gi"


def test_what_cannot_be_read() -> None:
    """The previous status stands in for files that cannot be read; a memory request once shown never changes."""
    before = ResourceRequirements(amounts(cpu="3", memory="9Gi"), amounts(cpu="4", memory="5Gi"))
    assert status_resources(sized(), GATES, ObservedCgroup(), before) == before
    readable = ObservedCgroup(cpu_weight=39, cpu_quota=-1, cpu_period=100_000, memory_max=-1)
    shown = status_resources(sized(), GATES, readable, before)
    assert shown.requests == amounts(cpu="975m", memory="9Gi")
    assert shown.limits == amounts(cpu="2", memory="1Gi")


@pytest.mark.parametrize(("weight", "cpu", "expected"), [(1, "1m", "1m"), (1, "3m", "2m"), (2, "1m", "28m")])
def test_the_smallest_requests(weight: int, cpu: str, expected: str) -> None:
    """Up to 2m the cgroup cannot distinguish requests, so the specification counts."""
    one = pod(burstable("1m"), pod_level=resources({"cpu": cpu}))
    shown = status_resources(one, GATES, ObservedCgroup(cpu_weight=weight), None)
    assert (shown.requests or {})["cpu"] == Quantity.parse(expected)


@pytest.mark.parametrize(("quota", "limit", "expected"), [(1000, "5m", "5m"), (1000, "11m", "10m")])
def test_the_smallest_limits(quota: int, limit: str, expected: str) -> None:
    """Up to 10m the quota is the smallest one there is, so the specification counts."""
    one = pod(burstable("1m"), pod_level=resources({"cpu": "1m"}, {"cpu": limit}))
    shown = status_resources(one, GATES, ObservedCgroup(cpu_quota=quota, cpu_period=100_000), None)
    assert (shown.limits or {})["cpu"] == Quantity.parse(expected)


RUNNING = frozenset({"c0"})


def test_in_progress() -> None:
    """A resize is in progress while a running container or the pod has not been written as granted."""
    old = allocation_of(sized(), GATES)
    assert not is_in_progress(sized(), old, GATES, RUNNING)
    assert not is_in_progress(sized(), None, GATES, RUNNING)
    assert is_in_progress(sized("2"), old, GATES, frozenset())
    without_pod = PodAllocation(old.containers)
    assert not is_in_progress(sized("2"), without_pod, GATES, frozenset())
    changed = pod(burstable("600m", "256Mi"), pod_level=resources({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}))
    assert is_in_progress(changed, old, GATES, RUNNING)
    assert not is_in_progress(changed, old, GATES, frozenset())


def test_an_implied_limit_is_in_progress() -> None:
    """A pod limit that a container inherits counts for the container."""
    new, old = sized(limit="3"), allocation_of(sized(), GATES)
    assert is_in_progress(new, PodAllocation(old.containers, old.pod_level), GATES, RUNNING)
