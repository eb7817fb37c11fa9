"""LimitRange objects and the defaults they add to a pod (pod-level-resources 11.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from podslice.api.pod.spec import Container, ObjectMeta, Pod, ResourceList, from_dict
from podslice.api.server.limitrange_pod import fill_pod_level

replace = msgspec.structs.replace

ANNOTATION = "kubernetes.io/limit-ranger"
CONTAINER, POD = "Container", "Pod"


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """Constraints and defaults for one type of object."""

    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """The items of a LimitRange, at most one of each type."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(msgspec.Struct, frozen=True):
    """A v1 LimitRange."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


def limit_range_from_dict(data: object) -> LimitRange:
    """Decode a v1 LimitRange and set its defaults, as the API server does when it reads one.

    Raises `InputError` with field path, value and remedy.
    """
    limit_range = from_dict(data, LimitRange)
    return replace(limit_range, spec=LimitRangeSpec(tuple(map(_default_item, limit_range.spec.limits))))


def _default_item(item: LimitRangeItem) -> LimitRangeItem:
    """Set an item's defaults: a container's default limit is its maximum, its default request that limit or else its
    minimum."""
    maximum, minimum = _round_up(item.max), _round_up(item.min)
    default, default_request = _round_up(item.default), _round_up(item.default_request)
    if item.type == CONTAINER:
        default = {**(maximum or {}), **(default or {})}
        default_request = {**(minimum or {}), **default, **(default_request or {})}
    return LimitRangeItem(
        item.type, maximum, minimum, default, default_request, _round_up(item.max_limit_request_ratio)
    )


def _round_up(amounts: ResourceList | None) -> ResourceList | None:
    return None if amounts is None else {name: amount.round_up_milli() for name, amount in amounts.items()}


def apply_defaults(pod: Pod, limit_ranges: Iterable[LimitRange], gates: Mapping[str, bool]) -> Pod:
    """Return the pod as the LimitRanger plugin leaves it: defaults filled in, and an annotation about them.

    Defaults for containers neither read nor recompute pod-level resources, so the result can contradict them.
    """
    for limit_range in limit_ranges:
        pod = _apply_one(pod, limit_range, gates)
    return pod


def _apply_one(pod: Pod, limit_range: LimitRange, gates: Mapping[str, bool]) -> Pod:
    # Upstream walks several LimitRanges in random order; the first that supplies a key wins (pod-level-resources 11.1).
    requests, limits = _merge_defaults(limit_range, CONTAINER)
    notes: list[str] = []
    spec = replace(
        pod.spec,
        containers=tuple(_fill_container(one, "container", requests, limits, notes) for one in pod.spec.containers),
        init_containers=tuple(
            _fill_container(one, "init container", requests, limits, notes) for one in pod.spec.init_containers
        ),
    )
    pod = fill_pod_level(replace(pod, spec=spec), *_merge_defaults(limit_range, POD), gates, notes)
    if not notes:
        return pod
    # Each LimitRange that adds something replaces the annotation of the one before.
    annotations = {**(pod.metadata.annotations or {}), ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _merge_defaults(limit_range: LimitRange, kind: str) -> tuple[ResourceList, ResourceList]:
    """Return the default requests and limits of all items of a type; later items win."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in limit_range.spec.limits:
        if item.type == kind:
            requests |= item.default_request or {}
            limits |= item.default or {}
    return requests, limits


def _fill_container(
    container: Container, kind: str, requests: ResourceList, limits: ResourceList, notes: list[str]
) -> Container:
    resources = container.resources
    filled = []
    for title, own, defaults in (("request", resources.requests, requests), ("limit", resources.limits, limits)):
        own = own or {}
        missing = sorted(defaults.keys() - own)
        if missing:
            notes.append(f"{', '.join(missing)} {title} for {kind} {container.name}")
        filled.append({**own, **{name: defaults[name] for name in missing}})
    return replace(container, resources=replace(resources, requests=filled[0], limits=filled[1]))
