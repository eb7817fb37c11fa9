"""cgroup values a kubelet derives from a pod (spec pod-level-resources 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.core.effects.cpu_weight import DEFAULT_PERIOD_US, MIN_SHARES, milli_cpu_to_quota, milli_cpu_to_shares
from podslice.core.pod.demand import (
    HUGEPAGES_PREFIX,
    is_pod_level_resources_set,
    limits_of,
    pod_limits,
    pod_requests,
)
from podslice.core.pod.qos import BEST_EFFORT, GUARANTEED, pod_qos
from podslice.core.pod.spec import Pod, is_restartable_init
from podslice.core.values.quantity import ZERO, Quantity


def pod_resource_config(
    pod: Pod, gates: Mapping[str, bool], *, enforce_cpu_limits: bool = True, period: int = DEFAULT_PERIOD_US
) -> dict[str, Any]:
    """Values of the pod's own cgroup (spec 8.2): cpuShares, cpuQuota, cpuPeriod, memory in bytes, hugePageLimit by
    page size in bytes. None stands for what is not written."""
    pod_level = gates["PodLevelResources"]
    requests = pod_requests(pod, pod_level=pod_level)
    limits = pod_limits(pod, pod_level=pod_level)
    qos = pod_qos(pod, gates)
    config: dict[str, Any] = {"cpuShares": MIN_SHARES, "cpuQuota": None, "cpuPeriod": None, "memory": None}
    if qos != BEST_EFFORT:
        config["cpuShares"] = milli_cpu_to_shares(requests.get("cpu", ZERO).milli_value())
        if qos == GUARANTEED or declares_limit(pod, "cpu", pod_level):
            quota = milli_cpu_to_quota(limits.get("cpu", ZERO).milli_value(), period)
            config["cpuQuota"] = quota if enforce_cpu_limits else -1
            config["cpuPeriod"] = period
        if qos == GUARANTEED or declares_limit(pod, "memory", pod_level):
            config["memory"] = limits.get("memory", ZERO).value()
    pages = _huge_page_limits(requests)
    if pages:
        config["hugePageLimit"] = pages
    return config


def declares_limit(pod: Pod, resource: str, pod_level: bool) -> bool:
    """True when the pod cgroup may carry a limit for cpu or memory: every container has one, or the pod does."""
    if pod_level and pod.spec.resources is not None and is_pod_level_resources_set(pod):
        own = limits_of(pod.spec.resources).get(resource)
        if own is not None and not own.is_zero():
            return True
    if any(_is_unlimited(limits_of(container.resources).get(resource)) for container in pod.spec.containers):
        return False
    sidecars = ZERO
    for container in pod.spec.init_containers:
        cumulative = sidecars.add(limits_of(container.resources).get(resource, ZERO))
        if is_restartable_init(container):
            sidecars = cumulative
        if cumulative.is_zero():
            return False
    return True


def _is_unlimited(limit: Quantity | None) -> bool:
    return limit is None or limit.is_zero()


def _huge_page_limits(requests: Mapping[str, Quantity]) -> dict[str, int]:
    pages: dict[str, int] = {}
    for name, quantity in requests.items():
        if name.startswith(HUGEPAGES_PREFIX):
            size = str(Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value())
            pages[size] = pages.get(size, 0) + quantity.value()
    return pages
