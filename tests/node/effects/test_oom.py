"""oom_score_adj (pod-level-resources 9)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import Pod
from podslice.node.effects.oom import (
    oom_score_adjustments,
    remaining_memory_per_container,
    smallest_app_request,
)
from podslice.values.errors import UpstreamDefectError
from tests.node.effects.helpers import GI, gates, pod

NODE = 1000 * GI
LIMITED = {"limits": {"cpu": "1", "memory": "1Gi"}}


def memory(gibibytes: int) -> dict[str, Any]:
    return {"requests": {"memory": f"{gibibytes}Gi"}} if gibibytes else {}


def burstable(budget: int, *apps: int, **more: Any) -> Pod:
    """Containers requesting these GiB (0: nothing) in a pod requesting `budget` (0: no stanza)."""
    return pod(*map(memory, apps), resources=memory(budget) if budget else None, **more)


@pytest.mark.parametrize(
    ("one", "scores"),
    [
        pytest.param(burstable(180, 0, 0, 0), [940, 940, 940], id="the pod's memory is spread"),
        pytest.param(burstable(180, 50, 100, 0), [940, 890, 990], id="what remains is spread"),
        pytest.param(burstable(0, 50, 100, 0), [950, 900, 999], id="without pod level, 1000 becomes 999"),
        pytest.param(burstable(0, 999, 1), [3, 999], id="the lowest score of a Burstable pod is 3"),
        pytest.param(burstable(300, 100, init={"i": memory(200)}), [750, 850], id="plain init takes a share"),
        pytest.param(burstable(0, 200, 300, init={"s+": memory(100)}), [800, 800, 700], id="sidecar as low as an app"),
        pytest.param(burstable(0, 200, 300, init={"s+": memory(400)}), [600, 800, 700], id="sidecar with its own"),
        pytest.param(burstable(0, 200, 0, init={"s+": memory(100)}), [900, 800, 999], id="sidecar beside a bare app"),
        pytest.param(burstable(200, 100, 0, init={"s+": {}}), [967, 867, 967], id="sidecar and pod level"),
        pytest.param(
            burstable(100, 0, ephemeralContainers=[{"name": "debug"}]), [900, 900], id="ephemeral gets a share"
        ),
        pytest.param(pod(memory(5), resources={"requests": {"cpu": "1"}}), [995], id="pod level without memory"),
        pytest.param(pod({}), [1000], id="BestEffort"),
        pytest.param(pod(LIMITED, init={"i": LIMITED}),
                     [-997, -997], id="Guaranteed"),
        pytest.param(burstable(0, 5, priorityClassName="system-node-critical", priority=2_000_001_000), [-997],
                     id="node-critical"),
        pytest.param(burstable(0, 5, priorityClassName="system-node-critical", priority=5), [995],
                     id="the class alone is not critical"),
        pytest.param(burstable(0, 5, priorityClassName="system-cluster-critical", priority=2_000_000_000), [995],
                     id="cluster-critical is not node-critical"),
    ],
)  # fmt: skip
def test_scores(one: Pod, scores: list[int]) -> None:
    """Scores of init, app and ephemeral containers on a node with 1000Gi."""
    assert oom_score_adjustments(one, gates(), NODE) == scores


def test_without_the_gate_the_pod_level_does_not_count() -> None:
    """With PodLevelResources off nothing is spread."""
    off = gates(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
    assert oom_score_adjustments(burstable(180, 50, 100, 0), off, NODE) == [950, 900, 999]


def test_parts_of_the_score() -> None:
    """The share and the smallest app request can be asked for by themselves, in bytes."""
    one = burstable(180, 50, 100, 10)
    assert remaining_memory_per_container(one) == 20 * GI // 3
    assert smallest_app_request(one) == 10 * GI


def test_a_node_without_memory() -> None:
    """The kubelet divides by zero there; other classes have fixed scores."""
    with pytest.raises(UpstreamDefectError, match="node_without_memory"):
        oom_score_adjustments(burstable(0, 5), gates(), 0)
    assert oom_score_adjustments(pod({}), gates(), 0) == [1000]
