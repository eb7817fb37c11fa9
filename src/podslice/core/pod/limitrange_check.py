"""Whether a LimitRange is valid, and whether it allows a pod (pod-level-resources 11.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from podslice.core.pod.demand import aggregate, own_limits, own_requests
from podslice.core.pod.field_error import FieldError, duplicate, forbidden, invalid, required
from podslice.core.pod.limitrange import CONTAINER, POD, LimitRange, LimitRangeItem
from podslice.core.pod.limitrange_pod import GATE as POD_DEFAULTS_GATE
from podslice.core.pod.spec import Pod, ResourceList
from podslice.core.values.golang import INT64_MAX
from podslice.core.values.quantity import ZERO, Quantity

_LARGEST_IN_MILLI = INT64_MAX // 1000
_OF_PODS = ("cpu", "memory")
_VOLUME_CLAIM = "PersistentVolumeClaim"
_ORDER = (
    ("min", "min", "max", "min value {} is greater than max value {}"),
    ("defaultRequest", "min", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "defaultRequest", "max", "default request value {} is greater than max value {}"),
    ("defaultRequest", "defaultRequest", "default", "default request value {} is greater than default limit value {}"),
    ("default", "min", "default", "min value {} is greater than default value {}"),
    ("default", "default", "max", "default value {} is greater than max value {}"),
)
"""Field that is blamed, the field that may not be greater, than which one, the API server's words."""


def limit_range_errors(limit_range: LimitRange, gates: Mapping[str, bool]) -> list[FieldError]:
    """What the API server finds wrong with a LimitRange (after its defaults); an empty list for a valid one.

    The recorded decisions hold no LimitRange whose amounts contradict each other or whose types repeat; those rules
    and texts are the ones that users of the API server report.
    """
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate(limit_range.spec.limits):
        path = f"spec.limits[{index}]"
        if item.type in seen:
            errors.append(duplicate(f"{path}.type", item.type))
        seen.add(item.type)
        if item.type == POD and not gates[POD_DEFAULTS_GATE]:
            for field, given in (("default", item.default), ("defaultRequest", item.default_request)):
                if given:
                    errors.append(forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
        if item.type == _VOLUME_CLAIM and "storage" not in {**(item.min or {}), **(item.max or {})}:
            detail = "either minimum or maximum storage value is required, but neither was provided"
            errors.append(required(f"{path}.limits", detail))
        errors += _order_errors(item, path)
        errors += _ratio_errors(item, path)
    return errors


def _order_errors(item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    """Amounts that contradict each other: min <= defaultRequest <= default <= max, each pair for itself."""
    amounts = {
        "min": item.min or {},
        "max": item.max or {},
        "default": item.default or {},
        "defaultRequest": item.default_request or {},
    }
    for field, lower, upper, text in _ORDER:
        for name, low in amounts[lower].items():
            high = amounts[upper].get(name, low)
            if low > high:
                yield invalid(f"{path}.{field}[{name}]", amounts[field][name], text.format(low, high))


def _ratio_errors(item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    for name, ratio in (item.max_limit_request_ratio or {}).items():
        here = f"{path}.maxLimitRequestRatio[{name}]"
        if ratio < Quantity.of(1):
            yield invalid(here, ratio, f"ratio {ratio} is less than 1")
        maximum, minimum = (item.max or {}).get(name), (item.min or {}).get(name)
        if maximum is not None and minimum is not None and minimum.nano > 0:
            largest = _quotient(maximum.nano, minimum.nano)
            if _quotient(ratio.nano, 10**9) > largest:
                yield invalid(here, ratio, f"ratio {ratio} is greater than max/min = {largest:f}")


def _quotient(dividend: int, divisor: int) -> float:
    """Division of amounts of any size."""
    try:
        return dividend / divisor
    except OverflowError:
        return inf


def limit_range_refusals(pod: Pod, limit_range: LimitRange, gates: Mapping[str, bool]) -> list[str]:
    """Why a LimitRange refuses a pod, one text per violated constraint, sorted; upstream's order is random."""
    refusals: list[str] = []
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                refusals += _violations(item, own_requests(container), own_limits(container))
        elif item.type == POD:
            refusals += _violations(item, *pod_totals(pod, gates))
    return sorted(refusals)


def pod_totals(pod: Pod, gates: Mapping[str, bool]) -> tuple[ResourceList, ResourceList]:
    """Requests and limits of a pod as items of type Pod count them: pod-level cpu and memory, else the aggregate.

    Neither pod-level huge pages nor overhead count.
    """
    requests, limits = aggregate(pod, own_requests), aggregate(pod, own_limits)
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
        """The bound, request and limit as integers: thousandths if all fit, else whole units. Missing counts 0."""
        three = (self.enforced, self.request or ZERO, self.limit or ZERO)
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
    if ratio * 1000 > usage.enforced.milli_value():
        return f"{text} provided ratio is {ratio:f}"
    return ""
