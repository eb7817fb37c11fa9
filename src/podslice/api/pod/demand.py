"""Effective requests and limits of a pod (KEP-753, KEP-2837; pod-level-resources 7), and the QoS class that follows
from them (pod-level-resources 6; cpu-topology 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from podslice.api.pod.spec import (
    Container,
    ContainerStatus,
    Pod,
    ResourceList,
    ResourceRequirements,
    from_dict,
    is_restartable_init,
)
from podslice.values.errors import InputError
from podslice.values.golang import INT64_MAX
from podslice.values.quantity import ZERO, Quantity

HUGEPAGES_PREFIX = "hugepages-"


class StatusUse(Enum):
    """Whether a running pod's status counts as well as its specification (pod-level-resources 7.3)."""

    NONE = "none"
    CONTAINERS = "containers"
    POD_LEVEL = "pod level"
    """Containers and the pod level (gate InPlacePodLevelResourcesVerticalScaling)."""


def is_supported_pod_level_resource(name: str) -> bool:
    """Whether the resource may be given for a whole pod."""
    return name in ("cpu", "memory") or name.startswith(HUGEPAGES_PREFIX)


def _has_supported(resources: ResourceList | None) -> bool:
    if not resources:
        return False
    return "cpu" in resources or "memory" in resources or any(name.startswith(HUGEPAGES_PREFIX) for name in resources)


def is_pod_level_requests_set(pod: Pod) -> bool:
    """Whether `spec.resources.requests` names a supported resource."""
    resources = pod.spec.resources
    return resources is not None and _has_supported(resources.requests)


def is_pod_level_limits_set(pod: Pod) -> bool:
    """Whether `spec.resources.limits` names a supported resource."""
    resources = pod.spec.resources
    return resources is not None and _has_supported(resources.limits)


def is_pod_level_resources_set(pod: Pod) -> bool:
    """Whether `spec.resources` names a supported resource, whatever its value."""
    return is_pod_level_requests_set(pod) or is_pod_level_limits_set(pod)


def requests_of(resources: ResourceRequirements) -> ResourceList:
    """Return the requests, empty where there are none."""
    return resources.requests or {}


def limits_of(resources: ResourceRequirements) -> ResourceList:
    """Return the limits, empty where there are none."""
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
    """Return the KEP-753 aggregate of all app and init containers: the larger of the long-running sum and the init peak
    (pod-level-resources 7.1)."""
    total: dict[str, Quantity] = {}
    for container in pod.spec.containers:
        if total:
            add_into(total, amounts(container))
        else:
            total = dict(amounts(container))
    if not pod.spec.init_containers:
        return total
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod.spec.init_containers:
        own = amounts(container)
        if is_restartable_init(container):
            add_into(total, own)
            add_into(sidecars, own)
            # A sidecar keeps running, so each init container runs beside the sidecars started before it (KEP-753).
            raise_to(peak, sidecars)
        else:
            current = dict(own)
            add_into(current, sidecars)
            raise_to(peak, current)
    raise_to(total, peak)
    return total


class CountedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of the pod's status for a claim that the scheduler counts with the pod's requests: the containers that
    have it, and the amounts counted (cluster-integration A.7)."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}


def counted_claims(pod: Pod) -> tuple[CountedClaim, ...]:
    """Return the claims counted in the status, in the form of v1.36; other forms, of later servers, are skipped."""
    found = []
    for entry in pod.status.node_allocatable_resource_claim_statuses:
        try:
            found.append(from_dict(entry, CountedClaim))
        except InputError:
            continue
    return tuple(found)


def pod_requests(
    pod: Pod,
    *,
    pod_level: bool = True,
    overhead: bool = True,
    containers: bool = True,
    missing: ResourceList | None = None,
    status: StatusUse = StatusUse.NONE,
    claims: bool = False,
    by_container: bool = True,
) -> dict[str, Quantity]:
    """Return the effective requests (pod-level-resources 7.2).

    - `pod_level` False ignores `spec.resources`, as with its gate off
    - `containers` False counts only the pod level
    - `missing`: amounts for resources that a container does not request at all
    - `status`: whether the resources a running pod actually has count as well (pod-level-resources 7.3)
    - `claims`: count the claims that the scheduler has written into the status, each once (cluster-integration A.7)
    - `by_container` False: of a running pod, compare the sums of what is requested, allocated and in force, not add up
      the largest amounts of each container (from 1.37 on)
    """
    total: dict[str, Quantity] = {}
    if containers:
        for reader in _requests_readers(pod, missing, status, by_container=by_container):
            raise_to(total, aggregate(pod, reader))
    for claim in counted_claims(pod) if claims else ():
        add_into(total, claim.resources)
    resources = pod.spec.resources
    if pod_level and resources is not None and is_pod_level_requests_set(pod):
        own = requests_of(resources)
        if status is StatusUse.POD_LEVEL and pod.status.resources is not None:
            actual = requests_in_use(pod, own, pod.status.resources, pod.status.allocated_resources)
            own = {name: actual.get(name, ZERO) for name in own}
        _override_pod_level(total, own)
    if overhead and pod.spec.overhead:
        add_into(total, pod.spec.overhead)
    return total


