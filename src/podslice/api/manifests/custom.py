"""Pods of objects of other API groups than Kubernetes' own: operators' workloads.

Where an operator makes pods without a template in its object, `MAKERS` knows how; in every other object templates are
found by their shape. Such an object never ends a file: what cannot be read of it is passed over, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from podslice.api.manifests.builtin import find_builtin_pod, has_builtin_pod
from podslice.api.manifests.counts import count_template
from podslice.api.manifests.found import FoundPod, name_roles, name_template
from podslice.api.manifests.objects import ManifestObject, Place, join_path
from podslice.api.manifests.shapes import Shape, find_shapes
from podslice.api.manifests.without_pods import has_no_pods
from podslice.api.pod.unknown_fields import UnknownField, find_unknown_fields
from podslice.values.errors import InputError

_MAX_NESTING = 5
"""Most objects inside each other, such as a Job in a JobSet's AppWrapper."""
Maker = Callable[[ManifestObject], Iterator[FoundPod]]


class PassedOver(NamedTuple):
    """An object that may stand for pods of which none can be read, and why."""

    object: ManifestObject
    why: str


NO_TEMPLATE = "no pod template is in it"
MAKERS: Mapping[tuple[str, str], Maker] = {}
"""How operators make pods of objects without a pod template, by group and kind."""


def find_custom_pods(found: ManifestObject, depth: int = 0) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of an object of another group, or the object itself where it has none that can be read."""
    if has_no_pods(found):
        return
    maker = MAKERS.get((found.group, found.kind))
    try:
        pods = list(_by_shape(found, depth) if maker is None else maker(found))
    except InputError as error:
        yield PassedOver(found, str(error))
        return
    if not pods:
        yield PassedOver(found, NO_TEMPLATE)
    named = iter(name_roles(one for one in pods if isinstance(one, FoundPod) and one.object is found))
    for one in pods:
        if isinstance(one, PassedOver):
            yield one
        else:
            # Objects inside this one have names of their own.
            yield (next(named) if one.object is found else one)._replace(is_custom=True)


def _by_shape(found: ManifestObject, depth: int) -> Iterator[FoundPod | PassedOver]:
    for shape in find_shapes(found.data):
        if shape.is_object:
            yield from _carried(found, shape, depth + 1)
            continue
        count = count_template(found, shape.steps)
        notes = (count.note,) if count.note else ()
        if count.number is None:
            notes = ("how many such pods run is not known: 1 counted",)
        yield name_template(
            found, shape.template, shape.path,
            unknown_fields=tuple(_unknown_fields(shape)),
            replicas=1 if count.number is None else count.number,
            roles=_roles(found, shape.steps),
            notes=notes,
        )  # fmt: skip


def _carried(around: ManifestObject, shape: Shape, depth: int) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of an object inside another one."""
    place = around.place
    inner = ManifestObject(Place(place.source, place.document, place.shown, join_path(place.path, shape.path)),
                           dict(shape.template))  # fmt: skip
    if depth > _MAX_NESTING:
        yield PassedOver(inner, f"it is inside more than {_MAX_NESTING} objects")
    elif has_builtin_pod(inner):
        try:
            yield find_builtin_pod(inner)
        except InputError as error:
            yield PassedOver(inner, str(error))
    elif inner.kind == "List" and isinstance(inner.data.get("items"), list):
        yield from _by_shape(inner._replace(data={"items": inner.data["items"]}), depth)
    else:
        yield from find_custom_pods(inner, depth)


def _unknown_fields(shape: Shape) -> Iterator[UnknownField]:
    """Yield unknown fields of the template's containers. Those around them may be the operator's own, as Knative's
    `containerConcurrency` is."""
    path = shape.path if shape.is_bare else join_path(shape.path, "spec")
    for field in ("initContainers", "containers"):
        listed = shape.template["spec"].get(field)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            yield from find_unknown_fields(container, "Container", f"{path}.{field}[{index}]")


_GENERIC_STEPS = frozenset({"spec", "template", "podTemplate", "podSpec", "leaderWorkerTemplate", "metadata"})
_SUFFIXES = ("GroupSpec", "Template", "Spec")


def _roles(found: ManifestObject, steps: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return what tells a template of an object apart: the names of items and fields on the way to it."""
    roles: list[str] = []
    data: Any = found.data
    for step in steps:
        data = data[step]
        if isinstance(step, int):
            roles.append(_item_name(data) or str(step))
        elif step not in _GENERIC_STEPS and not isinstance(data, list):
            roles.append(_without_suffix(step))
    return tuple(roles)


def _item_name(item: Any) -> str:
    names = (item.get(key) for key in ("name", "groupName")) if isinstance(item, dict) else ()
    return next((name for name in names if isinstance(name, str)), "")


def _without_suffix(step: str) -> str:
    for suffix in _SUFFIXES:
        if step.endswith(suffix) and step != suffix:
            return step.removesuffix(suffix)
    return step
