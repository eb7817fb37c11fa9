"""Containers that an in-place resize can change, and its effects on them (KEP-1287)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, is_restartable_init
from podslice.values.quantity import ZERO, Quantity


def resizable_containers(pod: Pod, gates: Mapping[str, bool]) -> Iterator[Container]:
    """Yield the containers that a resize can change: apps and sidecars, with their gate plain init containers too."""
    for container in pod.spec.init_containers:
        if is_restartable_init(container) or gates["InPlacePodVerticalScalingInitContainers"]:
            yield container
    yield from pod.spec.containers


def needs_restart(container: Container, resource: str) -> bool:
    """Whether the container's resize policy demands a restart for this resource."""
    return any(
        policy.resource_name == resource and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )


def containers_to_restart(old: Pod, new: Pod) -> tuple[str, ...]:
    """Return the containers that a resize from `old` to `new` restarts: their policy demands it for what changes
    (KEP-1287)."""
    before = {container.name: container.resources for container in (*old.spec.init_containers, *old.spec.containers)}
    return tuple(
        container.name
        for container in (*new.spec.init_containers, *new.spec.containers)
        if container.name in before
        and any(
            needs_restart(container, resource)
            and _amounts_of(container.resources, resource) != _amounts_of(before[container.name], resource)
            for resource in ("cpu", "memory")
        )
    )


def _amounts_of(resources: ResourceRequirements, resource: str) -> tuple[Quantity, Quantity]:
    return (resources.requests or {}).get(resource, ZERO), (resources.limits or {}).get(resource, ZERO)


Stanza = tuple[ResourceList, ResourceList, list[object]]


def normalize_requirements(resources: ResourceRequirements) -> Stanza:
    """Return requests, limits and claims in a form in which equal means the same to the API server."""
    return resources.requests or {}, resources.limits or {}, list(resources.claims or [])


Amounts = tuple[Quantity | None, Quantity | None, Quantity | None, Quantity | None]


def cpu_and_memory(resources: ResourceRequirements) -> Amounts:
    """Return the amounts that a resize can change: cpu request, memory request, cpu limit, memory limit."""
    requests, limits = resources.requests or {}, resources.limits or {}
    return requests.get("cpu"), requests.get("memory"), limits.get("cpu"), limits.get("memory")


def effective_amounts(container: Container, pod_limits: ResourceList) -> Amounts:
    """Return the resizable amounts of a container, with the limits its pod implies (pod-level-resources 15.6). A limit
    of zero is none: a kubelet records a missing one so."""
    cpu_request, memory_request, cpu_limit, memory_limit = cpu_and_memory(container.resources)
    return (
        cpu_request,
        memory_request,
        _limit_or_implied(cpu_limit, pod_limits.get("cpu")),
        _limit_or_implied(memory_limit, pod_limits.get("memory")),
    )


def are_equal_amounts(one: Amounts, other: Amounts) -> bool:
    """Whether two sets of amounts are the same. Zero equals absent: a kubelet records zero for what an updated
    container does not request."""
    return all((first or ZERO) == (second or ZERO) for first, second in zip(one, other, strict=True))


def _limit_or_implied(limit: Quantity | None, implied: Quantity | None) -> Quantity | None:
    return implied if limit is None or limit.is_zero() else limit
