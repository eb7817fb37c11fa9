"""Objects of `resource.k8s.io/v1` as far as they decide where a claim is allocated (cluster-integration A.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from podslice.api.pod.spec import ObjectMeta
from podslice.scheduling.node_affinity import NodeSelector
from podslice.values.quantity import Quantity

EXACT_COUNT, ALL = "ExactCount", "All"


class DeviceAttribute(msgspec.Struct, frozen=True):
    """A value of one type; only one field is set."""

    whole: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    text: str | None = msgspec.field(default=None, name="string")
    version: str | None = None

    @property
    def typed(self) -> tuple[str, int | bool | str]:
        """Its type and value, equal for attributes that match."""
        if self.whole is not None:
            return "int", self.whole
        if self.truth is not None:
            return "bool", self.truth
        return ("string", self.text) if self.text is not None else ("version", self.version or "")


class ValidRange(msgspec.Struct, frozen=True):
    """Amounts from `min` in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """What a claim may ask of a capacity, and gets if it asks nothing."""

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
    """Amounts that devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(msgspec.Struct, frozen=True, rename="camel"):
    """What an allocated device takes of a counter set."""

    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(msgspec.Struct, frozen=True):
    """Keeps claims away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: Literal["None", "NoSchedule", "NoExecute"] = "NoSchedule"


class DeviceToleration(msgspec.Struct, frozen=True):
    """A taint that a request puts up with; an empty key with `Exists` is all of them."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        """True for a taint that it means."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeAllocatableMapping(msgspec.Struct, frozen=True, rename="camel"):
    """What a device counts for of one resource of the node: so much for each unit of a capacity that is consumed, or
    without a capacity for the device."""

    capacity_key: str = ""
    allocation_multiplier: Quantity | None = None


class SliceDevice(msgspec.Struct, frozen=True, rename="camel"):
    """One device of a slice."""

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
    """The pool a slice belongs to, and how many slices that has."""

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
    """What a driver offers somewhere."""

    spec: ResourceSliceSpec
    metadata: ObjectMeta = ObjectMeta()


class CELSelector(msgspec.Struct, frozen=True):
    """An expression over one device."""

    expression: str


class DeviceSelector(msgspec.Struct, frozen=True):
    """A condition that a device must meet."""

    cel: CELSelector


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What all devices of a class have in common."""

    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(msgspec.Struct, frozen=True):
    """A kind of devices, by name."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(msgspec.Struct, frozen=True):
    """Amounts of a device that serves many."""

    requests: dict[str, Quantity] = {}


class DeviceSubRequest(msgspec.Struct, frozen=True, rename="camel"):
    """So many devices of a class; `name` is empty for the only form of a request."""

    device_class_name: str
    name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: Literal["ExactCount", "All"] = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of one form, or of the first of several forms that can be had."""

    name: str
    exactly: DeviceSubRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()

    def forms(self) -> Iterator[tuple[str, DeviceSubRequest]]:
        """The forms in the order they are tried, by the name that results have."""
        if self.exactly is not None:
            yield self.name, self.exactly
        for form in self.first_available:
            yield f"{self.name}/{form.name}", form


class DeviceConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """What devices of several requests have in common, or must not; no requests are all of them."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None

    def concerns(self, request: str) -> bool:
        """True for the devices of a request, by the name that its results have."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


class DeviceClaim(msgspec.Struct, frozen=True):
    """All that a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


class AllocationResult(msgspec.Struct, frozen=True, rename="camel"):
    """One device of an allocation."""

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
    """What a claim has, and where it can be used; no selector is everywhere."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(msgspec.Struct, frozen=True, rename="camel"):
    """Who may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(msgspec.Struct, frozen=True, rename="camel"):
    """What a driver says of a device of a claim; `last_transition_time` is when `status` became what it is."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class AllocatedDeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One device of an allocation, and what its driver says of it."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a claim."""

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
