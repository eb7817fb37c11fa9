"""Resources that a kubelet requests for a running pod, read from its calls to the runtime.

A kubelet that resizes a pod passes CPU shares, quota and memory limit of one container after the other, then those of
the pod cgroup. The specification says the same more precisely, but its source may deliver it later. Everything here is
pure: pods in, pods out.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from podslice.agent.records import Limits
from podslice.agent.resize.unapplied_resizes import limit_milli_cpu
from podslice.api.pod.spec import (
    Container,
    Pod,
    PodAllocation,
    ResourceList,
    ResourceRequirements,
    allocation_of,
    map_containers,
)
from podslice.values.quantity import Quantity

_CPU, _MEMORY = "cpu", "memory"
_SMALLEST_MILLI_CPU = 10


def requested_cpu(limits: Limits, shares: int) -> int | None:
    """Return the CPU limit that a call sets, in thousandths of a CPU.

    It is the quota, else the shares where they are whole CPUs; None where the call contains neither.
    """
    milli = limit_milli_cpu(limits)
    if milli is not None:
        return milli
    # 1024 shares are one CPU; shares of fractions were rounded by the kubelet and do not give the request back.
    return shares // 1024 * 1000 if shares > 0 and shares % 1024 == 0 else None


def apply_container_update(pod: Pod, name: str, limits: Limits, shares: int) -> Pod | None:
    """Return the pod with the resources that a call sets for one container; None where nothing changes.

    Only resources whose request equals their limit are considered: for others a call carries too little.
    """
    container = next((one for one in (*pod.spec.init_containers, *pod.spec.containers) if one.name == name), None)
    if container is None:
        return None
    asked = {_CPU: requested_cpu(limits, shares), _MEMORY: None if limits.memory is None else limits.memory * 1000}
    changed = _changes(container.resources, asked)
    if not changed:
        return None

    def update(one: Container) -> Container:
        return replace(one, resources=_with(one.resources, changed)) if one.name == name else one

    return replace(pod, spec=map_containers(pod.spec, update))


def apply_pod_update(pod: Pod, milli: int) -> Pod | None:
    """Return the pod with `milli` thousandths of a CPU as its pod-level limit; None where nothing changes."""
    resources = pod.spec.resources
    changed = {} if resources is None else _changes(resources, {_CPU: milli})
    if resources is None or not changed:
        return None
    return replace(pod, spec=replace(pod.spec, resources=_with(resources, changed)))


def _changes(resources: ResourceRequirements, asked: Mapping[str, int | None]) -> ResourceList:
    """Return the amounts that differ from the present ones, for resources whose limit equals their request."""
    limits, requests = resources.limits or {}, resources.requests or {}
    return {
        name: Quantity.milli(amount)
        for name, amount in asked.items()
        if amount and name in limits and limits[name] == requests.get(name) and _differs(name, limits[name], amount)
    }


def _differs(name: str, has: Quantity, asked: int) -> bool:
    """Return whether an amount changes. Below a hundredth of a CPU the kubelet rounds up, so no change is visible."""
    milli = has.milli_value()
    return milli != asked and not (name == _CPU and max(milli, asked) <= _SMALLEST_MILLI_CPU)


def _with(resources: ResourceRequirements, changed: ResourceList) -> ResourceRequirements:
    limits, requests = resources.limits or {}, resources.requests or {}
    return replace(resources, limits=limits | changed, requests=requests | changed)


def requests_same(one: Pod, other: Pod, gates: Mapping[str, bool]) -> bool:
    """Return whether two versions of a pod ask for the same resources."""
    return allocation_of(one, gates) == allocation_of(other, gates)


def is_intermediate(requested: Pod, spec: Pod, pod: Pod, gates: Mapping[str, bool]) -> bool:
    """Return whether `requested` is a step from what `pod` has to what `spec` asks for.

    A kubelet writes memory first, then CPUs, one container after the other; so each amount must be that of the pod or
    that of the specification.
    """
    wanted, said, has = (_amounts(allocation_of(one, gates)) for one in (requested, spec, pod))
    return all(amount in (said.get(what), has.get(what)) for what, amount in wanted.items()) and wanted != has


def _amounts(granted: PodAllocation) -> dict[tuple[str, str], Quantity]:
    """Return the limits by container and resource; those of the pod are under the empty name."""
    stanzas = dict(granted.containers) | ({"": granted.pod_level} if granted.pod_level is not None else {})
    return {
        (name, resource): amount
        for name, resources in stanzas.items()
        for resource, amount in (resources.limits or {}).items()
    }
