"""A pod template of an operator's object, found by its shape, as a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.counts import count_template
from podslice.api.manifests.fields import objects_of
from podslice.api.manifests.found import FoundPod, name_template
from podslice.api.manifests.objects import ManifestObject, join_path
from podslice.api.manifests.shapes import Shape
from podslice.api.pod.unknown_fields import UnknownField, find_unknown_fields

_GENERIC_STEPS = frozenset({"spec", "template", "podTemplate", "podSpec", "leaderWorkerTemplate", "metadata"})
_SUFFIXES = ("GroupSpec", "Template", "Spec")


def template_pod(found: ManifestObject, shape: Shape) -> FoundPod:
    """Return the pod of a template of an object. Raises `InputError` for metadata that is not an object."""
    count = count_template(found, shape.steps)
    notes = (count.note,) if count.note else ()
    if count.number is None:
        notes = ("how many such pods run is not known: 1 counted",)
    if any(not one.get("image") for _, one in objects_of(shape.template["spec"], "containers")):
        notes = (
            *notes,
            "its operator completes this template, which lacks an image: amounts that it adds are not known",
        )
    return name_template(
        found,
        _name_containers(shape.template),
        shape.path,
        unknown_fields=tuple(_unknown_fields(found, shape)),
        replicas=1 if count.number is None else count.number,
        roles=_roles(found, shape.steps),
        notes=notes,
    )


def _name_containers(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template with a name for each container. An operator such as Knative names them itself."""
    containers = [
        {"name": f"container-{index}", **one} if one.get("name") is None else one
        for index, one in enumerate(template["spec"]["containers"])
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}


_EXACT_GROUPS = frozenset(
    """
    apps.kruise.io apps.openshift.io argoproj.io batch.volcano.sh jobset.x-k8s.io kubeflow.org kueue.x-k8s.io
    leaderworkerset.x-k8s.io ray.io
    """.split()
)
"""Groups whose containers are those of Kubernetes, field by field. Others may add their own."""


def _unknown_fields(found: ManifestObject, shape: Shape) -> Iterator[UnknownField]:
    """Yield unknown fields of the template's containers, of an unknown operator's only those of their resources. Fields
    around the containers may be the operator's own, as Knative's `containerConcurrency` is."""
    path = shape.path if shape.is_bare else join_path(shape.path, "spec")
    for field in ("initContainers", "containers"):
        for index, container in objects_of(shape.template["spec"], field):
            here = f"{path}.{field}[{index}]"
            if found.group in _EXACT_GROUPS:
                yield from find_unknown_fields(container, "Container", here)
            else:
                yield from find_unknown_fields(
                    container.get("resources"), "ResourceRequirements", join_path(here, "resources")
                )


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
