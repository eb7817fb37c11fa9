"""Pods and nodes of a whole cluster as a scheduler needs them: bytes of one object in, a value or `ApiError` out.

Only the fields that decide where a pod may go are decoded. The specification of a pod stays bytes until it is needed.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import NamedTuple, TypeVar

import msgspec

from podslice.api.pod.spec import Pod, pod_from_json
from podslice.scheduling.taints import Taint, Toleration, Tolerations
from podslice.service.answers import NAME_FORM, UID_FORM, ApiError, decode_answer
from podslice.service.podlist import find_mirrored_uid
from podslice.values.errors import InputError

T = TypeVar("T")
LARGEST_POD = 2 << 20
"""Bytes of the largest pod that is read; etcd takes 1.5 MiB."""
_ENDED = ("Succeeded", "Failed")
_NOTHING = msgspec.Raw(b"null")


class _PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    namespace: str = ""
    name: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = _NOTHING


class _PodGroup(msgspec.Struct, frozen=True, rename="camel"):
    pod_group_name: str = ""


class _PodPlace(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[msgspec.Raw] | None = None
    scheduling_group: _PodGroup | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None


_REFUSED = _PodCondition("PodScheduled", "False", "Unschedulable")


class _PodState(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[_PodCondition] | None = None


class _PodObject(msgspec.Struct, frozen=True):
    metadata: _PodMetadata
    spec: _PodPlace = _PodPlace()
    status: _PodState = _PodState()


MOST_TERMS = 256
"""Most tolerations, and most labels of a node selector, that are read."""
LARGEST_AHEAD = 256 << 10
"""Bytes of the largest pod for which a node is chosen before its scheduler asks."""


class PlacementTerms(NamedTuple):
    """The conditions of a pod on its node.

    `simple`: selector and tolerations are all of them: no affinity, spread constraints, claims, host ports or volumes
    that are bound to nodes. `excess`: why there are too many to read; then only the scheduler knows where the pod fits.
    """

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: Tolerations = Tolerations()
    simple: bool = True
    excess: str = ""


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int = 0


class _PortContainer(msgspec.Struct, frozen=True):
    ports: list[_Port] | None = None


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_claim: msgspec.Raw = _NOTHING
    ephemeral: msgspec.Raw = _NOTHING


class _Terms(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: msgspec.Raw = _NOTHING
    topology_spread_constraints: list[msgspec.Raw] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    containers: list[_PortContainer] | None = None
    init_containers: list[_PortContainer] | None = None
    volumes: list[_Volume] | None = None


class _TermsObject(msgspec.Struct, frozen=True):
    spec: _Terms = _Terms()


class KeptPod(NamedTuple):
    """The part that is kept of a pod once its node has admitted it: its identity, and what decides about evicting
    it."""

    uid: str
    namespace: str
    name: str
    node: str
    node_uid: str
    scheduler: str
    generation: int
    priority: int
    started: float
    preempts: bool
    mirror: bool
    deleting: bool


class ScheduledPod:
    """A pod of the cluster at one version; `pod` and `terms` are decoded when they are first needed.

    `node`, `nominated`: the node it is bound to or nominated for, empty for none.
    `gated`: it has scheduling gates. `group`: its PodGroup as NAMESPACE/NAME, empty for none.
    `mirror`: it mirrors a static pod, which no scheduler placed; its node knows it by another UID, `node_uid`.
    `started`: seconds since 1970, of its creation where it has not started, 0 where neither is known.
    `refused`: its scheduler found no node (PodScheduled is False). `preempts`: it may preempt others.
    """

    __slots__ = ("_data", "_pod", "_terms", "created", "deleting", "ended", "gated", "generation",
                 "group", "mirror", "name", "namespace", "node", "node_uid", "nominated", "preempts", "priority",
                 "refused", "scheduler", "started", "uid")  # fmt: skip

    def __init__(self, data: bytes, read: _PodObject) -> None:
        metadata, spec, status = read.metadata, read.spec, read.status
        self._data: bytes | None = data
        self._pod: Pod | None = None
        self._terms: PlacementTerms | None = None
        # Interned texts are shared: tens of thousands of pods have few namespaces, nodes and schedulers.
        self.uid, self.namespace, self.name = metadata.uid, intern(metadata.namespace), metadata.name
        self.generation = metadata.generation
        self.created, self.deleting = metadata.creation_timestamp or "", metadata.deletion_timestamp is not None
        # The node's kubelet and its agent know a static pod by the hash of its file, not by the mirror's UID.
        static = find_mirrored_uid(metadata.annotations or {}, metadata.owner_references, spec.node_name)
        self.mirror, self.node_uid = bool(static), static or self.uid
        self.node, self.scheduler = intern(spec.node_name), intern(spec.scheduler_name)
        self.gated = bool(spec.scheduling_gates)
        group = spec.scheduling_group
        self.group = f"{self.namespace}/{group.pod_group_name}" if group is not None else ""
        self.priority = spec.priority or 0
        self.ended, self.nominated = status.phase in _ENDED, status.nominated_node_name
        self.started = to_seconds(status.start_time or self.created)
        self.preempts = spec.preemption_policy != "Never"
        self.refused = _REFUSED in (status.conditions or ())

    def __repr__(self) -> str:
        return f"<ScheduledPod {self.namespace}/{self.name} {self.uid} on {self.node or 'no node'}>"

    @property
    def pod(self) -> Pod:
        """The decoded pod. Raises `InputError` where it cannot be read, or its specification is not kept."""
        if self._pod is None:
            self._pod = _pod(self._data)
        return self._pod

    @property
    def terms(self) -> PlacementTerms:
        """The conditions on its node. Raises `ApiError` where they cannot be read."""
        if self._terms is None:
            self._terms = read_terms(self._data or b"{}")
        return self._terms

    @property
    def kept(self) -> KeptPod:
        """The pod without its specification."""
        return KeptPod(
            self.uid, self.namespace, self.name, self.node, self.node_uid, self.scheduler, self.generation,
            self.priority, self.started, self.preempts, self.mirror, self.deleting,
        )  # fmt: skip

    @classmethod
    def of(cls, kept: KeptPod) -> ScheduledPod:
        """Restore a pod from its kept part, without specification, group and time of creation."""
        # `__init__` reads an object of the API server, of which nothing but these fields is left.
        pod = cls.__new__(cls)
        for name, value in zip(KeptPod._fields, kept, strict=True):
            setattr(pod, name, value)
        pod._data = pod._pod = pod._terms = None
        pod.created = pod.group = pod.nominated = ""
        pod.gated = pod.ended = pod.refused = False
        return pod

    def has_same_spec(self, older: ScheduledPod) -> bool:
        """Whether `older` is the same pod with the same specification, which then need not be decoded again."""
        # The generation counts changes of the specification; older API servers leave it 0 for pods.
        return self.uid == older.uid and 0 < self.generation == older.generation

    def adopt(self, older: ScheduledPod) -> None:
        """Take over the decoded parts of an older version, which has the same specification."""
        self._pod, self._terms = older._pod, older._terms
        if self._pod is not None and self._terms is not None:
            self._data = None  # a cluster's pods are most of this program's memory; nothing else reads the bytes


def to_seconds(time: str) -> float:
    """Return the seconds since 1970 of an RFC 3339 time, 0 where it is none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0


