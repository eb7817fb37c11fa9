"""Validation of a LimitRange itself by the API server (pod-level-resources 11.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from podslice.api.pod.field_error import FieldError, duplicate, forbidden, invalid, required
from podslice.api.pod.names import subdomain_problems
from podslice.api.pod.resource_names import (
    container_name_problems,
    is_overcommittable,
    name_problems,
    qualified_name_problems,
)
from podslice.api.pod.spec import ResourceList
from podslice.api.server.limitrange import CONTAINER, POD, LimitRange, LimitRangeItem
from podslice.api.server.limitrange_pod import GATE as POD_DEFAULTS_GATE
from podslice.values.quantity import Quantity

_VOLUME_CLAIM = "PersistentVolumeClaim"
_TYPES = (CONTAINER, POD, _VOLUME_CLAIM)
_REQUEST = "defaultRequest"
_ORDER = (
    ("min", "min", "max", "min", "min value {} is greater than max value {}"),
    (_REQUEST, "min", _REQUEST, _REQUEST, "min value {} is greater than default request value {}"),
    (_REQUEST, _REQUEST, "max", _REQUEST, "default request value {} is greater than max value {}"),
    (_REQUEST, _REQUEST, "default", _REQUEST, "default request value {} is greater than default limit value {}"),
    ("default", "min", "default", "min", "min value {} is greater than default value {}"),
    ("default", "default", "max", "max", "default value {} is greater than max value {}"),
)
"""By pair of fields: the field that gets the error, the one that may not be greater, the one it is compared to, the one
whose amount is shown, and upstream's text."""

Amounts = Mapping[str, ResourceList]


def limit_range_errors(limit_range: LimitRange, gates: Mapping[str, bool]) -> list[FieldError]:
    """Return the errors of a LimitRange after its defaults; empty for a valid one."""
    errors: list[FieldError] = []
    name = limit_range.metadata.name
    for problem in subdomain_problems(name) if name else ():
        errors.append(invalid("metadata.name", name, problem))
    seen: set[str] = set()
    for index, item in enumerate(limit_range.spec.limits):
        path = f"spec.limits[{index}]"
        errors += _type_errors(item.type, f"{path}.type")
        if item.type in seen:
            errors.append(duplicate(f"{path}.type", item.type))
        seen.add(item.type)
        errors += _item_errors(item, path, gates)
    return errors


def _type_errors(kind: str, path: str) -> Iterator[FieldError]:
    problems = qualified_name_problems(kind)
    if not problems and "/" not in kind and kind not in _TYPES:
        problems = ["must be a standard limit type or fully qualified"]
    for problem in problems:
        yield invalid(path, kind, problem)


def _item_errors(item: LimitRangeItem, path: str, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    amounts = {"min": item.min or {}, "max": item.max or {}}
    if item.type == POD and not gates[POD_DEFAULTS_GATE]:
        for field, given in (("default", item.default), (_REQUEST, item.default_request)):
            if given:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    else:
        amounts |= {"default": item.default or {}, _REQUEST: item.default_request or {}}
    if item.type == _VOLUME_CLAIM and "storage" not in {**amounts["min"], **amounts["max"]}:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", detail)
    ratios = item.max_limit_request_ratio or {}
    yield from _name_errors(item.type, {**amounts, "maxLimitRequestRatio": ratios}, path)
    yield from _order_errors(amounts, path)
    yield from _equality_errors(amounts, path)
    yield from _ratio_errors(ratios, amounts, path)


def _name_errors(kind: str, amounts: Amounts, path: str) -> Iterator[FieldError]:
    # Items of other types may limit resources that no container has, such as storage.
    problems_of = container_name_problems if kind in (CONTAINER, POD) else name_problems
    for field, names in amounts.items():
        for name in names:
            for problem in problems_of(name):
                yield invalid(f"{path}.{field}[{name}]", name, problem)


def _order_errors(amounts: Amounts, path: str) -> Iterator[FieldError]:
    """Yield the amounts that contradict each other: min <= defaultRequest <= default <= max, each pair for itself."""
    for field, lower, upper, shown, text in _ORDER:
        for name, low in amounts.get(lower, {}).items():
            # A missing bound contradicts nothing.
            high = amounts.get(upper, {}).get(name, low)
            if low > high:
                yield invalid(f"{path}.{field}[{name}]", amounts[shown][name], text.format(low, high))


def _equality_errors(amounts: Amounts, path: str) -> Iterator[FieldError]:
    """Yield the resources with different request and limit that cannot be overcommitted."""
    for name, request in amounts.get(_REQUEST, {}).items():
        limit = amounts["default"].get(name, request)
        if request != limit and not is_overcommittable(name):
            text = f"default value {limit} must equal to defaultRequest value {request} in {name}"
            yield invalid(f"{path}.{_REQUEST}[{name}]", request, text)


def _ratio_errors(ratios: ResourceList, amounts: Amounts, path: str) -> Iterator[FieldError]:
    for name, ratio in ratios.items():
        here = f"{path}.maxLimitRequestRatio[{name}]"
        if ratio < Quantity.of(1):
            yield invalid(here, ratio, f"ratio {ratio} is less than 1")
        maximum, minimum = amounts["max"].get(name), amounts["min"].get(name)
        if maximum is not None and minimum is not None and minimum.nano:
            largest = _quotient(maximum.nano, minimum.nano)
            if _quotient(ratio.nano, 10**9) > largest:
                yield invalid(here, ratio, f"ratio {ratio} is greater than max/min = {largest:f}")


def _quotient(dividend: int, divisor: int) -> float:
    """Divide amounts of any size; infinite where a float does not hold the result."""
    try:
        return dividend / divisor
    except OverflowError:
        return inf
