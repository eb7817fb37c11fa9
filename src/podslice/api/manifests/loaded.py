"""A pod of a file, decoded, and its name among others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from podslice.api.manifests.decode import decode_pod
from podslice.api.manifests.found import FoundPod
from podslice.api.manifests.objects import join_path
from podslice.api.pod.implicit_claims import complete_claims
from podslice.api.pod.spec import Pod
from podslice.api.pod.unknown_fields import UnknownField
from podslice.values.errors import InputError, raise_all

MAX_REPLICAS = 100_000
"""Bound against manifests that would exhaust memory; no cluster runs workloads of this size."""


class LoadedPod(NamedTuple):
    """A pod and its origin; `path` leads to it inside the document, `data` is the pod as it was written.

    `warnings` has a line for each field of its object that Kubernetes does not know, and for each claim that the
    scheduler is assumed to make; `replicas` is how many pods the object requests. `unknown_fields` are the fields of
    `warnings`, with paths inside the document. `object_path` leads to the object, and `owned` names the fields of the
    pod's metadata that are the object's.
    """

    pod: Pod
    source: str
    document: int
    kind: str
    path: str
    data: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    replicas: int = 1
    unknown_fields: tuple[UnknownField, ...] = ()
    object_path: str = ""
    owned: frozenset[str] = frozenset()

    @property
    def is_template(self) -> bool:
        """Whether it is a template of an object rather than the object itself."""
        return self.path != self.object_path


def load_found(found: FoundPod, *, replicas: bool, validate: bool, strict: bool) -> Iterator[LoadedPod]:
    """Yield the copies of one pod, the first with the warnings. Raises `InputError`."""
    place = found.object.place
    problems = [
        InputError(str(field), source=place.source, document=place.shown, path=place.path, remedy=field.hint)
        for field in found.unknown_fields
    ]
    try:
        pod = decode_pod(found, validate=validate)
    except InputError as error:
        problems.append(error.at(source=place.source, document=place.shown))
        raise_all(problems if strict else problems[-1:])
        raise
    if strict:
        raise_all(problems)
    pod, claimed = complete_claims(pod)
    warnings = (*map(str, problems), *(_say_claimed(found, name) for name in claimed))
    copies = found.replicas if replicas else 1
    if copies > MAX_REPLICAS:
        raise InputError(f"{copies} pods", path=join_path(place.path, "spec"), remedy=f"at most {MAX_REPLICAS}")
    unknown = tuple(field._replace(path=join_path(place.path, field.path)) for field in found.unknown_fields)
    kind = found.object.kind
    for copy in range(copies):
        one = pod if copies == 1 else _rename(pod, f"{pod.metadata.name}-{copy}", "")
        yield LoadedPod(
            one, place.source, place.document, kind, found.path, found.data, warnings, found.replicas, unknown,
            place.path, found.owned,
        )  # fmt: skip
        # Only the first copy carries the warnings: they are about the object, not about each pod.
        warnings, unknown = (), ()


def _say_claimed(found: FoundPod, resource: str) -> str:
    who = f"{found.object.kind} {found.object.name}"
    return (
        f"{found.object.place.source}: {who}: the scheduler makes a claim for {resource} before a kubelet sees the "
        "pod; whether there is such a device is not checked"
    )


def assign_names(pods: list[LoadedPod], taken: Iterable[str] = ()) -> list[LoadedPod]:
    """Give every pod a name, a namespace and a UID of its own, none of them in `taken`; the same input gets the same
    names."""
    taken = set(taken)
    first = len(taken)
    result = []
    for number, loaded in enumerate(pods):
        metadata = loaded.pod.metadata
        name = metadata.name or f"pod-{number}"
        # Derived from the name, so that two runs over one file agree.
        uid = metadata.uid or f"{metadata.namespace or 'default'}.{name}"
        if uid in taken:
            uid = next(f"{uid}.{i}" for i in range(2, first + len(pods) + 2) if f"{uid}.{i}" not in taken)
        taken.add(uid)
        result.append(loaded._replace(pod=_rename(loaded.pod, name, uid)))
    return result


def _rename(pod: Pod, name: str, uid: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=uid, namespace=pod.metadata.namespace or "default")
    return msgspec.structs.replace(pod, metadata=metadata)
