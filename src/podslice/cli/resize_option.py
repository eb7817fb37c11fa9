"""Resizes that people ask for with `--resize`: pods of files, and which pods of a node they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from podslice.cli.pods_option import read_pods
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.api.pod.eligibility import AdmissionPod
    from podslice.api.pod.spec import Pod
    from podslice.node.decision import ResizeDecision
    from podslice.node.node import Node

_MOST_NAMED = 8


class ResizeWish(NamedTuple):
    """A pod as somebody wants it, the UID that is written there, and the file. One pod may come several times."""

    pod: Pod
    uid: str
    source: str
    document: int | None

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return _label(self.pod)

    def among(self, pods: Mapping[str, AdmissionPod]) -> Pod:
        """The pod with the UID of the running pod that it is: the one of its UID, else the one of its name. Raises
        `InputError`."""
        from msgspec.structs import replace

        same = [uid for uid, pod in pods.items() if _label(pod.spec) == self.name]
        uid = self.uid if self.uid in pods else same[0] if len(same) == 1 else ""
        if not uid:
            known = [_label(pod.spec) for pod in pods.values()]
            there = f"one of {', '.join(known[:_MOST_NAMED])}" if known else "nobody is"
            if same:
                raise self.at(InputError(f"{len(same)} pods on the node have this name", remedy="write metadata.uid"))
            raise self.at(InputError("is not on the node", remedy=there))
        return replace(self.pod, metadata=replace(self.pod.metadata, uid=uid))

    def asked_of(self, node: Node) -> ResizeDecision:
        """What a node makes of it. Raises `InputError`."""
        pod = self.among(node.view.pods)
        try:
            return node.resize(pod)
        except InputError as error:
            raise self.at(error) from None

    def at(self, error: InputError) -> InputError:
        """An error about it, with the place."""
        return error.at(source=self.source, document=self.document, path=self.name)


def read_wishes(files: Iterable[str], **options: Any) -> list[ResizeWish]:
    """The pods of all files, in order. Raises `InputError`."""
    wishes = []
    for file in files:
        loaded = read_pods((file,), **options).pods
        for one in loaded:
            written = (one.data.get("metadata") or {}).get("uid") or ""
            wishes.append(ResizeWish(one.pod, written, one.source, one.document if len(loaded) > 1 else None))
    return wishes


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