def pod_limits(
    pod: Pod, *, pod_level: bool = True, overhead: bool = True, status: StatusUse = StatusUse.NONE
) -> dict[str, Quantity]:
    """Return the effective limits (pod-level-resources 7.2); options as in `pod_requests`. Overhead is only added to
    limits that exist."""
    total = aggregate(pod, _limits_reader(pod, status))
    resources = pod.spec.resources
    if pod_level and resources is not None and is_pod_level_resources_set(pod):
        own = limits_of(resources)
        if status is StatusUse.POD_LEVEL and pod.status.resources is not None:
            actual = _limits_in_use(pod, own, pod.status.resources)
            own = {name: actual.get(name, ZERO) for name in own}
        _override_pod_level(total, own)
    if overhead and pod.spec.overhead:
        for name, quantity in pod.spec.overhead.items():
            if not total.get(name, ZERO).is_zero():
                total[name] = total[name].add(quantity)
    return total


def _override_pod_level(total: dict[str, Quantity], pod_level: ResourceList) -> None:
    for name, quantity in pod_level.items():
        if is_supported_pod_level_resource(name):
            total[name] = quantity


Amounts = Callable[[Container], ResourceList]


def container_requests(container: Container) -> ResourceList:
    """Return the container's own requests."""
    return container.resources.requests or {}


def container_limits(container: Container) -> ResourceList:
    """Return the container's own limits."""
    return container.resources.limits or {}


InUse = Callable[[ResourceList, ContainerStatus], ResourceList]
"""What counts of a container's requests and its status."""


def _requests_readers(
    pod: Pod, missing: ResourceList | None, status: StatusUse, *, by_container: bool
) -> list[Amounts]:
    """Return the functions that give the requests of a container of this pod, with its status and missing amounts."""
    statuses = _running_statuses(pod) if status is not StatusUse.NONE else {}
    if not statuses and not missing:
        return [container_requests]
    rules = (_largest(pod),) if by_container or not statuses else _single_rules(pod)
    return [_requests_reader(rule, statuses, missing) for rule in rules]


def _requests_reader(in_use: InUse, statuses: Mapping[int, ContainerStatus], missing: ResourceList | None) -> Amounts:
    def amounts(container: Container) -> ResourceList:
        requests = container_requests(container)
        known = statuses.get(id(container))
        if known is not None and known.resources is not None:
            requests = in_use(requests, known)
        return {**requests, **{name: missing[name] for name in missing.keys() - requests}} if missing else requests

    return amounts


def _largest(pod: Pod) -> InUse:
    return lambda requests, known: requests_in_use(
        pod, requests, known.resources or ResourceRequirements(), known.allocated_resources
    )


def _single_rules(pod: Pod) -> tuple[InUse, ...]:
    """Return one rule each for what is requested, allocated and in force."""
    others: tuple[InUse, ...] = (
        lambda requests, known: known.allocated_resources or requests,
        lambda requests, known: requests_of(known.resources or ResourceRequirements()),
    )
    return others if is_resize_infeasible(pod) else (lambda requests, known: requests, *others)


def _limits_reader(pod: Pod, status: StatusUse) -> Amounts:
    """Return the function that gives the limits of a container of this pod, with its status."""
    statuses = _running_statuses(pod) if status is not StatusUse.NONE else {}
    if not statuses:
        return container_limits

    def amounts(container: Container) -> ResourceList:
        known = statuses.get(id(container))
        limits = container_limits(container)
        return limits if known is None or known.resources is None else _limits_in_use(pod, limits, known.resources)

    return amounts


def _running_statuses(pod: Pod) -> dict[int, ContainerStatus]:
    """Return the statuses of the containers that keep running (apps, sidecars), by identity of the container."""
    named = {status.name: status for status in pod.status.container_statuses}
    found = {id(one): named[one.name] for one in pod.spec.containers if one.name in named}
    named = {status.name: status for status in pod.status.init_container_statuses}
    for one in pod.spec.init_containers:
        if one.name in named and is_restartable_init(one):
            found[id(one)] = named[one.name]
    return found


def requests_in_use(
    pod: Pod, requested: ResourceList, actual: ResourceRequirements, allocated: ResourceList | None
) -> ResourceList:
    """Return the larger of requested, allocated and actual amounts; an infeasible resize request does not count."""
    total = dict(actual.requests or {})
    raise_to(total, allocated or {})
    if not is_resize_infeasible(pod):
        raise_to(total, requested)
    return total


