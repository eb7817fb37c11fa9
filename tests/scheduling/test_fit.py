"""Requests that the scheduler's filter and scores count (pod-level-resources 13)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.scheduling.predicates import (
    InsufficientResource,
    accounted_requests,
    filter_code,
    filter_requests,
    insufficient_resources,
    no_node_message,
    non_zero_requests,
)
from podslice.scheduling.scoring import (
    NodeLoad,
    balanced_allocation_score,
    balanced_scoring_requests,
    fit_scoring_requests,
    least_allocated_score,
    most_allocated_score,
)
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.scheduling.pods import OFF, ON, asks, pod

MI = 1 << 20
NODE = {"cpu": 4000, "memory": 16384 * MI, "pods": 2}
EMPTY = NodeLoad(NODE, {"cpu": 0, "memory": 0}, {"cpu": 0, "memory": 0})


@pytest.mark.parametrize(
    ("resources", "overhead", "gates", "counted"),
    [
        pytest.param(None, None, ON, {"cpu": 1000, "memory": MI}, id="containers"),
        pytest.param(asks("3"), None, ON, {"cpu": 3000, "memory": MI}, id="pod level where it is named"),
        pytest.param(asks("3"), None, OFF, {"cpu": 1000, "memory": MI}, id="gate off"),
        pytest.param(asks("3"), {"cpu": "250m"}, ON, {"cpu": 3250, "memory": MI}, id="overhead comes on top"),
    ],
)
def test_filter_requests(
    resources: dict[str, Any] | None, overhead: dict[str, str] | None, gates: Any, counted: dict[str, int]
) -> None:
    """An incoming pod counts with its effective requests: CPUs in milli, the rest in whole units."""
    wanted = pod(asks("500m", "1Mi"), asks("500m"), resources=resources, overhead=overhead)
    assert filter_requests(wanted, gates) == counted


def test_status_counts_once_a_pod_is_on_a_node() -> None:
    """A pod whose resize down is pending holds the larger amount on its node, but asks for the smaller one."""
    status = {
        "containerStatuses": [{"name": "c0", "resources": asks("2", "1Gi")}],
        "resources": asks("4", "1Gi"),
        "allocatedResources": {"cpu": "3"},
    }
    shrinking = pod(asks("1", "1Gi"), resources=asks("1", "1Gi"), status=status)
    assert filter_requests(shrinking, ON)["cpu"] == 1000
    assert accounted_requests(shrinking, ON)["cpu"] == 4000
    assert accounted_requests(shrinking, OFF)["cpu"] == 2000
    containers_only = FeatureGates.from_overrides({"InPlacePodLevelResourcesVerticalScaling": False})
    assert accounted_requests(shrinking, containers_only)["cpu"] == 1000


@pytest.mark.parametrize(
    ("containers", "resources", "counted"),
    [
        pytest.param([{}, {}], None, {"cpu": 200, "memory": 400 * MI}, id="defaults per container"),
        pytest.param([asks("1"), {}], None, {"cpu": 1100, "memory": 400 * MI}, id="only for what is missing"),
        pytest.param([{}, {}], asks("1"), {"cpu": 1000, "memory": 400 * MI}, id="pod level lacks memory"),
        pytest.param(
            [asks(None, "1Mi"), {}], asks("1"), {"cpu": 1000, "memory": MI}, id="the pod as a whole has memory"
        ),
        pytest.param([{}, {}], asks("0", "0"), {"cpu": 0, "memory": 0}, id="an explicit zero is a request"),
    ],
)
def test_non_zero_requests(
    containers: list[dict[str, Any]], resources: dict[str, Any] | None, counted: dict[str, int]
) -> None:
    """Pods that request nothing still count a little where nodes are compared; with pod-level requests the default
    only fills what the whole pod lacks."""
    assert non_zero_requests(pod(*containers, resources=resources), ON) == counted


def test_non_zero_requests_without_the_gate() -> None:
    """With the gate off a pod-level request does not keep containers from their defaults."""
    assert non_zero_requests(pod(asks("1"), {}, resources=asks("4")), OFF) == {"cpu": 1100, "memory": 400 * MI}


def test_requests_beyond_64_bits() -> None:
    """An amount that overflows counts as nothing in the filter, as upstream's integers have it."""
    assert filter_requests(pod(asks(None, "9223372036854775808")), ON) == {"memory": 0}


