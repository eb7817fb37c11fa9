"""The resources of one container in the kubelet's requests to the runtime (pod-level-resources 8.3, 8.5)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import (
    BURSTABLE,
    container_limits,
    container_requests,
    is_pod_level_resources_set,
    limits_of,
    pod_qos,
)
from podslice.api.pod.spec import Container, Pod, ResourceList
from podslice.node.effects.cpu_weight import NO_QUOTA, milli_cpu_to_quota, milli_cpu_to_shares
from podslice.node.effects.huge_pages import container_huge_page_limits, huge_page_limits
from podslice.node.effects.memory_qos import container_memory_qos
from podslice.node.effects.settings import LIMITED_SWAP, CgroupSettings
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import Quirks

OOM_GROUP, SWAP_MAX = "memory.oom.group", "memory.swap.max"


class LinuxResources(msgspec.Struct, frozen=True, rename="camel"):
    """CRI LinuxContainerResources. 0 is not set; a quota of -1 is no limit.

    Microseconds and bytes; `huge_pages` by page size, in the machine's order; `unified` by cgroup v2 file.
    """

    cpu_period: int = 0
    cpu_quota: int = 0
    cpu_shares: int = 0
    memory_limit: int = 0
    memory_swap_limit: int = 0
    oom_score_adj: int = 0
    huge_pages: dict[int, int] = {}
    unified: dict[str, int] = {}


def linux_resources(
    cpu_request: Quantity | None,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    settings: CgroupSettings,
    gates: Mapping[str, bool],
    *,
    quota_disabled: bool = False,
) -> LinuxResources:
    """Return CPU and memory of a container or a sandbox. Without a CPU request the limit decides about the weight."""
    shares = milli_cpu_to_shares((cpu_limit if cpu_request is None else cpu_request).milli_value())
    period = quota = 0
    if settings.cfs_quota:
        period = settings.quota_period(gates)
        quota = NO_QUOTA if quota_disabled else milli_cpu_to_quota(cpu_limit.milli_value(), period)
    whole = settings.cgroup_version == 2 and settings.kill_whole_container
    return LinuxResources(
        cpu_period=period,
        cpu_quota=quota,
        cpu_shares=shares,
        memory_limit=memory_limit.value(),
        unified={OOM_GROUP: 1} if whole else {},
    )


def container_resources(
    pod: Pod,
    container: Container,
    gates: Mapping[str, bool],
    settings: CgroupSettings,
    quirks: Quirks,
    *,
    oom_score_adj: int,
    quota_disabled: bool = False,
) -> LinuxResources:
    """Return the values for an init, app or ephemeral container of the pod.

    `quota_disabled`: the container owns its CPUs (gate DisableCPUQuotaWithExclusiveCPUs).
    """
    request = container_requests(container).get("cpu")
    # KEP-2837 gives such a container the least weight; upstream gives it that of the whole pod's limit.
    if request is None and not quirks.implied_limit_becomes_weight:
        request = container_limits(container).get("cpu", ZERO)
    resources = linux_resources(
        request,
        implied_limit(pod, container, "cpu", gates),
        implied_limit(pod, container, "memory", gates),
        settings,
        gates,
        quota_disabled=quota_disabled,
    )
    swap_limit, unified = _swap(pod, container, gates, settings, resources.memory_limit)
    return msgspec.structs.replace(
        resources,
        oom_score_adj=oom_score_adj,
        memory_swap_limit=swap_limit,
        huge_pages=container_huge_page_limits(_huge_pages(pod, container, gates), settings.huge_pages),
        unified={**resources.unified, **unified},
    )


def container_unified(
    pod: Pod, container: Container, gates: Mapping[str, bool], settings: CgroupSettings
) -> dict[str, int]:
    """Return the values by file that gate MemoryQoS adds; cgroup v2 only."""
    return container_memory_qos(container, pod_qos(pod, gates), settings) if settings.cgroup_version == 2 else {}


def implied_limit(pod: Pod, container: Container, resource: str, gates: Mapping[str, bool]) -> Quantity:
    """Return the container's limit for cpu or memory: its own, or the pod's where it has none; zero for no limit."""
    own = container_limits(container).get(resource, ZERO)
    return own if not own.is_zero() else _pod_level_limits(pod, gates).get(resource, ZERO)


def _pod_level_limits(pod: Pod, gates: Mapping[str, bool]) -> ResourceList:
    resources = pod.spec.resources
    if resources is None or not gates["PodLevelResources"] or not is_pod_level_resources_set(pod):
        return {}
    return limits_of(resources)


def _huge_pages(pod: Pod, container: Container, gates: Mapping[str, bool]) -> dict[int, int]:
    return {**huge_page_limits(_pod_level_limits(pod, gates)), **huge_page_limits(container_limits(container))}


def _swap(
    pod: Pod, container: Container, gates: Mapping[str, bool], settings: CgroupSettings, memory_limit: int
) -> tuple[int, dict[str, int]]:
    """Return the cgroup v1 limit of memory and swap together, and the cgroup v2 file of swap alone."""
    if not settings.swap_controller:
        return 0, {}
    if settings.cgroup_version == 1:
        return memory_limit, {}
    return 0, {SWAP_MAX: _swap_share(pod, container, gates, settings)}


def _swap_share(pod: Pod, container: Container, gates: Mapping[str, bool], settings: CgroupSettings) -> int:
    """Return swap bytes in the proportion of requested memory, for Burstable containers whose request and limit
    differ."""
    request = container_requests(container).get("memory", ZERO)
    limit = container_limits(container).get("memory", ZERO)
    if settings.swap_behavior != LIMITED_SWAP or request == limit or is_critical(pod):
        return 0
    if pod_qos(pod, gates) != BURSTABLE:
        return 0
    memory = request.value()
    return int(memory / settings.memory_capacity * settings.swap_capacity) if memory <= settings.memory_capacity else 0
