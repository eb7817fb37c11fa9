"""Resizes requested with `--resize`: pods from files, matched to the pods of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from podslice.cli.options.pods import read_pods
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.api.pod.eligibility import AdmissionPod
    from podslice.api.pod.spec import Pod
    from podslice.node.decision import ResizeDecision
    from podslice.node.node import Node

_MOST_NAMED = 8


class RequestedResize(NamedTuple):
    """A pod with its requested resources, the UID written there, and its file. A pod may occur several times."""

    pod: Pod
    uid: str
    source: str
    document: int | None

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.pod.metadata.full_name

    def find_among(self, pods: Mapping[str, AdmissionPod]) -> Pod:
        """Return the pod with the UID of the running pod that it matches: by UID, else by name. Raises `InputError`."""
        from msgspec.structs import replace

        same = [uid for uid, pod in pods.items() if pod.spec.metadata.full_name == self.name]
        uid = self.uid if self.uid in pods else same[0] if len(same) == 1 else ""
        if not uid:
            known = [pod.spec.metadata.full_name for pod in pods.values()]
            there = f"one of {', '.join(known[:_MOST_NAMED])}" if known else "it runs no pods"
            if same:
                raise self.at(InputError(f"{len(same)} pods on the node have this name", remedy="write metadata.uid"))
            raise self.at(InputError("is not on the node", remedy=there))
        return replace(self.pod, metadata=replace(self.pod.metadata, uid=uid))

    def try_on(self, node: Node) -> ResizeDecision:
        """Resize the pod on `node` and return the decision. Raises `InputError`."""
        pod = self.find_among(node.view.pods)
        try:
            return node.resize(pod)
        except InputError as error:
            raise self.at(error) from None

    def at(self, error: InputError) -> InputError:
        """Return the error with the file and name of this request."""
        return error.at(source=self.source, document=self.document, path=self.name)


def read_resizes(files: Iterable[str], **options: Any) -> list[RequestedResize]:
    """Read the pods of all files, in order. Raises `InputError`."""
    requests = []
    for file in files:
        loaded = read_pods((file,), **options).pods
        for one in loaded:
            written = (one.data.get("metadata") or {}).get("uid") or ""
            requests.append(RequestedResize(one.pod, written, one.source, one.document if len(loaded) > 1 else None))
    return requests
