"""The order in which the kernel kills when memory runs out: `oom_score_adj` of containers (pod-level-resources 9)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.pod.critical import is_node_critical
from podslice.api.pod.demand import BEST_EFFORT, GUARANTEED, aggregate, container_requests, pod_qos, requests_of
from podslice.api.pod.spec import Container, Pod, is_restartable_init
from podslice.values.errors import UpstreamDefectError
from podslice.values.golang import divide, wrap_int64
from podslice.values.quantity import ZERO
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

PROTECTED_SCORE, BEST_EFFORT_SCORE = -997, 1000
LOWEST_BURSTABLE, HIGHEST_BURSTABLE = 3, 999


def oom_score_adjustments(
    pod: Pod, gates: Mapping[str, bool], memory_capacity: int, release: Release = DEFAULT
) -> list[int]:
    """Return the scores of init, app and ephemeral containers, in this order, on a node with `memory_capacity` bytes.

    Raises `UpstreamDefectError` for a node without memory, on which the kubelet crashes.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
    qos = pod_qos(pod, gates)
    if qos == GUARANTEED or is_node_critical(pod):
        return [PROTECTED_SCORE] * len(containers)
    if qos == BEST_EFFORT:
        return [BEST_EFFORT_SCORE] * len(containers)
    if memory_capacity == 0:
        raise UpstreamDefectError("node_without_memory", "OOM scores are shares of the node's memory")
    share = remaining_memory_per_container(pod) if gates["PodLevelResources"] else 0
    sidecar_most = _score(smallest_app_request(pod) + share, memory_capacity)
    inits = len(pod.spec.init_containers)
    scores = []
    for position, container in enumerate(containers):
        score = _score(_memory_request(container) + share, memory_capacity)
        if release.sidecars_outlive_apps and position < inits and is_restartable_init(container):
            # A sidecar must not be killed before the app container that requests least.
            score = min(score, sidecar_most)
        scores.append(_clamp(score))
    return scores


def remaining_memory_per_container(pod: Pod) -> int:
    """Return the bytes of the pod-level memory request that no container requests, spread over app and init
    containers."""
    resources = pod.spec.resources
    if resources is None:
        return 0
    request = requests_of(resources).get("memory", ZERO)
    count = len(pod.spec.containers) + len(pod.spec.init_containers)
    if request.is_zero() or not count:
        return 0
    asked = aggregate(pod, container_requests).get("memory", ZERO)
    return divide(wrap_int64(request.value() - asked.value()), count)


def smallest_app_request(pod: Pod) -> int:
    """Return the least memory, in bytes, that an app container requests; 0 if one requests none."""
    return min(map(_memory_request, pod.spec.containers), default=0)


def _memory_request(container: Container) -> int:
    return container_requests(container).get("memory", ZERO).value()


def _score(memory: int, capacity: int) -> int:
    return 1000 - divide(wrap_int64(1000 * wrap_int64(memory)), capacity)


def _clamp(score: int) -> int:
    """Keep a Burstable score above those of Guaranteed pods and below that of BestEffort pods."""
    if score < LOWEST_BURSTABLE:
        return LOWEST_BURSTABLE
    return HIGHEST_BURSTABLE if score == BEST_EFFORT_SCORE else score
