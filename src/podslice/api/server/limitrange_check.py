"""Constraints of a LimitRange on a pod (pod-level-resources 11.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from podslice.api.pod.demand import aggregate, container_limits, container_requests
from podslice.api.pod.spec import Pod, ResourceList
from podslice.api.server.limitrange import CONTAINER, POD, LimitRange, LimitRangeItem
from podslice.values.golang import INT64_MAX
from podslice.values.quantity import ZERO, Quantity

_LARGEST_IN_MILLI = INT64_MAX // 1000
_OF_PODS = ("cpu", "memory")


def limit_range_refusals(pod: Pod, limit_range: LimitRange, gates: Mapping[str, bool]) -> list[str]:
    """Return a text for each constraint that a pod violates, sorted; upstream's order is random."""
    refusals: list[str] = []
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                refusals += _violations(item, container_requests(container), container_limits(container))
        elif item.type == POD:
            refusals += _violations(item, *pod_totals(pod, gates))
    return sorted(refusals)


def pod_totals(pod: Pod, gates: Mapping[str, bool]) -> tuple[ResourceList, ResourceList]:
    """Return requests and limits of a pod as items of type Pod count them: pod-level cpu and memory, else the
    aggregate.

    Neither pod-level huge pages nor overhead count.
    """
    requests, limits = aggregate(pod, container_requests), aggregate(pod, container_limits)
    resources = pod.spec.resources
    if resources is not None and gates["PodLevelResources"]:
        for total, own in ((requests, resources.requests), (limits, resources.limits)):
            total |= {name: own[name] for name in _OF_PODS if own and name in own}
    return requests, limits


def _violations(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    checks: tuple[tuple[ResourceList | None, _Check], ...] = (
        (item.min, _below_minimum),
        (item.max, _above_maximum),
        (item.max_limit_request_ratio, _above_ratio),
    )
    for constraints, check in checks:
        for name, enforced in (constraints or {}).items():
            usage = _Usage(name, item.type, enforced, requests.get(name), limits.get(name))
            problem = check(usage)
            if problem:
                yield problem


class _Usage(NamedTuple):
    name: str
    type: str
    enforced: Quantity
    request: Quantity | None
    limit: Quantity | None

    def in_one_unit(self) -> tuple[int, int, int]:
        """Return bound, request and limit as integers: thousandths if all fit, else whole units. Missing counts 0."""
        three = (self.enforced, self.request or ZERO, self.limit or ZERO)
        # Upstream compares thousandths only where none of the three would overflow 64 bits.
        if all(amount.value() <= _LARGEST_IN_MILLI for amount in three):
            bound, request, limit = (amount.milli_value() for amount in three)
        else:
            bound, request, limit = (amount.value() for amount in three)
        return bound, request, limit


_Check = Callable[[_Usage], str]


def _below_minimum(usage: _Usage) -> str:
    bound, request, limit = usage.in_one_unit()
    text = f"minimum {usage.name} usage per {usage.type} is {usage.enforced}"
    if usage.request is None:
        # Two blanks behind the full stop: upstream's text.
        return f"{text}.  No request is specified"
    if request < bound:
        return f"{text}, but request is {usage.request}"
    if usage.limit is not None and limit < bound:
        return f"{text}, but limit is {usage.limit}"
    return ""


def _above_maximum(usage: _Usage) -> str:
    bound, request, limit = usage.in_one_unit()
    text = f"maximum {usage.name} usage per {usage.type} is {usage.enforced}"
    if usage.limit is None:
        return f"{text}.  No limit is specified"
    if limit > bound:
        return f"{text}, but limit is {usage.limit}"
    if usage.request is not None and request > bound:
        return f"{text}, but request is {usage.request}"
    return ""


def _above_ratio(usage: _Usage) -> str:
    _, request, limit = usage.in_one_unit()
    text = f"{usage.name} max limit to request ratio per {usage.type} is {usage.enforced}, but"
    if not request:
        return f"{text} no request is specified or request is 0"
    if not limit:
        return f"{text} no limit is specified or limit is 0"
    ratio = limit / request
    # A float64 as upstream's, printed with six decimals.
    if ratio * 1000 > usage.enforced.milli_value():
        return f"{text} provided ratio is {ratio:f}"
    return ""
