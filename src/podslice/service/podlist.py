"""Answers of an API server or a kubelet about pods: bytes in, pods or a typed error out.

The content was written by users who may create pods, and what arrives may not be an answer at all. So nothing here is
decoded as a whole. A list is cut into its items while it is read. Every item is decoded on its own, only the fields
that decide about resources, and within a bound. An item that cannot be read is that pod's failure and hides no other.
Pure: no sockets, no clock; `service.http.apiconnection` does the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.annotations import policy_annotations
from podslice.service.answers import (
    LARGEST_ITEM,
    NAME_FORM,
    UID_FORM,
    ApiError,
    ItemStream,
    decode_answer,
    read_change,
    read_list_end,
)
from podslice.values.decoding import decoding_problem
from podslice.values.errors import InputError

HASH_ANNOTATION = "kubernetes.io/config.hash"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
LARGEST_SPEC = 64 << 10
"""Bytes of the fields that decide about a pod's resources; only they are kept."""
_LARGEST_SAID = 2 << 20
"""Bytes of the annotations and owners of a pod that may be a mirror."""
_LONGEST_WORD = 256
_ENDED = ("Succeeded", "Failed")
_PREPARING = ("ContainerCreating", "PodInitializing")


class KnownPod(msgspec.Struct, frozen=True):
    """A pod of an answer, cut down to the fields that decide about its resources.

    `mirror_of`: for a mirror pod the kubelet's UID of its static pod, empty for all others.
    `mirror`: it has the annotation of a mirror pod, which any user may write.
    `annotations`: those that a policy reads, cut off where they are too long anyway.
    `node`: the node it is bound to. `created`: its creation (RFC 3339).
    `deleting`: it has a deletion timestamp. `ended`: it is Succeeded or Failed.
    `reason`: of its status, empty where that has none.
    `preparing`: the kubelet works on its sandbox or images and has not reported the result yet.
    `spec`: JSON. `problem`: why there is none.
    """

    uid: str
    namespace: str
    name: str
    mirror_of: str = ""
    spec: bytes = b""
    problem: InputError | None = None
    mirror: bool = False
    annotations: dict[str, str] = {}
    node: str = ""
    created: str = ""
    deleting: bool = False
    ended: bool = False
    reason: str = ""
    preparing: bool = False

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self.spec) + sum(map(len, self.annotations.values())) + 500

    def pod(self) -> Pod:
        """Return the pod with its specification. Raises `InputError` for one that cannot be read."""
        if self.problem is not None:
            raise self.problem
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "annotations": self.annotations}
        return pod_from_dict({"metadata": metadata, "spec": msgspec.json.decode(self.spec)})


class PodListPage(NamedTuple):
    """A page of a list: its pods, a line about each item that is not a pod, the list's resource version, and the token
    of the next page, empty on the last."""

    pods: tuple[KnownPod, ...]
    problems: tuple[str, ...]
    version: str
    more: str


class Change(NamedTuple):
    """An event of a watch: ADDED, MODIFIED or DELETED with its pod, or any other kind without. `version` is empty where
    the event has none."""

    kind: str
    pod: KnownPod | None
    version: str


