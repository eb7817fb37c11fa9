"""The QoS class of a pod (pod-level-resources 6; cpu-topology 5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.core.pod.demand import containers_in_order, is_pod_level_resources_set
from podslice.core.pod.spec import Container, Pod, ResourceList, ResourceRequirements

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
        return _class_of((resources,))
    return _class_of([container.resources for container in containers_in_order(pod)])


def _class_of(requirements: Iterable[ResourceRequirements]) -> str:
    """Guaranteed when every one has both limits, and the sums of requests and limits agree; only amounts above 0 count.

    Sums are in billionths of the unit.
    """
    complete = True
    requested, limited = [0, 0], [0, 0]
    for one in requirements:
        _add_positive(requested, one.requests)
        complete = _add_positive(limited, one.limits) and complete
    if not any(requested) and not any(limited):
        return BEST_EFFORT
    return GUARANTEED if complete and requested == limited else BURSTABLE


def _add_positive(total: list[int], amounts: ResourceList | None) -> bool:
    """Add cpu and memory to their sums; True when both are given."""
    if not amounts:
        return False
    both = True
    for position, name in enumerate(_QOS_RESOURCES):
        quantity = amounts.get(name)
        if quantity is not None and quantity.nano > 0:
            total[position] += quantity.nano
        else:
            both = False
    return both


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
