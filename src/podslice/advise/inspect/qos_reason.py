"""The reason for a pod's QoS class, in one sentence (pod-level-resources 6)."""

from __future__ import annotations

from podslice.advise.inspect.facts import Gates
from podslice.advise.inspect.page import QOS
from podslice.api.pod.demand import (
    BEST_EFFORT,
    GUARANTEED,
    compute_qos,
    containers_in_order,
    is_pod_level_resources_set,
)
from podslice.api.pod.spec import Pod, ResourceRequirements
from podslice.values.quantity import ZERO

_RESOURCES = ("cpu", "memory")
_SHOWN = 3


def qos(pod: Pod, gates: Gates) -> QOS:
    """Return the class of a defaulted pod with its reason; a class that the API server has stored takes precedence."""
    stored = pod.status.qos_class
    computed = compute_qos(pod, gates)
    if stored and stored != computed:
        return QOS(stored, f"as stored in status.qosClass; the resources would make it {computed}")
    return QOS(computed, _reason(pod, gates, computed))


def _reason(pod: Pod, gates: Gates, computed: str) -> str:
    resources = pod.spec.resources
    if resources is not None and gates["PodLevelResources"]:
        if is_pod_level_resources_set(pod):
            return _pod_level_reason(resources, computed)
        if computed == BEST_EFFORT:
            return "spec.resources is present but names no cpu or memory, and hides what the containers have"
    if computed == GUARANTEED:
        return "every container has cpu and memory limits and equal requests"
    if computed == BEST_EFFORT:
        return "no container requests or limits cpu or memory"
    gaps = [gap for container in containers_in_order(pod) for gap in _gaps(container.name, container.resources)]
    return f"not Guaranteed, because {_list_gaps(gaps)}"


def _pod_level_reason(resources: ResourceRequirements, computed: str) -> str:
    if computed == GUARANTEED:
        return "spec.resources has cpu and memory limits and equal requests; the containers do not matter"
    if computed == BEST_EFFORT:
        return "spec.resources has no cpu or memory above 0; the containers do not matter"
    return f"not Guaranteed, because {_list_gaps(_gaps('spec.resources', resources))}; the containers do not matter"


def _gaps(owner: str, resources: ResourceRequirements) -> list[str]:
    requests, limits = resources.requests or {}, resources.limits or {}
    missing = [name for name in _RESOURCES if limits.get(name, ZERO).is_zero()]
    gaps = [f"{owner} has no {' and no '.join(missing)} limit"] if missing else []
    # Quantities may be negative: the QoS class ignores such a limit.
    gaps += [f"{owner} limits {name} to {limits[name]}, which counts as none"
             for name in _RESOURCES if name in limits and limits[name].sign() < 0]  # fmt: skip
    for name in _RESOURCES:
        request, limit = requests.get(name, ZERO), limits.get(name, ZERO)
        if name not in missing and request != limit:
            gaps.append(f"{owner} requests {request} {name} but is limited to {limit}")
    return gaps


def _list_gaps(gaps: list[str]) -> str:
    rest = len(gaps) - _SHOWN
    return ", ".join(gaps[:_SHOWN]) + (f" (and {rest} more)" if rest > 0 else "")
