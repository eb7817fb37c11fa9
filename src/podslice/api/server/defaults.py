"""Defaults that the API server sets when it decodes a pod (pod-level-resources 3): requests from limits, pod-level huge
page limits and requests, and quantities rounded up to whole thousandths.

Most pods need little of this, and every pod passes here several times, so unchanged parts are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import (
    HUGEPAGES_PREFIX,
    aggregate,
    container_limits,
    container_requests,
    containers_in_order,
    is_supported_pod_level_resource,
)
from podslice.api.pod.spec import Container, Pod, PodSpec, ResourceList, ResourceRequirements, map_requirements

replace = msgspec.structs.replace

LIMITS_GATE = "PodLevelResourcesFixDefaulting"
_NANO_PER_MILLI = 10**6
_FROM_CONTAINERS = ("cpu", "memory")


def default_pod(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod after decoding with defaults; the same object where nothing changes.

    Idempotent. With the gate PodLevelResourcesFixDefaulting, which v1.36.2 lacks, pod-level limits are defaulted
    as well (pod-level-resources 3.5).
    """
    spec = pod.spec
    containers = _default_containers(spec.containers)
    init_containers = _default_containers(spec.init_containers)
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
    # Rounding comes last: it also rounds the amounts that the defaults copied.
    return replace(pod, spec=_round_up_spec(spec)) if _has_fractions(spec) else pod


def _default_containers(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """Return the containers with a request for every limit; the same tuple where nothing is missing."""
    for container in containers:
        limits, requests = container.resources.limits, container.resources.requests
        if limits is not None and (requests is None or not limits.keys() <= requests.keys()):
            return tuple(map(_default_container, containers))
    return containers


def _default_container(container: Container) -> Container:
    resources = container.resources
    if resources.limits is None:
        return container
    # Copies every limit, of any resource, also where the limits are empty: requests exist afterwards.
    requests = {**resources.limits, **(resources.requests or {})}
    return replace(container, resources=replace(resources, requests=requests))


def default_pod_level(pod: Pod, resources: ResourceRequirements, *, limits_too: bool) -> ResourceRequirements:
    """Return `spec.resources` with its defaults; the same object where nothing is missing.

    Huge page limits come from the containers, requests for cpu and memory from the containers as soon as any limit is
    given, other requests from the limits. `limits_too` gives a limit to every resource that all containers limit.
    """
    if not resources.limits and not resources.requests:
        return resources
    requests, limits = dict(resources.requests or {}), dict(resources.limits or {})
    _fill_limits(pod, requests, limits, limits_too=limits_too)
    if limits and any(name not in requests for name in _FROM_CONTAINERS):
        # Upstream fills in cpu and memory as soon as any resource is limited for the pod, even if only huge pages are
        # (pod-level-resources 3.3).
        totals = aggregate(pod, container_requests)
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
    for name, amount in aggregate(pod, container_limits).items():
        if name in limits or not is_supported_pod_level_resource(name):
            continue
        if (name.startswith(HUGEPAGES_PREFIX) and name not in requests) or (
            limits_too and all_containers_limit(pod, name)
        ):
            limits[name] = amount


def _limits_hugepages(pod: Pod) -> bool:
    return any(
        name.startswith(HUGEPAGES_PREFIX)
        for container in containers_in_order(pod)
        for name in container.resources.limits or ()
    )


def all_containers_limit(pod: Pod, name: str) -> bool:
    """Whether every app and init container has a limit above zero for the resource."""
    return all(name in (limits := container_limits(one)) and limits[name].nano > 0 for one in containers_in_order(pod))


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


def _round_up_spec(spec: PodSpec) -> PodSpec:
    return replace(map_requirements(spec, _round_up_requirements), overhead=_round_up_list(spec.overhead))


def _round_up_requirements(resources: ResourceRequirements) -> ResourceRequirements:
    return replace(resources, requests=_round_up_list(resources.requests), limits=_round_up_list(resources.limits))


def _round_up_list(amounts: ResourceList | None) -> ResourceList | None:
    return None if amounts is None else {name: amount.round_up_milli() for name, amount in amounts.items()}
