"""Memory protection and throttling of the gate MemoryQoS, on cgroup v2 (pod-level-resources 8.5).

`memory.min` and `memory.low` protect what is requested, if the kubelet's policy is TieredReservation; up to 1.35, which
has no policy, `memory.min` protects all of it (KEP-2570). `memory.high` slows a container down before it reaches its
limit. Values are bytes, keyed by the cgroup file.
"""

from __future__ import annotations

import math

from podslice.api.pod.demand import GUARANTEED, container_limits, container_requests
from podslice.api.pod.spec import Container
from podslice.node.effects.settings import EVERY_REQUEST, TIERED, CgroupSettings
from podslice.values.quantity import ZERO

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"


def protection(qos: str, request: int, policy: str) -> dict[str, int]:
    """Return the value of the file that protects a request of a pod of this class: a guarantee for Guaranteed pods,
    best effort for the others; empty where the policy protects nothing."""
    if policy not in (TIERED, EVERY_REQUEST) or not request:
        return {}
    return {MIN if qos == GUARANTEED or policy == EVERY_REQUEST else LOW: request}


def pod_memory_qos(qos: str, request: int, policy: str) -> dict[str, int]:
    """Return the values of a pod's cgroup, from its effective memory request in bytes. There is no memory.high for
    pods."""
    return protection(qos, max(request, 0), policy)


def container_memory_qos(container: Container, qos: str, settings: CgroupSettings) -> dict[str, int]:
    """Return the values of a container's cgroup. Only its own request and limit count, never those of the pod."""
    request = container_requests(container).get("memory", ZERO).value()
    limit = container_limits(container).get("memory", ZERO).value()
    values = protection(qos, request, settings.reservation_policy)
    if not values and settings.reservation_policy != EVERY_REQUEST:
        values = {MIN: 0, LOW: 0}
    if request != limit:
        high = memory_high(request, limit, settings)
        if high is not None:
            values[HIGH] = high
    return values


def memory_high(request: int, limit: int, settings: CgroupSettings) -> int | None:
    """Return memory.high between a request and a limit in bytes, a whole number of pages; None where it is not set.
    Without a limit (0) the node's allocatable memory is the top."""
    top = limit or settings.memory_allocatable
    if not top or settings.throttling_factor is None:
        return None
    high = math.floor(request + (top - request) * settings.throttling_factor)
    high = int(high / settings.page_size) * settings.page_size
    return high if high != 0 and high > request else None
