"""Effective requests and limits with the calculation behind them (pod-level-resources 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from podslice.advise.inspect.facts import Gates
from podslice.advise.inspect.page import Effective
from podslice.advise.inspect.stages import in_order
from podslice.api.pod.demand import (
    aggregate,
    container_limits,
    container_requests,
    is_pod_level_requests_set,
    is_pod_level_resources_set,
    is_supported_pod_level_resource,
    pod_limits,
    pod_requests,
)
from podslice.api.pod.spec import Container, Pod, ResourceList, is_restartable_init
from podslice.values.quantity import ZERO, Quantity

_Own = Callable[[Container], ResourceList]


PodDefaults: TypeAlias = Mapping[tuple[str, str], tuple[Quantity, str]]
"""Defaults of LimitRange objects for whole pods: amount and name of the object, by field and resource."""


def effective(pod: Pod, gates: Gates, written: Pod, defaults: PodDefaults | None = None) -> tuple[Effective, ...]:
    """Return a row for each resource in which the pod as a whole has a request or limit. `written` is the pod before
    defaulting, `defaults` the values that LimitRange objects filled in."""
    known = defaults or {}
    pod_level = gates["PodLevelResources"]
    requests, limits = pod_requests(pod, pod_level=pod_level), pod_limits(pod, pod_level=pod_level)
    unlimited = {name: _unlimited_reason(pod, name, pod_level=pod_level) for name in limits}
    return tuple(
        Effective(
            name,
            str(requests.get(name, "")),
            _request_formula(pod, name, written, known, pod_level=pod_level) if name in requests else "",
            "" if unlimited.get(name) else str(limits.get(name, "")),
            unlimited[name] or _limit_formula(pod, name, written, known, pod_level=pod_level) if name in limits else "",
        )
        for name in in_order({*requests, *limits})
    )


def _unlimited_reason(pod: Pod, name: str, *, pod_level: bool) -> str:
    """Return why the pod as a whole has no limit of CPU or memory although containers have one: another has none."""
    resources = pod.spec.resources
    if name not in ("cpu", "memory") or (pod_level and name in ((resources.limits if resources else None) or {})):
        return ""
    without = [one.name for one in pod.spec.containers if name not in (one.resources.limits or {})]
    return f"no limit ({', '.join(without)} {'has' if len(without) == 1 else 'have'} none)" if without else ""


class _Side(NamedTuple):
    """Requests or limits: how to read a container's own, those of `spec.resources`, and those that were written
    there."""

    field: str
    own: _Own
    given: ResourceList
    written: ResourceList


def _request_formula(pod: Pod, name: str, written: Pod, defaults: PodDefaults, *, pod_level: bool) -> str:
    given, before = (one.spec.resources.requests if one.spec.resources else None for one in (pod, written))
    counts = pod_level and is_pod_level_requests_set(pod)
    side = _Side("spec.resources.requests", container_requests, (given or {}) if counts else {}, before or {})
    overhead = (pod.spec.overhead or {}).get(name)
    text = _source(pod, name, side, defaults)
    return text if overhead is None else f"{text} + overhead {overhead}"


def _limit_formula(pod: Pod, name: str, written: Pod, defaults: PodDefaults, *, pod_level: bool) -> str:
    given, before = (one.spec.resources.limits if one.spec.resources else None for one in (pod, written))
    counts = pod_level and is_pod_level_resources_set(pod)
    side = _Side("spec.resources.limits", container_limits, (given or {}) if counts else {}, before or {})
    overhead = (pod.spec.overhead or {}).get(name)
    text = _source(pod, name, side, defaults)
    # The overhead counts for a limit only where there is one: without, the pod stays unlimited.
    if overhead is None or (name not in side.given and aggregate(pod, container_limits).get(name, ZERO).is_zero()):
        return text
    return f"{text} + overhead {overhead}"


def _source(pod: Pod, name: str, side: _Side, defaults: PodDefaults) -> str:
    """Return the formula of one amount: from `spec.resources`, or else the aggregate of the containers."""
    formula = aggregate_formula(pod, name, side.own)
    given = side.given.get(name)
    if given is None or not is_supported_pod_level_resource(name):
        return formula or "0"
    text = f"{side.field} {given}"
    total = aggregate(pod, side.own).get(name)
    if name not in side.written:
        amount, source = defaults.get((side.field, name), (None, ""))
        if amount == given:
            return f"{text}, from the LimitRange {source}"
        return f"{text}, filled in: {formula if total == given else 'the limit'}"
    if total is None or total == given:
        return text
    what = "containers together" if side.own is container_requests else "the containers' own"
    return f"{text} ({what}: {total})"


def aggregate_formula(pod: Pod, name: str, own: _Own) -> str:
    """Return the KEP-753 aggregate of one resource in numbers: `app 1 + log 100m`, or `max(running …, init …)`."""
    running = [(c.name, own(c)[name]) for c in pod.spec.containers if name in own(c)]
    sidecars: list[tuple[str, Quantity]] = []
    peaks: list[str] = []
    for container in pod.spec.init_containers:
        amount = own(container).get(name)
        if is_restartable_init(container):
            if amount is not None:
                sidecars.append((f"{container.name} (sidecar)", amount))
        elif amount is not None:
            peaks.append(_sum([(container.name, amount), *sidecars]))
    text = _sum([*running, *sidecars])
    if not peaks:
        return text
    return f"max(running: {text or '0'}, init: {', init: '.join(peaks)})"


def _sum(terms: list[tuple[str, Quantity]]) -> str:
    text = " + ".join(f"{owner} {amount}" for owner, amount in terms)
    if len(terms) < 2:
        return text
    total = ZERO
    for _, amount in terms:
        total = total.add(amount)
    return f"{text} = {total}"
