"""The reason for a pod's QoS class, in one sentence (pod-level-resources 6)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.advise.inspect.facts import Gates
from podslice.advise.inspect.page import QOS
from podslice.api.pod.class_edits import container_kinds, describe_container, gap_words, gaps_by_owner
from podslice.api.pod.class_gaps import CLASS_RESOURCES
from podslice.api.pod.demand import (
    BEST_EFFORT,
    GUARANTEED,
    compute_qos,
    containers_in_order,
    is_pod_level_resources_set,
)
from podslice.api.pod.spec import Pod
from podslice.values.quantity import Quantity

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
            return _pod_level_reason(pod, gates, computed)
        if computed == BEST_EFFORT:
            return "spec.resources is present but names no cpu or memory, and hides what the containers have"
    if computed == GUARANTEED:
        return "every container has cpu and memory limits and equal requests"
    if computed == BEST_EFFORT:
        return "no container requests or limits cpu or memory"
    return f"not Guaranteed, because {_list_gaps(_gaps(pod, gates))}"


def _pod_level_reason(pod: Pod, gates: Gates, computed: str) -> str:
    if computed == GUARANTEED:
        return "spec.resources has cpu and memory limits and equal requests; the containers do not matter"
    if computed == BEST_EFFORT:
        return "spec.resources has no cpu or memory above 0; the containers do not matter"
    return f"not Guaranteed, because {_list_gaps(_gaps(pod, gates))}; the containers do not matter"


def _gaps(pod: Pod, gates: Gates) -> list[str]:
    """Return what keeps a pod from being Guaranteed, a clause for each container."""
    kinds = container_kinds(pod)
    return [
        f"{describe_container(name, kinds)} has {gap_words(gaps)}" for name, gaps in gaps_by_owner(pod, gates).items()
    ] + [
        # Quantities may be negative: the QoS class ignores such a limit.
        f"{owner} limits {name} to {limits[name]}, which counts as none"
        for owner, limits in _limits(pod, gates)
        for name in CLASS_RESOURCES
        if name in limits and limits[name].sign() < 0
    ]


def _limits(pod: Pod, gates: Gates) -> list[tuple[str, Mapping[str, Quantity]]]:
    resources = pod.spec.resources
    if resources is not None and gates["PodLevelResources"] and is_pod_level_resources_set(pod):
        return [("spec.resources", resources.limits or {})]
    return [(one.name, one.resources.limits or {}) for one in containers_in_order(pod)]


def _list_gaps(gaps: list[str]) -> str:
    rest = len(gaps) - _SHOWN
    return ", ".join(gaps[:_SHOWN]) + (f" (and {rest} more)" if rest > 0 else "")