def test_answers_of_the_filter() -> None:
    """A shortage that preemption could end is unschedulable, one on every empty node of this size is unresolvable."""
    full = insufficient_resources({"cpu": 2000}, {"cpu": 3000}, NODE, pods=1)
    assert full == [InsufficientResource("cpu", 2000, 3000, 4000)]
    assert filter_code(full) == "Unschedulable"
    never = insufficient_resources({"cpu": 5000, "hugepages-2Mi": 1}, {}, NODE, pods=2)
    assert [lack.reason for lack in never] == ["Too many pods", "Insufficient cpu", "Insufficient hugepages-2Mi"]
    assert filter_code(never) == "UnschedulableAndUnresolvable"
    assert filter_code(insufficient_resources({"cpu": 4000}, {}, NODE, pods=1)) == "Success"
    assert filter_code(insufficient_resources({}, {}, {"cpu": 4000}, pods=0)) == "Unschedulable"
    assert no_node_message([full, never, full]) == (
        "0/3 nodes are available: 1 Insufficient hugepages-2Mi, 1 Too many pods, 3 Insufficient cpu."
    )


def test_requests_named_pods_do_not_count() -> None:
    """A container that requests the resource `pods` takes no pod slots."""
    wanted = filter_requests(pod({"requests": {"pods": "7"}}), ON)
    assert insufficient_resources(wanted, {}, NODE, pods=1) == []


def test_fit_score_sees_the_pod_level() -> None:
    """Profile podslice scores a pod-level pod as the node will count it; v1.36.2 looks at its containers only."""
    wanted = pod({}, {}, resources=asks("2", "4Gi"))
    assert fit_scoring_requests(wanted, ON, KUBELET_1_36) == {"cpu": 200, "memory": 400 * MI}
    assert fit_scoring_requests(wanted, ON, PODSLICE) == {"cpu": 2000, "memory": 4096 * MI}
    assert fit_scoring_requests(wanted, OFF, PODSLICE) == {"cpu": 200, "memory": 400 * MI}


@pytest.mark.parametrize(
    ("requests", "load", "least", "most", "balanced"),
    [
        pytest.param({"cpu": 2000, "memory": 4096 * MI}, EMPTY, 62, 37, 68, id="empty node"),
        pytest.param({"cpu": 0, "memory": 0}, EMPTY, 100, 0, 75, id="nothing requested"),
        pytest.param({"cpu": 5000, "memory": 4096 * MI}, EMPTY, 37, 62, 56, id="more CPUs than there are"),
        pytest.param(
            {"cpu": 1000, "memory": 0},
            NodeLoad(NODE, {"cpu": 0, "memory": 8192 * MI}, {"cpu": 0, "memory": 8192 * MI}),
            62, 37, 81, id="the pod evens the node out",
        ),
        pytest.param(
            {"cpu": 1000, "memory": 100}, NodeLoad({"cpu": 2000}, {"cpu": 0, "memory": 0}, {"cpu": 0, "memory": 0}),
            50, 50, 75, id="a resource the node lacks is left out",
        ),
    ],
)  # fmt: skip
def test_scores(requests: dict[str, int], load: NodeLoad, least: int, most: int, balanced: int) -> None:
    """Free and used share are means of CPU and memory in whole percent; balance rewards what evens the two out."""
    assert least_allocated_score(requests, load) == least
    assert most_allocated_score(requests, load) == most
    assert balanced_allocation_score(requests, load) == balanced


AMOUNT = st.integers(0, 8000)


@given(cpu=AMOUNT, memory=AMOUNT, used_cpu=AMOUNT, used_memory=AMOUNT)
def test_scores_stay_in_range(cpu: int, memory: int, used_cpu: int, used_memory: int) -> None:
    """Scores run from 0 to 100, and free and used share add up to 100 but for rounding."""
    requests, used = {"cpu": cpu, "memory": memory * MI}, {"cpu": used_cpu, "memory": used_memory * MI}
    load = NodeLoad(NODE, used, used)
    least, most = least_allocated_score(requests, load), most_allocated_score(requests, load)
    assert 98 <= least + most <= 100
    assert all(0 <= score <= 100 for score in (least, most, balanced_allocation_score(requests, load)))


def test_balanced_request_has_no_defaults() -> None:
    """BalancedAllocation counts what the pod really requests."""
    assert balanced_scoring_requests(pod({}, resources=asks("2")), ON) == {"cpu": 2000, "memory": 0}
