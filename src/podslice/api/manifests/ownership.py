"""Objects that a list of a cluster holds twice: a Pod, the ReplicaSet that made it, and the Deployment that made that.

`kubectl get all` prints all three, and a dump of a cluster too. The pods that run are what counts; without them the
topmost owner does, which says how many there shall be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podslice.api.manifests.found import FoundPod
from podslice.api.manifests.objects import ManifestObject

_LONGEST_CHAIN = 20
_NAMED_AFTER = {"ReplicaSet": ("Deployment", "Rollout"), "Job": ("CronJob",)}
"""Kinds whose objects have the name of their owner with one part more: `web-5d4f8c` is of Deployment `web`."""


class Counted(NamedTuple):
    """The pods that count, the objects that do not, since their pods or their owners are in the list as well, and the
    identities of all objects of which the list holds what they made, or who made them (`known`)."""

    pods: list[FoundPod]
    doubles: list[ManifestObject]
    known: frozenset[int]


def drop_repeated(objects: Iterable[ManifestObject]) -> list[ManifestObject]:
    """Return the objects, each UID once: the last one, as a watch prints newer ones later."""
    found: dict[Any, ManifestObject] = {}
    for number, one in enumerate(objects):
        found[one.uid or number] = one
    return list(found.values())


def drop_owned(pods: Iterable[FoundPod], objects: Iterable[ManifestObject]) -> Counted:
    """Leave out templates whose pods, or whose owner's template, are among the pods; `objects` are all of the list."""
    pods, objects = list(pods), list(objects)
    owners = _Owners(objects)
    with_pods: set[int] = set()
    with_makings: set[int] = set()
    for one in pods:
        above = {id(owner) for owner in owners.of(one.object)}
        with_makings |= above
        if _is_pod(one):
            with_pods |= above
    with_templates = {id(one.object) for one in pods if not _is_pod(one)}
    below = {id(one) for one in objects if any(id(owner) in with_templates for owner in owners.of(one))}
    doubled = with_pods | below
    kept = [one for one in pods if _is_pod(one) or id(one.object) not in doubled]
    doubles = {id(one.object): one.object for one in pods if not _is_pod(one) and id(one.object) in doubled}
    return Counted(kept, list(doubles.values()), frozenset(with_makings | below))


def _is_pod(one: FoundPod) -> bool:
    return one.object.kind == "Pod" and not one.object.group


class _Owners:
    """The owners of objects, by owner references."""

    def __init__(self, objects: Iterable[ManifestObject]) -> None:
        self._by_uid: dict[str, ManifestObject] = {}
        self._by_name: dict[tuple[str, str, str], ManifestObject] = {}
        for one in objects:
            self._by_name[one.kind, one.namespace, str(one.metadata.get("name"))] = one
            if one.uid:
                self._by_uid[one.uid] = one

    def of(self, found: ManifestObject) -> Iterator[ManifestObject]:
        """Yield the owners of an object in the list, the nearest first."""
        seen = {id(found)}
        pending = [found]
        while pending and len(seen) < _LONGEST_CHAIN:
            for owner in self._direct(pending.pop()):
                if id(owner) not in seen:
                    seen.add(id(owner))
                    pending.append(owner)
                    yield owner

    def _direct(self, found: ManifestObject) -> Iterator[ManifestObject]:
        references = found.metadata.get("ownerReferences")
        for reference in references if isinstance(references, list) else ():
            if not isinstance(reference, dict):
                continue
            owner = self._by_uid.get(str(reference.get("uid"))) or self._without_uid(reference, found.namespace)
            if owner is not None:
                yield owner
            else:
                yield from self._above_missing(reference, found.namespace)

    def _without_uid(self, reference: dict[str, Any], namespace: str) -> ManifestObject | None:
        """Return an owner whose own UID was taken out, as tools that tidy manifests do."""
        named = self._by_name.get((str(reference.get("kind")), namespace, str(reference.get("name"))))
        return named if named is not None and not named.uid else None

    def _above_missing(self, reference: dict[str, Any], namespace: str) -> Iterator[ManifestObject]:
        """Yield the owner of an owner that is not in the list, as in `kubectl get deployments,pods`: by its name."""
        name = str(reference.get("name")).rpartition("-")[0]
        for kind in _NAMED_AFTER.get(str(reference.get("kind")), ()):
            if (owner := self._by_name.get((kind, namespace, name))) is not None:
                yield owner
