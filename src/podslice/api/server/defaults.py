"""What the API server fills in when it decodes a pod (pod-level-resources 3): requests from limits, pod-level
huge page limits and requests, and quantities rounded up to whole thousandths.

Most pods need little of this, and every pod passes here several times, so what does not change is not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import (
    HUGEPAGES_PREFIX,
    aggregate,
    containers_in_order,
    is_supported_pod_level_resource,
    own_limits,
    own_requests,
)
from podslice.api.pod.spec import Container, Pod, PodSpec, ResourceList, ResourceRequirements, map_requirements

replace = msgspec.structs.replace

LIMITS_GATE = "PodLevelResourcesFixUpdateDefaulting"
_NANO_PER_MILLI = 10**6
_FROM_CONTAINERS = ("cpu", "memory")


def default_pod(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """The pod as it is after decoding with defaults. Returns the same object where nothing changes.

    Idempotent. With the gate PodLevelResourcesFixUpdateDefaulting, which v1.36.2 lacks, pod-level limits are
    defaulted as well (pod-level-resources 3.5).
    """
    spec = pod.spec
    containers = _defaulted(spec.containers)
    init_containers = _defaulted(spec.init_containers)
    changes: dict[str, object] = {}
    if containers is not spec.containers:
        changes["containers"] = containers
    if init_containers is not spec.init_containers:
        changes["init_containers"] = init_containers
    if changes:
        spec = replace(spec, **changes)
        pod = replace(pod, spec=spec)
    if spec.resources is not None and gates["PodLevelResources"]:
        resources = default_pod_level(pod, spec.resources, limits_too=gates[LIMITS_GATE])
        if resources is not spec.resources:
            spec = replace(spec, resources=resources)
            pod = replace(pod, spec=spec)
    return replace(pod, spec=_rounded(spec)) if _has_fractions(spec) else pod


def _defaulted(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """The containers with a request for every limit; the same tuple where nothing is missing."""
    for container in containers:
        limits, requests = container.resources.limits, container.resources.requests
        if limits is not None and (requests is None or not limits.keys() <= requests.keys()):
            return tuple(map(_default_container, containers))
    return containers


def _default_container(container: Container) -> Container:
    resources = container.resources
    if resources.limits is None:
        return container
    requests = {**resources.limits, **(resources.requests or {})}
    return replace(container, resources=replace(resources, requests=requests))


def default_pod_level(pod: Pod, resources: ResourceRequirements, *, limits_too: bool) -> ResourceRequirements:
    """`spec.resources` with its defaults; the same object where nothing is missing.

    Huge page limits come from the containers, requests for cpu and memory from the containers as soon as any limit is
    given, other requests from the limits. `limits_too` gives a limit to every resource that all containers limit.
    """
    if not resources.limits and not resources.requests:
        return resources
    requests, limits = dict(resources.requests or {}), dict(resources.limits or {})
    _fill_limits(pod, requests, limits, limits_too=limits_too)
    if limits and any(name not in requests for name in _FROM_CONTAINERS):
        totals = aggregate(pod, own_requests)
        for name in _FROM_CONTAINERS:
            if name in totals:
                requests.setdefault(name, totals[name])
    for name, amount in limits.items():
        if is_supported_pod_level_resource(name):
            requests.setdefault(name, amount)
    if len(requests) == len(resources.requests or ()) and len(limits) == len(resources.limits or ()):
        return resources
    return replace(resources, requests=requests or resources.requests, limits=limits or resources.limits)


def _fill_limits(pod: Pod, requests: ResourceList, limits: ResourceList, *, limits_too: bool) -> None:
    if not limits_too and not _limits_hugepages(pod):
        return
    for name, amount in aggregate(pod, own_limits).items():
        if name in limits or not is_supported_pod_level_resource(name):
            continue
        if (name.startswith(HUGEPAGES_PREFIX) and name not in requests) or (limits_too and all_limit(pod, name)):
            limits[name] = amount


def _limits_hugepages(pod: Pod) -> bool:
    return any(
        name.startswith(HUGEPAGES_PREFIX)
        for container in containers_in_order(pod)
        for name in container.resources.limits or ()
    )


def all_limit(pod: Pod, name: str) -> bool:
    """True when every app and init container has a limit above zero for the resource."""
    return all(name in (limits := own_limits(one)) and limits[name].nano > 0 for one in containers_in_order(pod))


def _has_fractions(spec: PodSpec) -> bool:
    for group in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for container in group:
            if _is_fractional(container.resources):
                return True
    if spec.overhead:
        for amount in spec.overhead.values():
            if amount.nano % _NANO_PER_MILLI:
                return True
    return spec.resources is not None and _is_fractional(spec.resources)


def _is_fractional(resources: ResourceRequirements) -> bool:
    if resources.requests:
        for amount in resources.requests.values():
            if amount.nano % _NANO_PER_MILLI:
                return True
    if resources.limits:
        for amount in resources.limits.values():
            if amount.nano % _NANO_PER_MILLI:
                return True
    return False


def _rounded(spec: PodSpec) -> PodSpec:
    return replace(map_requirements(spec, _rounded_requirements), overhead=_rounded_list(spec.overhead))


def _rounded_requirements(resources: ResourceRequirements) -> ResourceRequirements:
    return replace(resources, requests=_rounded_list(resources.requests), limits=_rounded_list(resources.limits))


def _rounded_list(amounts: ResourceList | None) -> ResourceList | None:
    return None if amounts is None else {name: amount.round_up_milli() for name, amount in amounts.items()}