def read_pod(data: bytes | bytearray | msgspec.Raw) -> ScheduledPod:
    """Decode a v1 Pod. Raises `ApiError` for what is not a pod, or has a name or a UID that no API server gives."""
    raw = bytes(data)
    if len(raw) > LARGEST_POD:
        raise ApiError(f"a pod of {len(raw)} bytes is larger than {LARGEST_POD}")
    found = _decode(raw, _PodObject)
    metadata = found.metadata
    if not UID_FORM.match(metadata.uid):
        raise ApiError(f"metadata.uid: {metadata.uid[:80]!r} is not valid")
    for field, value in (("namespace", metadata.namespace), ("name", metadata.name)):
        if not NAME_FORM.match(value):
            raise ApiError(f"metadata.{field}: {value[:80]!r} is not valid")
    return ScheduledPod(raw, found)


def _pod(data: bytes | None) -> Pod:
    if data is None:
        raise InputError("is not kept", path="pod")
    return pod_from_json(data)


def read_terms(data: bytes) -> PlacementTerms:
    """Decode the conditions of a v1 Pod on its node. Raises `ApiError`."""
    # Not an error: the scheduler still decides about this pod, only nothing is computed ahead of it.
    if len(data) > LARGEST_AHEAD:
        return PlacementTerms(simple=False, excess=f"the pod has {len(data)} bytes; {LARGEST_AHEAD} are looked at")
    found = _decode(data, _TermsObject).spec
    for what, many in (("tolerations", found.tolerations), ("labels in its node selector", found.node_selector)):
        if many and len(many) > MOST_TERMS:
            return PlacementTerms(simple=False, excess=f"the pod has {len(many)} {what}; {MOST_TERMS} are looked at")
    # These depend on other pods, or on objects that are not read here.
    elsewhere = found.affinity != _NOTHING or found.topology_spread_constraints or found.resource_claims
    ports = (port for one in (*(found.containers or ()), *(found.init_containers or ())) for port in one.ports or ())
    volumes = (one for one in found.volumes or () if (one.persistent_volume_claim, one.ephemeral) != (_NOTHING,) * 2)
    simple = not (elsewhere or any(port.host_port for port in ports) or any(volumes))
    selector = tuple(sorted((found.node_selector or {}).items()))
    return PlacementTerms(selector, Tolerations.of(found.tolerations or ()), simple)


class _NodeMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    labels: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] | None = None


class _NodeObject(msgspec.Struct, frozen=True):
    metadata: _NodeMetadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class ScheduledNode(msgspec.Struct, frozen=True):
    """The part of a node that decides which pods it may take."""

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, str] = {}


def read_node(data: bytes | bytearray | msgspec.Raw) -> ScheduledNode:
    """Decode a v1 Node. Raises `ApiError` for what is not a node."""
    found = _decode(bytes(data), _NodeObject)
    if not NAME_FORM.match(found.metadata.name):
        raise ApiError(f"metadata.name: {found.metadata.name[:80]!r} is not valid")
    return ScheduledNode(
        intern(found.metadata.name),
        _intern(found.metadata.labels),
        tuple(found.spec.taints or ()),
        found.spec.unschedulable,
        _share(tuple((found.status.allocatable or {}).items())),
    )


def _intern(texts: dict[str, str] | None) -> dict[str, str]:
    """Return the texts with equal strings shared: thousands of nodes have the same keys and values."""
    return {intern(name): intern(text) for name, text in (texts or {}).items()}


@lru_cache(1024)
def _share(amounts: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return one dict for all nodes with these amounts; it must not be changed."""
    return _intern(dict(amounts))


def _decode(data: bytes, kind: type[T]) -> T:
    """Decode JSON into `kind`. Raises `ApiError`."""
    try:
        # msgspec does not check the encoding of raw parts, which would fail later, far from the answer that had it.
        str(memoryview(data), "utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(f"the answer is not JSON: {error}") from None
    return decode_answer(data, kind)
