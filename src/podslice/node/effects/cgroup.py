"""The cgroup of a pod (pod-level-resources 8.2): its path, its values, and whether owned CPUs disable its quota
(cpu-topology 6.9; pod-level-resources 8.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from podslice.api.pod.demand import (
    BEST_EFFORT,
    GUARANTEED,
    container_limits,
    containers_in_order,
    is_pod_level_resources_set,
    limits_of,
    pod_limits,
    pod_qos,
    pod_requests,
)
from podslice.api.pod.spec import Pod, is_restartable_init
from podslice.node.effects.cpu_weight import (
    DEFAULT_PERIOD_US,
    MIN_SHARES,
    NO_QUOTA,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
)
from podslice.node.effects.huge_pages import huge_page_limits
from podslice.node.effects.memory_qos import pod_memory_qos
from podslice.node.effects.settings import CgroupSettings
from podslice.values.quantity import ZERO

_ROOT = "kubepods"


class PodCgroup(msgspec.Struct, frozen=True, rename="camel"):
    """Values of a pod's cgroup; None is not written. Microseconds and bytes; `huge_pages` by page size."""

    cpu_shares: int
    cpu_quota: int | None
    cpu_period: int | None
    memory: int | None
    huge_pages: dict[int, int]


def pod_cgroup(
    pod: Pod,
    gates: Mapping[str, bool],
    *,
    enforce_cpu_limits: bool = True,
    period: int = DEFAULT_PERIOD_US,
) -> PodCgroup:
    """Return the values of the pod's own cgroup, overhead included.

    `enforce_cpu_limits` False: the kubelet enforces none, or the pod owns its CPUs. `period` is the configured one.
    """
    pod_level = gates["PodLevelResources"]
    requests = pod_requests(pod, pod_level=pod_level)
    limits = pod_limits(pod, pod_level=pod_level)
    qos = pod_qos(pod, gates)
    shares, quota, memory = MIN_SHARES, None, None
    if qos != BEST_EFFORT:
        shares = milli_cpu_to_shares(requests.get("cpu", ZERO).milli_value())
        if qos == GUARANTEED or declares_limit(pod, "cpu", pod_level=pod_level):
            # Without the gate the quota is computed for 100 ms, although the configured period is written.
            counted = period if gates["CustomCPUCFSQuotaPeriod"] else DEFAULT_PERIOD_US
            quota = milli_cpu_to_quota(limits.get("cpu", ZERO).milli_value(), counted)
            quota = quota if enforce_cpu_limits else NO_QUOTA
        if qos == GUARANTEED or declares_limit(pod, "memory", pod_level=pod_level):
            memory = limits.get("memory", ZERO).value()
    return PodCgroup(shares, quota, None if quota is None else period, memory, huge_page_limits(requests))


def pod_unified(pod: Pod, gates: Mapping[str, bool], settings: CgroupSettings) -> dict[str, int]:
    """Return the values by file of the pod's cgroup with gate MemoryQoS."""
    request = pod_requests(pod, pod_level=gates["PodLevelResources"]).get("memory", ZERO).value()
    return pod_memory_qos(pod_qos(pod, gates), request, settings.reservation_policy)


def declares_limit(pod: Pod, resource: str, *, pod_level: bool) -> bool:
    """Whether the pod cgroup may carry a limit for cpu or memory: every container has one, or the pod does."""
    if pod_level and pod.spec.resources is not None and is_pod_level_resources_set(pod):
        own = limits_of(pod.spec.resources).get(resource)
        if own is not None and not own.is_zero():
            return True
    # One container without a limit makes the sum of the others no bound for the pod.
    if any(container_limits(container).get(resource, ZERO).is_zero() for container in pod.spec.containers):
        return False
    sidecars = ZERO
    for container in pod.spec.init_containers:
        cumulative = sidecars.add(container_limits(container).get(resource, ZERO))
        if is_restartable_init(container):
            sidecars = cumulative
        if cumulative.is_zero():
            return False
    return True


def pod_cgroup_path(uid: str, qos: str, *, systemd: bool = True) -> str:
    """Return the path of a pod's cgroup as the driver systemd (which distributions use) or cgroupfs names it.
    Guaranteed pods are directly under the root of all pods."""
    parent = "" if qos == "Guaranteed" else qos.lower()
    if not systemd:
        return "/".join(("", *filter(None, (_ROOT, parent, f"pod{uid}"))))
    path, name = f"/{_ROOT}.slice", _ROOT
    # systemd reads `-` in a slice's name as a level of the tree, so upstream writes a UID with `_`.
    for part in filter(None, (parent, f"pod{uid.replace('-', '_')}")):
        name = f"{name}-{part}"
        path = f"{path}/{name}.slice"
    return path


def quota_disabled(gates: Mapping[str, bool], *, owns_cpus: bool) -> bool:
    """Whether a container's CPU quota is disabled."""
    return owns_cpus and gates["DisableCPUQuotaWithExclusiveCPUs"]


def pod_quota_disabled(pod: Pod, gates: Mapping[str, bool], owners: Collection[str]) -> bool:
    """Whether the CPU quota of the pod's cgroup and sandbox is disabled; `owners` are its containers that own CPUs.

    One owner is enough, because its CPUs may not be throttled by the pod. Where the managers handle the pod as a whole
    (gate PodLevelResourceManagers), it takes all of them: the others still share the pod's budget.
    """
    owning = (container.name in owners for container in containers_in_order(pod))
    managed = is_pod_level_resources_set(pod) and gates["PodLevelResourceManagers"]
    return quota_disabled(gates, owns_cpus=all(owning) if managed else any(owning))
