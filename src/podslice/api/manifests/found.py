"""A pod of an object before it is decoded, and the names of several pods of one object."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from podslice.api.manifests.objects import ManifestObject, describe_value, join_path
from podslice.api.pod.unknown_fields import UnknownField
from podslice.values.errors import InputError


class FoundPod(NamedTuple):
    """A pod, or a pod template, of an object.

    - `path` leads to it inside the document, `data` is the pod as written, with the name of its object where it has
      none of its own
    - `replicas` is how many such pods the object asks for
    - `owned` names the fields of its metadata that come from the object
    - `roles` tell several templates of one object apart, such as `worker`: the last one, or where that is not enough
      all of them
    - `notes` say what is assumed of the pod, one sentence each
    - `is_custom`: the object is of an operator, not of Kubernetes itself
    """

    object: ManifestObject
    path: str
    data: Mapping[str, Any]
    unknown_fields: tuple[UnknownField, ...] = ()
    replicas: int = 1
    owned: frozenset[str] = frozenset()
    roles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_custom: bool = False


class PassedOver(NamedTuple):
    """An object that may stand for pods of which none can be read, and why."""

    object: ManifestObject
    why: str


Key = Callable[[ManifestObject], str | None]
"""Returns what objects are looked for by, None for an object that is not looked for."""


class Others:
    """All objects of an input, for an operator that makes pods of two of them."""

    def __init__(self, objects: Iterable[ManifestObject]) -> None:
        self._objects = list(objects)
        self._by_name: dict[tuple[str, str], list[ManifestObject]] = {}
        for one in self._objects:
            self._by_name.setdefault((one.kind, str(one.metadata.get("name"))), []).append(one)
        self._indexes: dict[Key, dict[str, list[ManifestObject]]] = {}

    def by(self, key: Key, value: str) -> list[ManifestObject]:
        """Return the objects for which `key` returns a value; the values of all objects are remembered."""
        if key not in self._indexes:
            index = self._indexes[key] = {}
            for one in self._objects:
                if (found := key(one)) is not None:
                    index.setdefault(found, []).append(one)
        return self._indexes[key].get(value, [])

    def find(self, kind: str, namespace: str, name: str) -> ManifestObject | None:
        """Return an object by its name; "" is the namespace of one that has none."""
        found = self._by_name.get((kind, name), [])
        return next((one for one in found if not namespace or one.namespace == namespace), None)


Maker = Callable[[ManifestObject, Others], Iterator[FoundPod | PassedOver]]
"""Yields the pods that an operator makes of an object. Nothing at all means that the object needs none of its own."""


def name_template(found: ManifestObject, template: Mapping[str, Any], path: str, **more: Any) -> FoundPod:
    """Return a pod template with the name and namespace of its object. Raises `InputError` for metadata that is no
    object."""
    owner = _require_object(found.data.get("metadata"), "metadata")
    metadata = {**_require_object(template.get("metadata"), join_path(path, "metadata"))}
    owned = frozenset(name for name in ("name", "namespace") if name not in metadata)
    # A template's pods have no name of their own; here they get the workload's.
    metadata.setdefault("name", owner.get("name") or _generated(owner))
    if owner.get("namespace"):
        metadata.setdefault("namespace", owner["namespace"])
    data = {**template, "metadata": metadata}
    return FoundPod(found, join_path(found.place.path, path), data, owned=owned, **more)


def _generated(metadata: Mapping[str, Any]) -> str:
    """Return the beginning of a name that the API server completes."""
    prefix = metadata.get("generateName")
    return prefix.rstrip("-.") if isinstance(prefix, str) else ""


def name_roles(pods: Iterable[FoundPod]) -> list[FoundPod]:
    """Return the pods of one object; where they are several, each is named after its role as well."""
    found = list(pods)
    if len(found) < 2:
        return found
    last = Counter(one.roles[-1:] for one in found)
    each = Counter(one.roles for one in found)
    names = ("-".join(one.roles[-1:] if last[one.roles[-1:]] == 1 else one.roles) for one in found)
    return [
        _name_role(one, f"{name}-{number}" if each[one.roles] > 1 else name)
        for number, (one, name) in enumerate(zip(found, names, strict=True))
    ]


_UNFIT = re.compile(r"[^a-z0-9]+")
_LONGEST_ROLE = 63


def _name_role(one: FoundPod, role: str) -> FoundPod:
    metadata = one.data["metadata"]
    suffix = _UNFIT.sub("-", role.lower())[:_LONGEST_ROLE].strip("-")
    if "name" not in one.owned or not isinstance(metadata.get("name"), str) or not metadata["name"] or not suffix:
        return one
    return one._replace(data={**one.data, "metadata": {**metadata, "name": f"{metadata['name']}-{suffix}"}})


def _require_object(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"expected an object, got {describe_value(value)}", path=path)
    return value
