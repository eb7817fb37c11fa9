"""The QoS class of a pod (spec pod-level-resources 6, cpu-topology 5.1)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.pod.demand import add_into, containers_in_order, is_pod_level_resources_set
from podslice.core.pod.spec import Container, Pod, ResourceList
from podslice.core.values.quantity import Quantity

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
_QOS_RESOURCES = ("cpu", "memory")
_FIX_GATE = "PodLevelResourcesFixKubeletQOSClass"


def pod_qos(pod: Pod, gates: Mapping[str, bool]) -> str:
    """The class the API server stored in the status, else computed."""
    return pod.status.qos_class or compute_qos(pod, gates)


def compute_qos(pod: Pod, gates: Mapping[str, bool]) -> str:
    """The class that follows from the specification.

    An empty `spec.resources` hides the containers in v1.36.2; with the KEP's fix gate only a set one does.
    """
    resources = pod.spec.resources
    if (
        resources is not None
        and gates["PodLevelResources"]
        and (is_pod_level_resources_set(pod) or not gates[_FIX_GATE])
    ):
        requests = _positive(resources.requests)
        limits = _positive(resources.limits)
        complete = not resources.limits or len(limits) == len(_QOS_RESOURCES)
        return _classify(requests, limits, complete)
    requests, limits, complete = {}, {}, True
    for container in containers_in_order(pod):
        add_into(requests, _positive(container.resources.requests))
        own_limits = _positive(container.resources.limits)
        add_into(limits, own_limits)
        complete = complete and len(own_limits) == len(_QOS_RESOURCES)
    return _classify(requests, limits, complete)


def _classify(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], complete: bool) -> str:
    if not requests and not limits:
        return BEST_EFFORT
    if complete and requests == limits:
        return GUARANTEED
    return BURSTABLE


def _positive(resources: ResourceList | None) -> dict[str, Quantity]:
    if not resources:
        return {}
    return {name: resources[name] for name in _QOS_RESOURCES if name in resources and resources[name].nano > 0}


def is_container_equivalent_guaranteed(container: Container) -> bool:
    """True when cpu and memory requests of the container are non-zero and equal to its limits (KEP-5526)."""
    requests = container.resources.requests
    limits = container.resources.limits
    if not requests or not limits:
        return False
    for name in _QOS_RESOURCES:
        request = requests.get(name)
        if request is None or request.nano == 0 or request != limits.get(name):
            return False
    return True