def _limits_in_use(pod: Pod, limits: ResourceList, actual: ResourceRequirements) -> ResourceList:
    total = dict(actual.limits or {})
    if not is_resize_infeasible(pod):
        raise_to(total, limits)
    return total


def is_resize_infeasible(pod: Pod) -> bool:
    """Whether the kubelet refused the pod's pending resize for good."""
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible" for condition in pod.status.conditions
    )


def containers_in_order(pod: Pod) -> tuple[Container, ...]:
    """Return init containers, then app containers, in specification order."""
    spec = pod.spec
    # Most pods have no init containers: then nothing is copied.
    return (*spec.init_containers, *spec.containers) if spec.init_containers else spec.containers


# Amounts that 64 bits do not hold

_LARGEST = {True: INT64_MAX * 10**6, False: INT64_MAX * 10**9}
"""Largest amount in billionths, of CPUs (True; counted in millicores) and of everything else."""


def overflows(name: str, amount: Quantity) -> bool:
    """Whether Kubernetes, which counts in 64 bits, would turn an amount of a resource into another."""
    return abs(amount.nano) > _LARGEST[name == "cpu"]


def overflow_problem(pod: Pod, gates: Mapping[str, bool]) -> str:
    """Return, as a sentence, the first amount of a pod, or of its sums, that exceeds 64 bits; empty where none does."""
    spec = pod.spec
    containers = containers_in_order(pod)
    parts = [container.resources for container in containers]
    if spec.resources is not None:
        parts.append(spec.resources)
    if spec.overhead:
        parts.append(ResourceRequirements(requests=spec.overhead))
    # Sums are worked out only where they could overflow: no pod of a real cluster comes near.
    if _are_within(parts, _LARGEST[True] // (len(parts) + 1)):
        return ""
    for container in containers:
        for name, amount in _iter_amounts(container.resources):
            if overflows(name, amount):
                return _overflow_sentence(f"container {container.name}", name, amount)
    pod_level = gates["PodLevelResources"]
    for total in (pod_requests(pod, pod_level=pod_level), pod_limits(pod, pod_level=pod_level)):
        for name, amount in total.items():
            if overflows(name, amount):
                return _overflow_sentence("the pod", name, amount)
    return ""


def _are_within(parts: Iterable[ResourceRequirements], most: int) -> bool:
    """Return whether no amount is beyond `most` billionths, in either direction."""
    for part in parts:
        for amounts in (part.requests, part.limits):
            if amounts:
                for amount in amounts.values():
                    if not -most <= amount.nano <= most:
                        return False
    return True


def _iter_amounts(resources: ResourceRequirements) -> Iterable[tuple[str, Quantity]]:
    if resources.requests:
        yield from resources.requests.items()
    if resources.limits:
        yield from resources.limits.items()


def _overflow_sentence(owner: str, name: str, amount: Quantity) -> str:
    text = str(amount)
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    return f"{owner} asks for {shown} {name}, and Kubernetes counts {name} in 64 bits"


# The QoS class

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
_QOS_RESOURCES = ("cpu", "memory")
_FIX_GATE = "PodLevelResourcesFixKubeletQOSClass"


def pod_qos(pod: Pod, gates: Mapping[str, bool]) -> str:
    """Return the class the API server stored in the status, else compute it."""
    return pod.status.qos_class or compute_qos(pod, gates)


def compute_qos(pod: Pod, gates: Mapping[str, bool]) -> str:
    """Return the class that follows from the specification.

    An empty `spec.resources` hides the containers in v1.36.2; with the KEP's fix gate only one with resources does.
    """
    resources = pod.spec.resources
    if (
        resources is not None
        and gates["PodLevelResources"]
        and (is_pod_level_resources_set(pod) or not gates[_FIX_GATE])
    ):
        return _compute_class((resources,))
    return _compute_class([container.resources for container in containers_in_order(pod)])


def _compute_class(requirements: Iterable[ResourceRequirements]) -> str:
    """Return Guaranteed when all have both limits and the sums of requests and limits agree; only amounts above 0
    count.

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
    """Add cpu and memory to their sums, and return whether both are given."""
    if not amounts:
        return False
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    has_cpu, has_memory = cpu is not None and cpu.nano > 0, memory is not None and memory.nano > 0
    if cpu is not None and has_cpu:
        total[0] += cpu.nano
    if memory is not None and has_memory:
        total[1] += memory.nano
    return has_cpu and has_memory


def is_container_equivalent_guaranteed(container: Container) -> bool:
    """Whether the container's cpu and memory requests are non-zero and equal to its limits (KEP-5526)."""
    requests = container.resources.requests
    limits = container.resources.limits
    if not requests or not limits:
        return False
    for name in _QOS_RESOURCES:
        request, limit = requests.get(name), limits.get(name)
        # Equal texts are mostly one object, as `Quantity.parse` caches them.
        if request is None or request.nano == 0 or (request is not limit and request != limit):
            return False
    return True
