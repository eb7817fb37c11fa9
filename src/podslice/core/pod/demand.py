"""What a pod asks for as a whole: effective requests and limits (KEP-753, KEP-2837; spec pod-level-resources 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from podslice.core.pod.spec import Container, Pod, ResourceList, ResourceRequirements, is_restartable_init
from podslice.core.values.quantity import ZERO, Quantity

HUGEPAGES_PREFIX = "hugepages-"


def is_supported_pod_level_resource(name: str) -> bool:
    """Resources that may be given for a whole pod."""
    return name in ("cpu", "memory") or name.startswith(HUGEPAGES_PREFIX)


def _any_supported(resources: ResourceList | None) -> bool:
    return resources is not None and any(is_supported_pod_level_resource(name) for name in resources)


def is_pod_level_requests_set(pod: Pod) -> bool:
    """True when `spec.resources.requests` names a supported resource."""
    resources = pod.spec.resources
    return resources is not None and _any_supported(resources.requests)


def is_pod_level_limits_set(pod: Pod) -> bool:
    """True when `spec.resources.limits` names a supported resource."""
    resources = pod.spec.resources
    return resources is not None and _any_supported(resources.limits)


def is_pod_level_resources_set(pod: Pod) -> bool:
    """True when the pod names a supported resource in `spec.resources`, whatever its value."""
    return is_pod_level_requests_set(pod) or is_pod_level_limits_set(pod)


def requests_of(resources: ResourceRequirements) -> ResourceList:
    return resources.requests or {}


def limits_of(resources: ResourceRequirements) -> ResourceList:
    return resources.limits or {}


def add_into(total: dict[str, Quantity], amounts: ResourceList) -> None:
    """Add a resource list to a running total, creating keys."""
    for name, quantity in amounts.items():
        known = total.get(name)
        total[name] = quantity if known is None else known.add(quantity)


def raise_to(total: dict[str, Quantity], amounts: ResourceList) -> None:
    """Raise every entry of a running maximum to at least the given amounts, creating keys."""
    for name, quantity in amounts.items():
        known = total.get(name)
        if known is None or quantity > known:
            total[name] = quantity


def aggregate(pod: Pod, amounts: Callable[[Container], ResourceList]) -> dict[str, Quantity]:
    """The KEP-753 aggregate of all app and init containers: long-running sum against the init peak (spec 7.1)."""
    total: dict[str, Quantity] = {}
    for container in pod.spec.containers:
        add_into(total, amounts(container))
    if not pod.spec.init_containers:
        return total
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod.spec.init_containers:
        own = amounts(container)
        if is_restartable_init(container):
            add_into(total, own)
            add_into(sidecars, own)
            raise_to(peak, sidecars)
        else:
            current = dict(sidecars)
            add_into(current, own)
            raise_to(peak, current)
    raise_to(total, peak)
    return total


def pod_requests(pod: Pod, *, pod_level: bool = True, overhead: bool = True) -> dict[str, Quantity]:
    """Effective requests (spec 7.2). `pod_level` False leaves `spec.resources` out, as with its gate off."""
    total = aggregate(pod, lambda container: requests_of(container.resources))
    if pod_level and pod.spec.resources is not None and is_pod_level_requests_set(pod):
        _override(total, requests_of(pod.spec.resources))
    if overhead and pod.spec.overhead:
        add_into(total, pod.spec.overhead)
    return total


def pod_limits(pod: Pod, *, pod_level: bool = True, overhead: bool = True) -> dict[str, Quantity]:
    """Effective limits (spec 7.2). Overhead is only added to limits that exist."""
    total = aggregate(pod, lambda container: limits_of(container.resources))
    if pod_level and pod.spec.resources is not None and is_pod_level_resources_set(pod):
        _override(total, limits_of(pod.spec.resources))
    if overhead and pod.spec.overhead:
        for name, quantity in pod.spec.overhead.items():
            if not total.get(name, ZERO).is_zero():
                total[name] = total[name].add(quantity)
    return total


def _override(total: dict[str, Quantity], pod_level: ResourceList) -> None:
    for name, quantity in pod_level.items():
        if is_supported_pod_level_resource(name):
            total[name] = quantity


def containers_in_order(pod: Pod) -> Iterable[Container]:
    """Init containers, then app containers, in specification order."""
    return (*pod.spec.init_containers, *pod.spec.containers)
