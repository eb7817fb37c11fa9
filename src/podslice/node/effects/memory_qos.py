"""Memory protection and throttling of the gate MemoryQoS, on cgroup v2 (pod-level-resources 8.5).

`memory.min` and `memory.low` protect what is requested, if the kubelet's policy is TieredReservation; `memory.high`
slows a container down before it reaches its limit. Values are bytes, keyed by the cgroup file.
"""

from __future__ import annotations

import math

from podslice.api.pod.demand import GUARANTEED, container_limits, container_requests
from podslice.api.pod.spec import Container
from podslice.node.effects.settings import TIERED, CgroupSettings
from podslice.values.quantity import ZERO

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"


def protecting_file(qos: str) -> str:
    """Return the file that protects a pod of this class: a guarantee for Guaranteed pods, best effort for the
    others."""
    return MIN if qos == GUARANTEED else LOW


def pod_memory_qos(qos: str, request: int, policy: str) -> dict[str, int]:
    """Return the values of a pod's cgroup, from its effective memory request in bytes. There is no memory.high for
    pods."""
    return {protecting_file(qos): request} if policy == TIERED and request > 0 else {}


def container_memory_qos(container: Container, qos: str, settings: CgroupSettings) -> dict[str, int]:
    """Return the values of a container's cgroup. Only its own request and limit count, never those of the pod."""
    request = container_requests(container).get("memory", ZERO).value()
    limit = container_limits(container).get("memory", ZERO).value()
    values = {protecting_file(qos): request} if settings.reservation_policy == TIERED and request else {MIN: 0, LOW: 0}
    if request != limit:
        high = memory_high(request, limit, settings)
        if high is not None:
            values[HIGH] = high
    return values


def memory_high(request: int, limit: int, settings: CgroupSettings) -> int | None:
    """Return memory.high between a request and a limit in bytes, a whole number of pages; None where it is not set.
    Without a limit (0) the node's allocatable memory is the top."""
    top = limit or settings.memory_allocatable
    if not top:
        return None
    high = math.floor(request + (top - request) * settings.throttling_factor)
    high = int(high / settings.page_size) * settings.page_size
    return high if high != 0 and high > request else None
