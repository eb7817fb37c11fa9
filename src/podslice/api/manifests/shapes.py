"""Pod templates in objects of any kind, found by their shape: a `spec` with containers.

Operators embed pod templates in objects of their own (JobSet, RayCluster, Rollout …). Which kinds there are cannot be
known, but what a container looks like is. Some lists of containers are not pods of their own: patterns and patches of
policy engines, values of charts, schemas. Fields that hold such things are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_TEMPLATES = 1000
"""Most templates of one object. No operator's object comes near."""
_MAX_DEPTH = 60
_NOT_SEARCHED = frozenset(
    """
    status managedFields annotations labels openAPIV3Schema schema validation values valuesObject patch patches
    patchStrategicMerge patchesJson6902 patchesStrategicMerge pattern anyPattern overlay overlays overrides
    podTemplateOverrides runtimePatches exclude match deny oldObject
    containers initContainers ephemeralContainers volumes affinity tolerations
    """.split()
)
_PATTERN = re.compile(r"[*?!()]")
"""Characters of wildcards and anchors (`?*`, `(name)`, `!*:latest`), which no name and no image has."""


class Shape(NamedTuple):
    """A pod template at the end of `steps`, or a whole object (`is_object`) that an object carries. A specification
    that is not in a field `spec` (`is_bare`) becomes a template."""

    steps: tuple[str | int, ...]
    template: Mapping[str, Any]
    is_object: bool = False
    is_bare: bool = False

    @property
    def path(self) -> str:
        """The steps as a path: `spec.tasks[0].template`."""
        return write_path(self.steps)


def write_path(steps: tuple[str | int, ...]) -> str:
    """Return steps into plain data as a path."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def find_shapes(data: Mapping[str, Any]) -> Iterator[Shape]:
    """Yield the pod templates and the objects in an object, in its order; at most `MAX_TEMPLATES`."""
    for number, shape in enumerate(_walk(data, ())):
        if number == MAX_TEMPLATES:
            return
        yield shape


def _walk(value: Any, steps: tuple[str | int, ...]) -> Iterator[Shape]:
    if len(steps) > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _walk(item, (*steps, index))
    elif isinstance(value, dict):
        if steps and _is_object(value):
            yield Shape(steps, value, is_object=True)
            return
        if has_containers(value.get("spec")):
            # The metadata of an object is not that of its pods. Fields beside these two are the operator's.
            metadata = value.get("metadata") if steps else None
            yield Shape(steps, {"spec": value["spec"], **({} if metadata is None else {"metadata": metadata})})
        elif steps and steps[-1] != "spec" and has_containers(value) and _says_what_runs(value):
            yield Shape(steps, {"spec": value}, is_bare=True)
        # Beside the containers of a leader an operator may have those of its workers.
        for key, member in value.items():
            if isinstance(member, dict | list) and key not in _NOT_SEARCHED:
                yield from _walk(member, (*steps, str(key)))


def _is_object(value: Mapping[str, Any]) -> bool:
    """Whether plain data is an object that another one carries. A reference to an object has neither metadata nor
    content."""
    named = isinstance(value.get("kind"), str) and isinstance(value.get("apiVersion"), str)
    return named and isinstance(value.get("spec") or value.get("metadata") or value.get("items"), dict | list)


def has_containers(spec: Any) -> bool:
    """Whether plain data is the specification of a pod: containers with names, or with images, and nothing that only a
    pattern has."""
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers) and all(map(_is_container, containers))


def _is_container(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    name, image = value.get("name"), value.get("image")
    if name is None and image is None:
        return False
    return all(one is None or (isinstance(one, str) and not _PATTERN.search(one)) for one in (name, image))


def _says_what_runs(spec: dict[str, Any]) -> bool:
    """Whether some container has an image or resources. Lists of names alone refer to containers of a pod elsewhere."""
    return any(container.get("image") or container.get("resources") for container in spec["containers"])
