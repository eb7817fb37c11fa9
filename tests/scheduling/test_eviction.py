"""The order of evictions under memory pressure, and the pod status after one (pod-level-resources 10)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import Pod
from podslice.scheduling.eviction import (
    Threshold,
    Usage,
    eviction_requests,
    memory_eviction_message,
    rank_for_memory,
)
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks
from tests.scheduling.pods import OFF, ON, asks, pod, texts

GI = 1 << 30


@pytest.mark.parametrize(
    ("resources", "gates", "quirks", "memory"),
    [
        pytest.param(None, ON, KUBELET_1_36, "1Gi", id="containers"),
        pytest.param(asks(None, "3Gi"), ON, KUBELET_1_36, "3Gi", id="pod level"),
        pytest.param(asks("1"), ON, KUBELET_1_36, None, id="kubelet-1.36: a pod-level CPU hides memory"),
        pytest.param(asks("1"), ON, PODSLICE, "1Gi", id="podslice: it does not"),
        pytest.param(asks(None, "3Gi"), OFF, KUBELET_1_36, "3Gi", id="kubelet-1.36: counts with the gate off"),
        pytest.param(asks(None, "3Gi"), OFF, PODSLICE, "1Gi", id="podslice: the gate is obeyed"),
    ],
)
def test_requests(resources: dict[str, Any] | None, gates: Any, quirks: Quirks, memory: str | None) -> None:
    """Ranking uses pod-level requests where there are any; the profiles part where these do not name memory."""
    assert texts(eviction_requests(pod(asks("1", "1Gi"), resources=resources), gates, quirks)).get("memory") == memory


def test_overhead_only_adds_to_requests() -> None:
    """Overhead counts for resources that are requested."""
    wanted = pod(asks("1"), overhead={"cpu": "1", "memory": "1Gi"})
    assert texts(eviction_requests(wanted, ON, PODSLICE)) == {"cpu": "2"}


def ranked(*pods: tuple[Pod, int | None], quirks: Quirks = PODSLICE) -> list[str]:
    usages = [Usage(*entry) for entry in pods]
    return [usages[i].pod.metadata.name for i in rank_for_memory(usages, ON, quirks)]


def test_order() -> None:
    """No statistics first, then use above the request, then low priority, then the largest excess."""
    assert ranked(
        (pod(asks(None, "4Gi"), name="within its request", priority=-1), 2 * GI),
        (pod(asks(None, "1Gi"), name="a little above", priority=0), 2 * GI),
        (pod(asks(None, "1Gi"), name="far above", priority=0), 8 * GI),
        (pod(asks(None, "1Gi"), name="above, important", priority=9), 99 * GI),
        (pod({}, name="unknown", priority=9), None),
        (pod(asks(None, "2Gi"), name="exactly its request", priority=-1), 2 * GI),
    ) == [
        "unknown", "far above", "a little above", "above, important", "exactly its request", "within its request",
    ]  # fmt: skip


def test_equal_pods_keep_their_order() -> None:
    """The order is stable."""
    assert ranked(*((pod({}, name=name), 0) for name in "bca")) == ["b", "c", "a"]


def test_hidden_requests_change_the_order() -> None:
    """A pod that requested its memory in its containers is not the first to go for having a pod-level CPU request."""
    careful = pod(asks(None, "4Gi"), resources=asks("1"), name="careful")
    greedy = pod(asks(None, "1Gi"), name="greedy")
    assert ranked((careful, 3 * GI), (greedy, 2 * GI)) == ["greedy", "careful"]
    assert ranked((careful, 3 * GI), (greedy, 2 * GI), quirks=KUBELET_1_36) == ["careful", "greedy"]


def test_message_of_a_pod_level_pod() -> None:
    """The pod is named with its pod-level request, then the containers above their own."""
    evicted = Usage(pod(asks(None, "1Gi"), {}, resources=asks(None, "4Gi")), 5 * GI, {"c0": GI, "c1": 4 * GI})
    threshold = Threshold(Quantity.parse("100Mi"), Quantity.parse("90Mi"))
    assert memory_eviction_message(evicted, ON, threshold) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Pod p was using 5Gi, request is 4Gi, has larger consumption of memory. "
        "Container c1 was using 4Gi, request is 0, has larger consumption of memory. ",
        {
            "offending_pod": "p",
            "offending_pod_usage": "5Gi",
            "offending_containers": "c1",
            "offending_containers_usage": "4Gi",
        },
    )


@pytest.mark.parametrize(("gates", "memory"), [(OFF, 5 * GI), (ON, None)], ids=["gate off", "no statistics"])
def test_message_without_the_pod(gates: Any, memory: int | None) -> None:
    """Without the gate, or without the pod's usage, only containers are named."""
    evicted = Usage(pod(asks(None, "1Gi"), resources=asks(None, "4Gi")), memory, {"c0": 2 * GI})
    assert memory_eviction_message(evicted, gates) == (
        "The node was low on resource: memory. "
        "Container c0 was using 2Gi, request is 1Gi, has larger consumption of memory. ",
        {"offending_containers": "c0", "offending_containers_usage": "2Gi"},
    )
