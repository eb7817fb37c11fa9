"""What the kubelet wants of a pod that runs, read from its calls to the runtime.

A kubelet that resizes a pod tells the runtime shares, quota and memory of one container after the other, and of the pod
as a whole. The pod's specification says the same in better words, once its source has the new one. Everything here is
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
_LEAST_CPU = 10


def requested_cpu(limits: Limits, shares: int) -> int | None:
    """The CPUs that a call asks for, in thousandths: those of the quota, else of the shares where they are whole CPUs;
    None where it does not say."""
    milli = limit_milli_cpu(limits)
    if milli is not None:
        return milli
    return shares // 1024 * 1000 if shares > 0 and shares % 1024 == 0 else None


def apply_container_update(pod: Pod, name: str, limits: Limits, shares: int) -> Pod | None:
    """The pod once a container has what a call asks for; None where that is nothing new. Only containers count whose
    requests are their limits: of the others a call does not say enough."""
    container = next((one for one in (*pod.spec.init_containers, *pod.spec.containers) if one.name == name), None)
    if container is None:
        return None
    asked = {_CPU: requested_cpu(limits, shares), _MEMORY: None if limits.memory is None else limits.memory * 1000}
    changed = _changes(container.resources, asked)
    if not changed:
        return None

    def with_them(one: Container) -> Container:
        return replace(one, resources=_with(one.resources, changed)) if one.name == name else one

    return replace(pod, spec=map_containers(pod.spec, with_them))


def apply_pod_update(pod: Pod, milli: int) -> Pod | None:
    """The pod once it may use so many thousandths of CPUs as a whole; None where that is nothing new."""
    resources = pod.spec.resources
    changed = {} if resources is None else _changes(resources, {_CPU: milli})
    if resources is None or not changed:
        return None
    return replace(pod, spec=replace(pod.spec, resources=_with(resources, changed)))


def _changes(resources: ResourceRequirements, asked: Mapping[str, int | None]) -> ResourceList:
    """Amounts that are others than those there are, which must be limit and request."""
    limits, requests = resources.limits or {}, resources.requests or {}
    return {
        name: Quantity.milli(amount)
        for name, amount in asked.items()
        if amount and name in limits and limits[name] == requests.get(name) and _differ(name, limits[name], amount)
    }


def _differ(name: str, has: Quantity, asked: int) -> bool:
    """A kubelet asks for no less than a hundredth of a CPU."""
    milli = has.milli_value()
    return milli != asked and not (name == _CPU and max(milli, asked) <= _LEAST_CPU)


def _with(resources: ResourceRequirements, changed: ResourceList) -> ResourceRequirements:
    limits, requests = resources.limits or {}, resources.requests or {}
    return replace(resources, limits=limits | changed, requests=requests | changed)


def requests_same(one: Pod, other: Pod, gates: Mapping[str, bool]) -> bool:
    """True when two versions of a pod ask for the same."""
    return allocation_of(one, gates) == allocation_of(other, gates)


def is_intermediate(wish: Pod, spec: Pod, pod: Pod, gates: Mapping[str, bool]) -> bool:
    """True when a wish is on the way from what a pod has to what its specification says: a kubelet asks for memory
    first, then for CPUs, one container after the other."""
    wanted, said, has = (_amounts(allocation_of(one, gates)) for one in (wish, spec, pod))
    return all(amount in (said.get(what), has.get(what)) for what, amount in wanted.items()) and wanted != has


def _amounts(granted: PodAllocation) -> dict[tuple[str, str], Quantity]:
    """Limits by container, the pod's under the empty name."""
    stanzas = dict(granted.containers) | ({"": granted.pod_level} if granted.pod_level is not None else {})
    return {
        (name, resource): amount
        for name, resources in stanzas.items()
        for resource, amount in (resources.limits or {}).items()
    }