class _Object(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _OwnerReference(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    namespace: str | None = ""
    name: str | None = ""
    creation_timestamp: msgspec.Raw = msgspec.Raw(b"null")
    deletion_timestamp: msgspec.Raw = msgspec.Raw(b"null")
    annotations: msgspec.Raw = msgspec.Raw(b"{}")
    owner_references: msgspec.Raw = msgspec.Raw(b"[]")


_ABSENT = msgspec.Raw(b"null")


class _Container(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    resources: msgspec.Raw = _ABSENT
    restart_policy: msgspec.Raw = _ABSENT
    resize_policy: msgspec.Raw = _ABSENT


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of a specification that decide about resources; decoding skips the rest."""

    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    resources: msgspec.Raw = _ABSENT
    overhead: msgspec.Raw = _ABSENT
    priority: msgspec.Raw = _ABSENT
    priority_class_name: msgspec.Raw = _ABSENT
    os: msgspec.Raw = _ABSENT
    resource_claims: msgspec.Raw = _ABSENT


class _Place(msgspec.Struct, rename="camel"):
    """The node that a pod is bound to."""

    node_name: str | None = ""


class _Phase(msgspec.Struct):
    """Phase of a pod and the reason for it."""

    phase: str | None = ""
    reason: str | None = ""


class _Waiting(msgspec.Struct):
    """The reason why a container does not run yet."""

    reason: str | None = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct):
    state: _State | None = None


class _Statuses(msgspec.Struct, rename="camel"):
    """The statuses that a kubelet reports of a pod's containers."""

    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


T = TypeVar("T")
_TEXTS = msgspec.json.Decoder(dict[str, str] | None)
_OWNERS = msgspec.json.Decoder(list[_OwnerReference] | None)


class PageReader:
    """Reads one page of a list, piece by piece. Mirror pods count where their owner is `node`."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._stream = ItemStream(within=2)
        self._pods: list[KnownPod] = []
        self._problems: list[str] = []
        self._cut = 0

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes. Raises `ApiError`."""
        for item in self._stream.feed(chunk):
            self._cut += 1
            if item is None:
                self._problems.append(f"item {self._cut} of the list is larger than {LARGEST_ITEM} bytes")
                continue
            try:
                self._pods.append(read_known_pod(item, self._node))
            except ApiError as error:
                self._problems.append(f"item {self._cut} of the list: {error}")

    def finish(self) -> PodListPage:
        """Return the page, once the whole answer has arrived. Raises `ApiError` if it was not a list."""
        end = read_list_end(self._stream.rest)
        others = end.items - self._cut
        if others > 0:
            self._problems.append(f"{others} items of the list are not objects")
        return PodListPage(tuple(self._pods), tuple(self._problems), end.version, end.more)


def decode_list(chunks: Iterable[bytes], node: str) -> PodListPage:
    """Read a whole page of a list. Raises `ApiError`."""
    reader = PageReader(node)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


class ChangeReader:
    """Reads a watch, piece by piece. Mirror pods count where their owner is `node`."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._stream = ItemStream(within=0)

    def feed(self, chunk: bytes) -> Iterator[Change]:
        """Yield the changes that end in this chunk. Raises `ApiError`, `GoneError`."""
        for event in self._stream.feed(chunk):
            if event is None:
                raise ApiError(f"watch: an event is larger than {LARGEST_ITEM} bytes")
            yield decode_change(event, self._node)
        if self._stream.rest.strip(b"0\r\n\t "):
            raise ApiError(f"watch: {bytes(self._stream.rest[:80])!r} is not an event")
        self._stream.rest.clear()


def decode_change(line: bytes | bytearray, node: str) -> Change:
    """Decode an event of a watch. Raises `ApiError`, `GoneError`."""
    change = read_change(line)
    is_pod = change.kind in ("ADDED", "MODIFIED", "DELETED")
    return Change(change.kind, read_known_pod(change.data, node) if is_pod else None, change.version)


def read_known_pod(data: bytes | bytearray | msgspec.Raw, node: str) -> KnownPod:
    """Decode a v1 Pod. Raises `ApiError` where not even its name can be read; any other error is the pod's
    `problem`."""
    pod = decode_answer(data, _Object)
    metadata = _metadata(pod)
    uid, namespace, name = metadata.uid, metadata.namespace or "", metadata.name or ""
    if not UID_FORM.match(uid):
        raise ApiError(f"metadata.uid: {uid[:80]!r} is not valid")
    for field, value in (("namespace", namespace), ("name", name)):
        if value and not NAME_FORM.match(value):
            raise ApiError(f"metadata.{field}: {value[:80]!r} is not valid")
    annotations = _annotations(metadata)
    status = _decode_or(pod.status, _Phase())
    known = KnownPod(
        uid,
        namespace,
        name,
        find_mirrored_uid(annotations, metadata.owner_references, node),
        mirror=MIRROR_ANNOTATION in annotations,
        annotations=policy_annotations(annotations),
        node=(_decode_or(pod.spec, _Place()).node_name or "")[:_LONGEST_WORD],
        created=_decode_or(metadata.creation_timestamp, "")[:_LONGEST_WORD],
        deleting=_decode_or(metadata.deletion_timestamp, "") != "",
        ended=status.phase in _ENDED,
        reason=(status.reason or "")[:_LONGEST_WORD],
        preparing=_is_preparing(_decode_or(pod.status, _Statuses())),
    )
    try:
        return msgspec.structs.replace(known, spec=_spec(pod.spec, known))
    except InputError as error:
        return msgspec.structs.replace(known, problem=error.at(source=f"pod {namespace}/{name}"))


def _decode_or(data: msgspec.Raw, default: T) -> T:
    """Decode a part that does not decide about resources; return `default` where it cannot be read."""
    try:
        return msgspec.json.decode(data, type=type(default))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return default


def _is_preparing(statuses: _Statuses) -> bool:
    """Whether containers wait, and all of them for the kubelet's first steps: sandbox, volumes and images."""
    every = [*(statuses.init_container_statuses or ()), *(statuses.container_statuses or ())]
    waiting = [one.state.waiting.reason for one in every if one.state is not None and one.state.waiting is not None]
    return bool(waiting) and all(reason in _PREPARING for reason in waiting)


def _metadata(pod: _Object) -> _Metadata:
    try:
        str(memoryview(pod.metadata), "utf-8")
    except UnicodeDecodeError:
        raise ApiError("metadata is not UTF-8") from None
    return decode_answer(pod.metadata, _Metadata)


def _annotations(metadata: _Metadata) -> dict[str, str]:
    """Return the annotations, none of them where they cannot be read or are too large."""
    if len(memoryview(metadata.annotations)) > _LARGEST_SAID:
        return {}
    try:
        return _TEXTS.decode(metadata.annotations) or {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}


def find_mirrored_uid(annotations: Mapping[str, str], owners: msgspec.Raw, node: str) -> str:
    """Return the kubelet's UID of the static pod that this pod mirrors, empty where it mirrors none of `node`."""
    # The annotations alone prove nothing: any user can write them. A kubelet also makes its Node the controlling owner.
    own = annotations.get(HASH_ANNOTATION, "")
    if not UID_FORM.match(own) or annotations.get(MIRROR_ANNOTATION) != own:
        return ""
    if len(memoryview(owners)) > _LARGEST_SAID:
        return ""
    try:
        found = _OWNERS.decode(owners) or []
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    return own if any(one.kind == "Node" and one.name == node and one.controller for one in found) else ""


def _spec(data: msgspec.Raw, known: KnownPod) -> bytes:
    """Return the part of a specification that decides about resources, as JSON. Raises `InputError`."""
    try:
        spec = msgspec.json.encode(msgspec.json.decode(data, type=_Spec))
        # The bound is on the part that is kept: environment variables and volumes may be as large as they like.
        if len(spec) > LARGEST_SPEC:
            raise InputError(f"names, requests and limits have more than {LARGEST_SPEC} bytes", path="spec")
        # msgspec takes strings that are not UTF-8 inside a Raw; later readers would fail on them.
        str(spec, "utf-8")
        msgspec.structs.replace(known, spec=spec).pod()
    except RecursionError:
        raise InputError("is nested too deeply", path="spec") from None
    except msgspec.DecodeError as error:
        found = decoding_problem(str(error))
        path = f"spec.{found.path}" if found.path else "spec"
        raise InputError(found.problem, path=path, remedy=found.remedy) from None
    except ValueError as error:
        raise InputError(f"cannot be read: {str(error)[:200]}", path="spec") from None
    return spec
