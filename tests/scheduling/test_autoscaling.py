"""Requests that autoscalers count of a pod (pod-level-resources 14)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.demand import aggregate, container_requests
from podslice.scheduling.autoscaling import (
    MetricsError,
    Utilization,
    cluster_autoscaler_requests,
    hpa_request,
    hpa_utilization,
    vpa_recommendation,
)
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks
from tests.scheduling.pods import OFF, ON, asks, pod, quantities

SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": asks("300m")}
INIT = {"name": "i", "resources": asks("4")}


@pytest.mark.parametrize(
    ("resources", "gates", "quirks", "milli"),
    [
        pytest.param(None, ON, KUBELET_1_36, 1300, id="plain sum of what keeps running"),
        pytest.param(asks("2"), ON, KUBELET_1_36, 2250, id="kubelet-1.36: pod level with overhead"),
        pytest.param(asks("2"), ON, PODSLICE, 2000, id="podslice: pod level alone"),
        pytest.param(asks("2"), OFF, KUBELET_1_36, 1300, id="gate off"),
        pytest.param(asks(None, "1Gi"), ON, KUBELET_1_36, 4550, id="kubelet-1.36: init peak with overhead"),
        pytest.param(asks(None, "1Gi"), ON, PODSLICE, 1300, id="podslice: the running containers"),
    ],
)
def test_hpa_request(resources: dict[str, Any] | None, gates: Any, quirks: Quirks, milli: int) -> None:
    """Usage of running containers is compared with pod-level requests, or with the sum of theirs."""
    scaled = pod(asks("1"), initContainers=[SIDECAR, INIT], overhead={"cpu": "250m"}, resources=resources)
    assert hpa_request(scaled, "cpu", gates, quirks) == milli


def test_hpa_looks_at_one_container() -> None:
    """Metric type ContainerResource counts the container's own request, whatever the pod level says."""
    scaled = pod(asks("1"), asks("500m"), resources=asks("8"), initContainers=[SIDECAR])
    assert [hpa_request(scaled, "cpu", ON, PODSLICE, container=name) for name in ("c1", "s")] == [500, 300]


@pytest.mark.parametrize(
    ("resources", "container", "quirks", "message"),
    [
        pytest.param(None, None, PODSLICE, "missing request for cpu in container c1 of Pod p", id="container"),
        pytest.param(asks(None, "1Gi"), None, PODSLICE, "missing request for cpu in container c1 of Pod p", id="ours"),
        pytest.param(None, "other", PODSLICE, "container other not found in Pod p", id="unknown container"),
        pytest.param(None, "c1", PODSLICE, "missing request for cpu in container c1 of Pod p", id="its own request"),
    ],
)
def test_hpa_errors(resources: dict[str, Any] | None, container: str | None, quirks: Quirks, message: str) -> None:
    """A missing request is named with container and pod."""
    with pytest.raises(MetricsError) as error:
        hpa_request(pod(asks("1"), {}, resources=resources), "cpu", ON, quirks, container=container)
    assert str(error.value) == message


def test_hpa_missing_pod_level_request() -> None:
    """In v1.36.2 a pod with pod-level requests must have the resource somewhere."""
    with pytest.raises(MetricsError) as error:
        hpa_request(pod({}, resources=asks("1")), "memory", ON, KUBELET_1_36)
    assert str(error.value) == "missing pod-level request for memory in Pod p"


def test_hpa_utilization() -> None:
    """The percentage is truncated before it is compared with the target."""
    assert hpa_utilization([500, 167], [500, 500], 50) == Utilization(66, 66 / 50)
    with pytest.raises(MetricsError, match="no metrics returned matched known pods"):
        hpa_utilization([1], [0], 50)


def test_cluster_autoscaler_counts_as_the_scheduler() -> None:
    """A new node must hold the effective request, pod level and overhead included."""
    wanted = pod(asks("1", "1Gi"), resources=asks("4"), overhead={"cpu": "1"})
    assert cluster_autoscaler_requests(wanted, ON) == {"cpu": 5000, "memory": 1 << 30}


def test_vpa_recommends_for_the_pod_as_well() -> None:
    """A pod-level pod gets a pod part that covers its containers, so that the API server takes both together."""
    scaled = pod(asks("1", "1Gi"), asks("500m"), resources=asks("2"))
    recommendation = vpa_recommendation(scaled, {"c0": quantities(cpu="3"), "gone": quantities(cpu="9")}, ON)
    assert recommendation.to_dict() == {
        "containerRecommendations": [{"containerName": "c0", "target": {"cpu": "3"}}],
        "podLevelResources": {"target": {"cpu": "3500m"}},
    }
    followed = pod(asks("3", "1Gi"), asks("500m"))
    assert recommendation.pod is not None
    assert recommendation.pod["cpu"] >= aggregate(followed, container_requests)["cpu"]


def test_vpa_leaves_out_what_no_container_requests() -> None:
    """A resource that the pod level alone requests stays as it is: there is nothing to derive it from."""
    scaled = pod(asks("1"), resources=asks("2", "1Gi"))
    assert vpa_recommendation(scaled, {}, ON).to_dict()["podLevelResources"] == {"target": {"cpu": "1"}}


@pytest.mark.parametrize(("resources", "gates"), [(None, ON), (asks("2"), OFF)], ids=["no pod level", "gate off"])
def test_vpa_without_pod_level(resources: dict[str, Any] | None, gates: Any) -> None:
    """Other pods get recommendations for containers only."""
    recommendation = vpa_recommendation(pod(asks("1"), resources=resources), {"c0": quantities(cpu="2")}, gates)
    assert "podLevelResources" not in recommendation.to_dict()
