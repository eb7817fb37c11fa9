"""Objects of `resource.k8s.io/v1` as far as they decide where a claim is allocated (cluster-integration A.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from podslice.api.pod.spec import ObjectMeta
from podslice.scheduling.selectors import NodeSelector
from podslice.scheduling.taints import Taint, Toleration
from podslice.values.quantity import Quantity

ALL = "All"


Scalar: TypeAlias = int | bool | str
TypedValue: TypeAlias = tuple[str, Scalar | tuple[Scalar, ...]]
"""The type of an attribute, and its value or values."""


class DeviceAttribute(msgspec.Struct, frozen=True):
    """A value of one type; exactly one field is set."""

    whole: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    text: str | None = msgspec.field(default=None, name="string")
    version: str | None = None
    wholes: tuple[int, ...] | None = msgspec.field(default=None, name="ints")
    truths: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    texts: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    versions: tuple[str, ...] | None = None

    @property
    def typed_values(self) -> list[TypedValue]:
        """Type and value of each of its forms that is given; a valid attribute has one."""
        forms: tuple[tuple[str, Scalar | tuple[Scalar, ...] | None], ...] = (
            ("int", self.whole), ("bool", self.truth), ("string", self.text), ("version", self.version),
            ("int", self.wholes), ("bool", self.truths), ("string", self.texts), ("version", self.versions),
        )  # fmt: skip
        return [(kind, value) for kind, value in forms if value is not None and value != ()]

    @property
    def typed_value(self) -> TypedValue:
        """Type and value; a tuple for a list (KEP-5491)."""
        return next(iter(self.typed_values), ("version", ""))


class ValidRange(msgspec.Struct, frozen=True):
    """Amounts from `min` in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts that a claim may request of a capacity, and the default it gets without a request."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: ValidRange | None = None


class OfferedCapacity(msgspec.Struct, frozen=True, rename="camel"):
    """An amount that a device has."""

    value: Quantity
    request_policy: RequestPolicy | None = None


class Counter(msgspec.Struct, frozen=True):
    """An amount of a counter."""

    value: Quantity


class CounterSet(msgspec.Struct, frozen=True):
    """Named amounts that devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts that an allocated device takes of a counter set."""

    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(Taint, frozen=True):
    """Keeps claims away that do not tolerate it."""

    effect: Literal["None", "NoSchedule", "NoExecute"] = "NoSchedule"


class DeviceToleration(Toleration, frozen=True):
    """A taint that a request tolerates; an empty key with `Exists` means all taints."""

    operator: Literal["Exists", "Equal"] = "Equal"


class NodeAllocatableMapping(msgspec.Struct, frozen=True, rename="camel"):
    """The amount of one resource of the node for which a device counts: per consumed unit of a capacity, or without a
    capacity for the device as a whole."""

    capacity_key: str = ""
    allocation_multiplier: Quantity | None = None


class SliceDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device of a slice."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, OfferedCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableMapping] = {}


class ResourcePool(msgspec.Struct, frozen=True, rename="camel"):
    """The pool a slice belongs to, and how many slices the pool has."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Devices, or counters that devices of other slices share."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(msgspec.Struct, frozen=True):
    """Devices that a driver offers on a node or on several."""

    spec: ResourceSliceSpec
    metadata: ObjectMeta = ObjectMeta()


class CELSelector(msgspec.Struct, frozen=True):
    """An expression over one device."""

    expression: str


class DeviceSelector(msgspec.Struct, frozen=True):
    """A condition that a device must meet."""

    cel: CELSelector


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Properties that all devices of a class share."""

    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(msgspec.Struct, frozen=True):
    """A kind of devices, by name."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(msgspec.Struct, frozen=True):
    """Amounts requested of a device that serves many claims."""

    requests: dict[str, Quantity] = {}


class DeviceSubRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A number of devices of a class; `name` is empty for the only form of a request."""

    device_class_name: str
    name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: Literal["ExactCount", "All"] = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of one form, or of the first of several forms that can be allocated."""

    name: str
    exactly: DeviceSubRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()

    def forms(self) -> Iterator[tuple[str, DeviceSubRequest]]:
        """Yield the forms in the order they are tried, each with the name that its results have."""
        if self.exactly is not None:
            yield self.name, self.exactly
        for form in self.first_available:
            yield f"{self.name}/{form.name}", form


class DeviceConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """An attribute in which devices of several requests must agree, or differ; empty `requests` mean all."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None

    def applies_to(self, request: str) -> bool:
        """Whether it constrains the devices of a request, given by the name that its results have."""
        # A constraint may name a request, with all its alternatives, or one alternative as `request/form`.
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


class DeviceClaim(msgspec.Struct, frozen=True):
    """Requests and constraints of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True):
    """Specification of a claim."""

    devices: DeviceClaim = DeviceClaim()


class AllocationResult(msgspec.Struct, frozen=True, rename="camel"):
    """A device of an allocation."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None


class AllocatedDevices(msgspec.Struct, frozen=True):
    """The devices of an allocation."""

    results: tuple[AllocationResult, ...] = ()


class Allocation(msgspec.Struct, frozen=True, rename="camel"):
    """The devices of a claim, and the nodes where it can be used; no selector means everywhere."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(msgspec.Struct, frozen=True, rename="camel"):
    """An object, nearly always a pod, that may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A driver's condition on a device of a claim; `last_transition_time` is when `status` last changed."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class AllocatedDeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A device of an allocation, with its driver's conditions."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Allocation and users of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(msgspec.Struct, frozen=True):
    """Devices for the pods that name it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(msgspec.Struct, frozen=True):
    """The claim that each pod gets."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    metadata: ObjectMeta = ObjectMeta()


class ResourceClaimTemplate(msgspec.Struct, frozen=True):
    """A claim for each pod that names it."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
