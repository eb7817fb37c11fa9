"""The part of the v1 Pod that decides about resources, and the resources a kubelet granted, as frozen structs.

Decoding is partial on purpose: a pod has hundreds of fields, placement reads a few dozen. Unknown fields are ignored
here; `manifests.manifest` reports them. A missing map, an empty map and a missing object stay different, because
Kubernetes decides differently on each (pod-level-resources 6.3).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from podslice.reading.files import PathOrText
from podslice.values.decoding import MAP_KEY, abbreviate, decoding_problem
from podslice.values.errors import InputError, PodsliceError
from podslice.values.quantity import Quantity, QuantityError

ResourceList = dict[str, Quantity]


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """`resources` of a container or, as `spec.resources`, of a pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: list[dict[str, Any]] | None = None


class ResizePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a container must restart for an in-place resize of a resource to take effect."""

    resource_name: str = ""
    restart_policy: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """An app, init or ephemeral container."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ResizePolicy, ...] = ()
    restart_policy: str | None = None


class OwnerReference(msgspec.Struct, frozen=True):
    """An owner of a pod; its kind can select the pod's CPU class."""

    kind: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of `metadata` that decide about resources, or name the pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME, as people write it; `default` where no namespace is given."""
        return f"{self.namespace or 'default'}/{self.name}"


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `spec.resourceClaims`; containers refer to it by name. Either of the other two fields says which
    claim."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodOS(msgspec.Struct, frozen=True):
    """The operating system a pod is made for."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Containers, and the other fields that concern resources."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList | None = None
    priority: int | None = None
    priority_class_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    os: PodOS | None = None
    restart_policy: str = ""
    runtime_class_name: str | None = None
    active_deadline_seconds: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    """State of a container; the details of each state are not read."""

    running: dict[str, Any] | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The kubelet's report on a container: its state and the resources it has."""

    name: str
    state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `status.conditions`."""

    type: str
    status: str = ""
    reason: str = ""


class ExtendedResourceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An extended resource of a container that a claim serves."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaim(msgspec.Struct, frozen=True, rename="camel"):
    """The claim that the scheduler made for extended resources of a pod."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceRequest, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Status of a running pod; it decides about resizes, quota and eviction."""

    qos_class: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    node_allocatable_resource_claim_statuses: tuple[Any, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A v1 Pod."""

    spec: PodSpec
    metadata: ObjectMeta = ObjectMeta()
    status: PodStatus = PodStatus()

    @classmethod
    def load(cls, source: PathOrText | Mapping[str, Any], *, validate: bool = True) -> Pod:
        """Return the pod of a file, of the text of a file, or of an object as plain data, with a name and a UID. An
        object with a pod template, such as a Deployment, counts as one pod.

        `validate`: refuse a pod that the API server would refuse. Raises `InputError`, also for more than one pod.
        """
        from podslice.api.manifests.manifest import load_pods  # imports this module

        first, *others = load_pods(source, validate=validate)
        if others:
            raise InputError(
                f"holds {len(others) + 1} pods", source=first.source, remedy="load_pods(…) returns all of them"
            )
        return first.pod


def is_restartable_init(container: Container) -> bool:
    """Whether an init container keeps running beside the app containers (a sidecar, KEP-753)."""
    return container.restart_policy == "Always"


def map_containers(spec: PodSpec, change: Callable[[Container], Container]) -> PodSpec:
    """Return the specification with `change` applied to every container of every kind."""
    return msgspec.structs.replace(
        spec,
        containers=tuple(map(change, spec.containers)),
        init_containers=tuple(map(change, spec.init_containers)),
        ephemeral_containers=tuple(map(change, spec.ephemeral_containers)),
    )


def map_requirements(spec: PodSpec, change: Callable[[ResourceRequirements], ResourceRequirements]) -> PodSpec:
    """Return the specification with `change` applied to the resources of every container, and of the pod if it has
    any."""

    def container(one: Container) -> Container:
        return msgspec.structs.replace(one, resources=change(one.resources))

    pod_level = None if spec.resources is None else change(spec.resources)
    return msgspec.structs.replace(map_containers(spec, container), resources=pod_level)


def containers_with_kind(pod: Pod) -> list[tuple[str, Container]]:
    """Return all containers with their kind: `init` and `sidecar`, then `container`, then `ephemeral`."""
    spec = pod.spec
    return [
        *(("sidecar" if is_restartable_init(container) else "init", container) for container in spec.init_containers),
        *(("container", container) for container in spec.containers),
        *(("ephemeral", container) for container in spec.ephemeral_containers),
    ]


# What a kubelet granted, or last wrote into cgroups (pod-level-resources 15.4)


class PodAllocation(msgspec.Struct, frozen=True):
    """Granted resources of one pod: by container name, and of the pod as a whole (None: the pod has no
    `spec.resources`, or the kubelet does not resize at pod level)."""

    containers: Mapping[str, ResourceRequirements] = {}
    pod_level: ResourceRequirements | None = None


def allocation_of(pod: Pod, gates: Mapping[str, bool]) -> PodAllocation:
    """Return the allocation record of a pod whose specification is granted as it stands. Claims are not part of it."""
    spec = pod.spec
    pod_level = None
    if gates["InPlacePodLevelResourcesVerticalScaling"] and spec.resources is not None:
        pod_level = _make_record(spec.resources)
    containers = {one.name: _make_record(one.resources) for one in (*spec.init_containers, *spec.containers)}
    return PodAllocation(containers, pod_level)


def _make_record(resources: ResourceRequirements) -> ResourceRequirements:
    # The record has the form in which a kubelet stores it: empty maps are absent, claims are left out.
    return ResourceRequirements(resources.requests or None, resources.limits or None)


def apply_allocation(pod: Pod, allocation: PodAllocation | None, gates: Mapping[str, bool]) -> Pod:
    """Return the pod with the resources granted to it, as the kubelet's other parts see it; without a record the pod
    itself."""
    if allocation is None:
        return pod

    def grant(container: Container) -> Container:
        own = allocation.containers.get(container.name)
        return container if own is None else msgspec.structs.replace(container, resources=own)

    spec = map_containers(pod.spec, grant)
    if gates["InPlacePodLevelResourcesVerticalScaling"]:
        spec = msgspec.structs.replace(spec, resources=allocation.pod_level)
    return msgspec.structs.replace(pod, spec=spec)


# Reading

_RESOURCE_LISTS = frozenset(
    {"requests", "limits", "overhead", "allocatedResources", "max", "min", "default", "defaultRequest",
     "maxLimitRequestRatio"}
)  # fmt: skip


_NULL_OF_EVERY_CONDITION = b'"lastProbeTime":null'
"""API servers write this null into every condition; no decoded field depends on it."""
T = TypeVar("T")


class NoQuantityError(PodsliceError, ValueError):
    """Raised for a value that is not a quantity where one must be."""


def pod_from_dict(data: Any) -> Pod:
    """Decode a v1 Pod from plain JSON or YAML data.

    Quantities may be text or numbers. Raises `InputError` with field path, value and remedy, also for an object of
    another kind, whose pods are in a template.
    """
    if isinstance(data, Mapping) and data.get("kind") not in (None, "Pod"):
        raise InputError(
            f"{abbreviate(data['kind'])} is not Pod", path="kind", remedy="load_pods(…) reads the pods of workloads"
        )
    return from_dict(data, Pod)


def pod_from_json(data: bytes) -> Pod:
    """Decode a v1 Pod from JSON, with the result of `pod_from_dict`. JSON without nulls and errors, as an API server
    writes it, is decoded directly in a fraction of the time. Raises `InputError`."""
    # A direct decoder takes null for an error in most fields, where Kubernetes takes it for absent.
    if b"null" not in data.replace(_NULL_OF_EVERY_CONDITION, b""):
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return msgspec.json.decode(data, type=Pod, dec_hook=_decode_quantity)
    try:
        plain: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {str(error)[:200]}", path="pod") from None
    return pod_from_dict(plain)


def from_dict(data: Any, kind: type[T]) -> T:
    """Decode plain data that holds quantities into a struct of type `kind`; see `pod_from_dict`."""
    plain = _drop_nulls(data)
    try:
        return msgspec.convert(plain, kind, dec_hook=_decode_quantity)
    except msgspec.ValidationError as error:
        raise _translate_error(plain, error) from None


def _drop_nulls(data: Any) -> Any:
    """Return the data without nulls: Kubernetes reads an explicit null as a missing field. Quantities are the
    exception: a null quantity is 0."""
    if isinstance(data, dict):
        return {
            key: {name: 0 if amount is None else amount for name, amount in value.items()}
            if key in _RESOURCE_LISTS and isinstance(value, dict)
            else _drop_nulls(value)
            for key, value in data.items()
            if value is not None
        }
    if isinstance(data, list):
        return [_drop_nulls(value) for value in data]
    return data


def _decode_quantity(kind: type, value: Any) -> Any:
    if kind is not Quantity:
        raise NotImplementedError
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise NoQuantityError(f"{abbreviate(value)} is not a quantity")
    try:
        return Quantity.parse(value.strip(" ") if isinstance(value, str) else str(value))
    except QuantityError as error:
        raise NoQuantityError(f"{abbreviate(value)} is not a quantity: {error}") from None


def _translate_error(data: Any, error: msgspec.ValidationError) -> InputError:
    found = decoding_problem(str(error))
    no_quantity = isinstance(error.__cause__, NoQuantityError)
    remedy = "write a quantity such as 500m, 2 or 1Gi" if no_quantity else found.remedy
    return InputError(found.problem, path=_name_map_key(data, found.path), remedy=remedy)


def _name_map_key(data: Any, path: str) -> str:
    """Return `path` with the key in place of `[...]`, which is all that the decoder says of a map: the first key whose
    value alone cannot be decoded."""
    before, marker, after = path.partition(MAP_KEY)
    if not marker:
        return path
    found: Any = data
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", before):
        found = found[int(index)] if index else found[name]
    kind: Any = ResourceList if before.rpartition(".")[2] in _RESOURCE_LISTS else dict[str, str]
    for key, value in found.items():
        try:
            msgspec.convert({key: value}, kind, dec_hook=_decode_quantity)
        except msgspec.ValidationError:
            return f"{before}[{key}]{after}"
    return f"{before}[*]{after}"
