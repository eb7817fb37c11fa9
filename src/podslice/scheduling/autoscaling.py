"""The requests of a pod that autoscalers count (pod-level-resources 14).

The HorizontalPodAutoscaler divides usage by requests, the Cluster Autoscaler asks for nodes as the scheduler would, the
VerticalPodAutoscaler recommends requests. The API server rejects pods whose containers request more than the pod level.
So a recommendation for a pod with pod-level requests needs a part for the pod itself. KEP-2837 plans one but defines no
fields; the shape here is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from podslice.api.pod.demand import (
    aggregate,
    container_requests,
    is_pod_level_requests_set,
    pod_requests,
    requests_of,
)
from podslice.api.pod.spec import Container, Pod, ResourceList, is_restartable_init
from podslice.scheduling.predicates import filter_requests
from podslice.values.errors import PodsliceError
from podslice.values.quantity import Quantity
from podslice.values.quirks import Quirks

_NO_AMOUNTS: ResourceList = {}


class MetricsError(PodsliceError):
    """Raised when the autoscaler cannot compute a utilisation; the text is upstream's. `problem` is it without the
    pod's name."""

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        super().__init__(f"{problem}{place}")


class Utilization(NamedTuple):
    """Usage as a truncated percentage of requests, and its relation to the target percentage."""

    percent: int
    ratio: float


def hpa_request(
    pod: Pod, resource: str, gates: Mapping[str, bool], quirks: Quirks, *, container: str | None = None
) -> int:
    """Return the request in milli units that a pod's usage of `resource` is compared with.

    `container` selects one container (metric type ContainerResource), which never counts the pod level. Raises
    `MetricsError` where a request is missing.
    """
    if container is not None:
        for one in (*pod.spec.containers, *pod.spec.init_containers):
            if one.name == container:
                return _container_request(pod, one, resource)
        raise MetricsError(f"container {container} not found", f" in Pod {pod.metadata.name}")
    pod_level = _pod_level_request(pod, resource, gates, quirks)
    if pod_level is not None:
        return pod_level.milli_value()
    return sum(_container_request(pod, one, resource) for one in _long_running(pod))


def hpa_utilization(usage: Iterable[int], requests: Iterable[int], target: int) -> Utilization:
    """Return the utilisation over the pods of a workload; amounts in milli units, `target` in percent.

    Raises `MetricsError` when nothing is requested.
    """
    requested = sum(requests)
    if requested == 0:
        raise MetricsError("no metrics returned matched known pods")
    percent = sum(usage) * 100 // requested
    return Utilization(percent, percent / target)


def _pod_level_request(pod: Pod, resource: str, gates: Mapping[str, bool], quirks: Quirks) -> Quantity | None:
    """Return the pod-level request that stands for the containers', None if they count. Raises `MetricsError`."""
    resources = pod.spec.resources
    if not gates["PodLevelResources"] or resources is None or not is_pod_level_requests_set(pod):
        return None
    if not quirks.hpa_sums_differ:
        return requests_of(resources).get(resource)
    request = pod_requests(pod).get(resource)
    if request is None:
        raise MetricsError(f"missing pod-level request for {resource}", f" in Pod {pod.metadata.name}")
    return request


def _long_running(pod: Pod) -> list[Container]:
    return [*pod.spec.containers, *(one for one in pod.spec.init_containers if is_restartable_init(one))]


def _container_request(pod: Pod, container: Container, resource: str) -> int:
    request = container_requests(container).get(resource)
    if request is None:
        problem = f"missing request for {resource} in container {container.name}"
        raise MetricsError(problem, f" of Pod {pod.metadata.name}")
    return request.milli_value()


def cluster_autoscaler_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """Return what a pod requests of a node that does not exist yet, which is what the scheduler's filter counts. CPUs
    in milli, everything else in whole units."""
    return filter_requests(pod, gates)


class VPARecommendation(msgspec.Struct, frozen=True):
    """Recommended requests by container; `pod` only for pods with pod-level requests."""

    containers: dict[str, ResourceList]
    pod: ResourceList | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return `status.recommendation` of a VerticalPodAutoscaler; `podLevelResources` is KEP-2837's."""
        shown: dict[str, Any] = {
            "containerRecommendations": [
                {"containerName": name, "target": _texts(target)} for name, target in self.containers.items()
            ]
        }
        if self.pod is not None:
            shown["podLevelResources"] = {"target": _texts(self.pod)}
        return shown


def vpa_recommendation(pod: Pod, targets: Mapping[str, ResourceList], gates: Mapping[str, bool]) -> VPARecommendation:
    """Return a recommendation from targets by container name, with a pod part that keeps the pod valid.

    The pod part names what the pod level requests, as much as the containers together would then request (KEP-753);
    containers without target keep their requests.
    """

    def requests(container: Container) -> ResourceList:
        return {**container_requests(container), **targets.get(container.name, _NO_AMOUNTS)}

    known = {one.name for one in (*pod.spec.init_containers, *pod.spec.containers)}
    containers = {name: target for name, target in targets.items() if name in known}
    resources = pod.spec.resources
    if not gates["PodLevelResources"] or resources is None or not is_pod_level_requests_set(pod):
        return VPARecommendation(containers)
    total = aggregate(pod, requests)
    # A part for the pod that is smaller than its containers' sum would make the pod invalid.
    return VPARecommendation(containers, {name: total[name] for name in requests_of(resources) if name in total})


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
