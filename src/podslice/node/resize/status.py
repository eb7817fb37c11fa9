"""The resources in a pod's status as a kubelet writes them (pod-level-resources 15.7).

Running pods report their cgroup's values, not their requests. A cgroup v2 weight is coarser than a request, so 1 CPU
reads back as 975m.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import aggregate, pod_limits, pod_requests, requests_of
from podslice.api.pod.resizable import are_equal_amounts, cpu_and_memory, effective_amounts, resizable_containers
from podslice.api.pod.spec import Container, Pod, PodAllocation, ResourceList, ResourceRequirements
from podslice.node.effects.cpu_weight import shares_to_milli_cpu, weight_to_shares
from podslice.values.quantity import BINARY_SI, ZERO, Quantity

# Up to the kernel's smallest weight and quota the specification's value is reported, not the one read back.
_SMALLEST_REQUEST_MILLI, _SMALLEST_LIMIT_MILLI = 2, 10


class ObservedCgroup(msgspec.Struct, frozen=True):
    """Values of a pod's cgroup v2. None: the file could not be read. `cpu_quota` and `memory_max` are −1 for `max`;
    times in microseconds, memory in bytes."""

    cpu_weight: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory_max: int | None = None


def allocated_resources(allocated: Pod, gates: Mapping[str, bool]) -> dict[str, Quantity]:
    """Return `status.allocatedResources`: the request of the pod as granted, overhead included."""
    return pod_requests(allocated, pod_level=gates["PodLevelResources"])


def status_resources(
    allocated: Pod, gates: Mapping[str, bool], cgroup: ObservedCgroup, previous: ResourceRequirements | None
) -> ResourceRequirements:
    """Return `status.resources` of a pod as granted. `previous` is the status before, which stands in for values that
    cannot be read."""
    if allocated.status.phase != "Running":
        pod_level = gates["PodLevelResources"]
        return ResourceRequirements(
            pod_requests(allocated, pod_level=pod_level), pod_limits(allocated, pod_level=pod_level)
        )
    stanza = allocated.spec.resources or ResourceRequirements()
    before = previous or ResourceRequirements()
    return ResourceRequirements(
        _running_requests(allocated, stanza.requests or {}, before.requests or {}, cgroup) or None,
        _running_limits(stanza.limits or {}, before.limits or {}, cgroup) or None,
    )


def _running_requests(
    allocated: Pod, stanza: ResourceList, before: ResourceList, cgroup: ObservedCgroup
) -> dict[str, Quantity]:
    """Return the requests of a running pod: the pod level's, with CPUs as the cgroup's weight says."""
    requests = dict(stanza)
    if cgroup.cpu_weight is None:
        _take(requests, before, "cpu")
    else:
        milli = shares_to_milli_cpu(weight_to_shares(cgroup.cpu_weight))
        if max(milli, requests.get("cpu", ZERO).milli_value()) > _SMALLEST_REQUEST_MILLI:
            requests["cpu"] = Quantity.milli(milli)
    if "memory" not in requests:
        _take(requests, aggregate(allocated, lambda container: requests_of(container.resources)), "memory")
    _take(requests, before, "memory")
    return requests


def _running_limits(stanza: ResourceList, before: ResourceList, cgroup: ObservedCgroup) -> dict[str, Quantity]:
    """Return the limits of a running pod as its cgroup says."""
    limits = dict(stanza)
    if cgroup.cpu_quota is None or not cgroup.cpu_period:
        _take(limits, before, "cpu")
    elif cgroup.cpu_quota >= 0:
        milli = cgroup.cpu_quota * 1000 // cgroup.cpu_period
        if max(milli, limits.get("cpu", ZERO).milli_value()) > _SMALLEST_LIMIT_MILLI:
            limits["cpu"] = Quantity.milli(milli)
    if cgroup.memory_max is None:
        _take(limits, before, "memory")
    elif cgroup.memory_max >= 0:
        limits["memory"] = Quantity.of(cgroup.memory_max, BINARY_SI)
    return limits


def _take(into: dict[str, Quantity], amounts: ResourceList, resource: str) -> None:
    if resource in amounts:
        into[resource] = amounts[resource]


def is_in_progress(
    allocated: Pod, actuated: PodAllocation | None, gates: Mapping[str, bool], running: frozenset[str]
) -> bool:
    """Whether some value of the granted resources is not written yet. `actuated` is what was written last, None for
    unknown; `running` are the names of running containers."""
    record = actuated or PodAllocation()
    limits = (allocated.spec.resources.limits if allocated.spec.resources else None) or {}
    recorded = (record.pod_level.limits if record.pod_level else None) or {}
    for container in resizable_containers(allocated, gates):
        own = record.containers.get(container.name)
        if container.name not in running or own is None:
            continue
        if not are_equal_amounts(
            effective_amounts(container, limits), effective_amounts(Container(container.name, resources=own), recorded)
        ):
            return True
    if allocated.spec.resources is None or record.pod_level is None:
        return False
    return cpu_and_memory(allocated.spec.resources) != cpu_and_memory(record.pod_level)
