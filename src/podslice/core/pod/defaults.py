"""What the API server fills in when it decodes a pod (spec pod-level-resources 3): requests from limits, pod-level
huge page limits and requests, and quantities rounded up to whole thousandths."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.pod.demand import (
    HUGEPAGES_PREFIX,
    aggregate,
    is_supported_pod_level_resource,
    limits_of,
    requests_of,
)
from podslice.core.pod.spec import Container, Pod, ResourceList, ResourceRequirements

replace = msgspec.structs.replace


def default_pod(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """The pod as it is after decoding with defaults. Returns the same object where nothing changes."""
    spec = replace(
        pod.spec,
        containers=tuple(map(_default_container, pod.spec.containers)),
        init_containers=tuple(map(_default_container, pod.spec.init_containers)),
    )
    pod = replace(pod, spec=spec)
    if gates["PodLevelResources"] and spec.resources is not None:
        pod = replace(pod, spec=replace(spec, resources=_default_pod_level(pod, spec.resources)))
    return _rounded(pod)


def _default_container(container: Container) -> Container:
    limits = container.resources.limits
    if limits is None:
        return container
    requests = {**limits, **(container.resources.requests or {})}
    return replace(container, resources=replace(container.resources, requests=requests))


def _default_pod_level(pod: Pod, resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = dict(resources.requests or {}), dict(resources.limits or {})
    if requests or limits:
        for name, amount in aggregate(pod, lambda c: limits_of(c.resources)).items():
            if name.startswith(HUGEPAGES_PREFIX) and name not in requests and name not in limits:
                limits[name] = amount
    if limits:
        for name, amount in aggregate(pod, lambda c: requests_of(c.resources)).items():
            if name in ("cpu", "memory") and name not in requests:
                requests[name] = amount
        for name, amount in limits.items():
            if is_supported_pod_level_resource(name) and name not in requests:
                requests[name] = amount
    return replace(resources, requests=requests or resources.requests, limits=limits or resources.limits)


def _rounded(pod: Pod) -> Pod:
    def container(one: Container) -> Container:
        return replace(one, resources=_rounded_requirements(one.resources))

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(map(container, spec.containers)),
            init_containers=tuple(map(container, spec.init_containers)),
            ephemeral_containers=tuple(map(container, spec.ephemeral_containers)),
            resources=None if spec.resources is None else _rounded_requirements(spec.resources),
            overhead=_rounded_list(spec.overhead),
        ),
    )


def _rounded_requirements(resources: ResourceRequirements) -> ResourceRequirements:
    return replace(resources, requests=_rounded_list(resources.requests), limits=_rounded_list(resources.limits))


def _rounded_list(amounts: ResourceList | None) -> ResourceList | None:
    return None if amounts is None else {name: amount.round_up_milli() for name, amount in amounts.items()}
