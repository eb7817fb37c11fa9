"""Signatures: the parts of a pod that decide whether a node admits it. Pods with equal signatures share answers.

Containers are in the order of their specification. Amounts count as written, because upstream treats some spellings of
one quantity differently. Names and UIDs decide nothing (a property test checks every profile); only where an annotation
names containers are their names part of the signature.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import counted_claims
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements
from podslice.api.server.defaults import default_pod
from podslice.config.annotations import policy_annotations
from podslice.config.mixed import make_admission_pod
from podslice.config.policy import MixedCPUs, PodslicePolicy
from podslice.machine.devices import is_extended_resource_name
from podslice.scheduling.predicates import OS_LABEL
from podslice.values.gates import FeatureGates

SignatureKey: TypeAlias = "tuple[object, ...]"
"""The parts of a pod that count; equal for pods that every node answers alike."""
_GATES = FeatureGates.from_overrides({})
_WITHOUT_POD_LEVEL = {**_GATES, "PodLevelResources": False}
_ALL_MIXED = PodslicePolicy(mixed=MixedCPUs(free=1))


class Wants(NamedTuple):
    """Whether a pod could get something exclusive on some node: whole CPUs, memory of NUMA nodes, devices."""

    cpus: bool
    memory: bool
    devices: bool


class Signature:
    """Pods that share answers. `number` is never used again; `pod` is the first of them."""

    __slots__ = ("__weakref__", "number", "pod", "wants")

    def __init__(self, number: int, pod: Pod, wants: Wants) -> None:
        self.number = number
        self.pod = pod
        self.wants = wants

    def __repr__(self) -> str:
        return f"<Signature {self.number}>"


class Signatures:
    """The latest signatures, at most `room` after `drop_surplus`. A pod whose signature was dropped gets a new one."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._known: OrderedDict[SignatureKey, Signature] = OrderedDict()
        self._numbered: WeakValueDictionary[int, Signature] = WeakValueDictionary()
        self._last = 0
        self._latest: tuple[Pod | None, Signature | None] = None, None

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, number: int) -> Pod:
        """Return the pod of a signature that is still referenced."""
        return self._numbered[number].pod

    def of(self, pod: Pod) -> Signature:
        """Return the signature of a pod as the API server stores it. The latest pod is remembered: one call of the
        scheduler asks several times."""
        if self._latest[0] is pod and self._latest[1] is not None:
            return self._latest[1]
        found = self._of(pod)
        self._latest = pod, found
        return found

    def _of(self, pod: Pod) -> Signature:
        key = signature_key(pod)
        found = self._known.get(key)
        if found is None:
            self._last += 1
            found = self._known[key] = self._numbered[self._last] = Signature(self._last, pod, find_wants(pod))
        else:
            self._known.move_to_end(key)
        return found

    def drop_surplus(self) -> Iterator[Signature]:
        """Drop and return the signatures that were used longest ago, until `room` are left."""
        while len(self._known) > self._room:
            self._latest = None, None
            yield self._known.popitem(last=False)[1]


def signature_key(pod: Pod) -> SignatureKey:
    """Return the key that pods have in common if every node answers them alike."""
    spec, metadata = pod.spec, pod.metadata
    annotations = metadata.annotations
    spoken = policy_annotations(annotations) if annotations else {}
    names = tuple(one.name for one in (*spec.init_containers, *spec.containers)) if spoken else ()
    return (
        tuple(map(_container, spec.containers)),
        tuple(map(_container, spec.init_containers)),
        None if spec.resources is None else _requirements(spec.resources),
        _amounts(spec.overhead),
        is_critical(pod),
        pod.status.qos_class,
        None if spec.os is None else spec.os.name,
        (metadata.labels or {}).get(OS_LABEL),
        tuple(sorted(spoken.items())),
        (names, metadata.namespace) if spoken else (),
        _claims(pod),
    )


def _claims(pod: Pod) -> tuple[object, ...]:
    """Return what the pod's status says of its claims: the resources they count for, and the extended resources they
    provide, by position of the container."""
    status = pod.status
    made = status.extended_resource_claim_status
    if made is None and not status.node_allocatable_resource_claim_statuses:
        return ()
    places = {one.name: place for place, one in enumerate((*pod.spec.init_containers, *pod.spec.containers))}
    claimed = () if made is None else made.request_mappings
    return (
        tuple(_amounts(one.resources) for one in counted_claims(pod)),
        tuple((places.get(one.container_name), one.resource_name) for one in claimed),
    )


def find_wants(pod: Pod) -> Wants:
    """Return what a pod could get for itself on any node, of any release: for nodes of which nothing is known."""
    found = _find_wants(pod, _GATES)
    if pod.spec.resources is None:
        return found
    # Older releases drop pod-level resources, and containers then decide about the QoS class.
    dropped = _find_wants(pod, _WITHOUT_POD_LEVEL)
    return Wants(*(one or other for one, other in zip(found, dropped, strict=True)))


def _find_wants(pod: Pod, gates: Mapping[str, bool]) -> Wants:
    admission = make_admission_pod(_ALL_MIXED, default_pod(pod, gates), gates)
    exclusive = bool(admission.cpus or admission.overflow) or any(one.exclusive_cpus for one in admission.containers)
    devices = any(is_extended_resource_name(name) for one in admission.containers for name in one.limits)
    return Wants(exclusive, admission.guaranteed, devices)


def _container(container: Container) -> tuple[object, ...]:
    return container.restart_policy, _requirements(container.resources)


def _requirements(resources: ResourceRequirements) -> tuple[object, ...]:
    return _amounts(resources.requests), _amounts(resources.limits)


def _amounts(amounts: ResourceList | None) -> object:
    if amounts is None:
        return None
    return tuple((name, one.nano, one.scale, one.small) for name, one in sorted(amounts.items()))
