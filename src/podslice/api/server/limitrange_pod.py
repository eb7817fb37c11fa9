"""Defaults for whole pods from LimitRange items of type Pod (KEP-2837, Admission Controller).

No release has them: v1.36.2 refuses such a LimitRange. The KEP says only that these defaults shall exist. The rule
here: they complete what is missing for the pod as a whole, and never contradict the pod.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import aggregate, container_limits, container_requests
from podslice.api.pod.spec import Pod, ResourceList, ResourceRequirements
from podslice.api.server.defaults import LIMITS_GATE, all_containers_limit, default_pod_level

replace = msgspec.structs.replace

GATE = "PodLevelResourcesLimitRange"
_RESOURCES = ("cpu", "memory")


def fill_pod_level(
    pod: Pod, requests: ResourceList, limits: ResourceList, gates: Mapping[str, bool], notes: list[str]
) -> Pod:
    """Return the pod with `spec.resources` completed from the defaults for cpu and memory; adds to the annotation's
    notes.

    A request is missing where neither the pod nor a container requests the resource; a limit where the pod has none and
    not every container has one. A default limit is raised to the pod's request and to its largest container limit.
    Windows pods have no pod-level resources.
    """
    spec = pod.spec
    if not gates[GATE] or not gates["PodLevelResources"] or (spec.os is not None and spec.os.name == "windows"):
        return pod
    own = spec.resources or ResourceRequirements()
    requested = {**aggregate(pod, container_requests), **(own.requests or {})}
    filled_requests = {name: requests[name] for name in _RESOURCES if name in requests and name not in requested}
    filled_limits: ResourceList = {}
    for name in _RESOURCES:
        if name in limits and name not in (own.limits or {}) and not all_containers_limit(pod, name):
            floors = [container_limits(one)[name] for one in spec.containers if name in container_limits(one)]
            floors += [{**requested, **filled_requests}[name]] if name in requested or name in filled_requests else []
            filled_limits[name] = max(limits[name], *floors) if floors else limits[name]
    for title, filled in (("request", filled_requests), ("limit", filled_limits)):
        if filled:
            notes.append(f"{', '.join(sorted(filled))} {title} for pod")
    if not filled_requests and not filled_limits:
        return pod
    resources = ResourceRequirements(
        requests={**(own.requests or {}), **filled_requests},
        limits={**(own.limits or {}), **filled_limits},
        claims=own.claims,
    )
    resources = default_pod_level(pod, resources, limits_too=gates[LIMITS_GATE])
    return replace(pod, spec=replace(spec, resources=resources))
