"""Devices of one node in the order in which the scheduler looks at them (cluster-integration A.2, A.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from podslice.dra.objects import DeviceTaint, OfferedCapacity, ResourceSlice, ResourceSliceSpec, SliceDevice
from podslice.scheduling.node_affinity import Labels
from podslice.values.quantity import Quantity

DeviceID = tuple[str, str, str]
"""Driver, pool and name of a device."""
Amounts = Mapping[str, int]
"""Billionths by name."""


class ConsumableCapacity(NamedTuple):
    """An amount in billionths, and what may be asked of it. `values` are in rising order, empty for none."""

    value: int
    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def consumed(self, asked: int | None) -> int | None:
        """What an allocation takes, None for more than may be asked. Nothing asked is the default, and without a
        policy all of it."""
        if self.default is None:
            return self.value if asked is None else asked
        if asked is None:
            return self.default
        if self.values:
            return next((value for value in self.values if value >= asked), None)
        if self.least is None:
            return asked
        taken = max(asked, self.least)
        if self.step:
            taken = self.least - (self.least - taken) // self.step * self.step
        return None if self.most is not None and taken > self.most else taken


class OfferedDevice(NamedTuple):
    """A device with what decides about it; `look` is equal for devices that no selector can tell apart."""

    id: DeviceID
    device: SliceDevice
    attributes: Mapping[str, tuple[str, int | bool | str]]
    capacity: Mapping[str, ConsumableCapacity]
    counters: tuple[tuple[str, Amounts], ...]
    taints: tuple[DeviceTaint, ...]
    shared: bool
    look: tuple[object, ...]

    @property
    def driver(self) -> str:
        """Who offers it."""
        return self.id[0]


class Pool(NamedTuple):
    """The devices of a pool that one node can use. `problem` says why none of them can be; `complete` is False while
    slices of it are missing."""

    driver: str
    name: str
    devices: tuple[OfferedDevice, ...]
    counters: Mapping[str, Amounts]
    complete: bool = True
    problem: str = ""
    local: bool = True
    """Whether it is this node's alone."""


class LabelledNode(NamedTuple):
    """What slices ask of a node."""

    name: str
    labels: Labels = MappingProxyType({})


def pools_of(slices: Iterable[ResourceSlice], node: LabelledNode) -> tuple[Pool, ...]:
    """The pools that a node can use, by driver and name; of each only the newest generation counts."""
    pools = (_pool_of(members, node) for members in _newest(slices))
    return tuple(pool for pool in pools if pool is not None)


def incomplete_pools(slices: Iterable[ResourceSlice]) -> list[Pool]:
    """Pools with counters of which slices are missing, without their devices: v1.36.2 sees them on every node."""
    return [
        Pool(spec.driver, spec.pool.name, (), {}, complete=False)
        for members in _newest(slices)
        for spec in (members[0].spec,)
        if len(members) < spec.pool.resource_slice_count and any(one.spec.shared_counters for one in members)
    ]


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[list[ResourceSlice]]:
    """The slices of each pool that count, by name."""
    found: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for one in slices:
        found[one.spec.driver, one.spec.pool.name].append(one)
    for _, members in sorted(found.items()):
        newest = max(one.spec.pool.generation for one in members)
        yield sorted((one for one in members if one.spec.pool.generation == newest), key=lambda one: one.metadata.name)


def _pool_of(members: list[ResourceSlice], node: LabelledNode) -> Pool | None:
    """One pool as the node has it; None where none of it is for the node."""
    if not any(_serves(one, node) for one in members):
        return None
    spec = members[0].spec
    counters = {
        shared.name: {name: counter.value.nano for name, counter in shared.counters.items()}
        for one in members
        for shared in one.spec.shared_counters
    }
    devices = tuple(
        offered(one.spec.driver, one.spec.pool.name, device)
        for one in members
        if _serves(one, node)
        for device in one.spec.devices
        if not one.spec.per_device_node_selection or _meant(device, node)
    )
    problem = _problem(members, counters)
    local = all(one.spec.node_name is not None for one in members)
    complete = len(members) >= spec.pool.resource_slice_count
    return Pool(spec.driver, spec.pool.name, devices, counters, complete, problem, local)


def _serves(one: ResourceSlice, node: LabelledNode) -> bool:
    return bool(one.spec.per_device_node_selection) or _meant(one.spec, node)


def _meant(place: ResourceSliceSpec | SliceDevice, node: LabelledNode) -> bool:
    """Whether a slice, or a device of its own, is for the node."""
    if place.node_name is not None:
        return place.node_name == node.name
    if place.node_selector is not None:
        return place.node_selector.matches(node.labels, node.name)
    return bool(place.all_nodes)


def _problem(members: list[ResourceSlice], counters: Mapping[str, Amounts]) -> str:
    seen: set[str] = set()
    for one in members:
        for device in one.spec.devices:
            if device.name in seen:
                return f"two devices are named {device.name}"
            seen.add(device.name)
            for taken in device.consumes_counters:
                missing = sorted(taken.counters.keys() - counters.get(taken.counter_set, {}).keys())
                if taken.counter_set not in counters or missing:
                    what = f"{taken.counter_set}/{missing[0]}" if missing else taken.counter_set
                    return f"device {device.name} takes of counters {what}, which the pool has not"
    return ""


def offered(driver: str, pool: str, device: SliceDevice) -> OfferedDevice:
    """A device with its names in full: what has no domain is its driver's."""
    attributes = {full_name(driver, name): one.typed for name, one in device.attributes.items()}
    capacity = {full_name(driver, name): _capacity(one) for name, one in device.capacity.items()}
    counters = tuple(
        (one.counter_set, {name: counter.value.nano for name, counter in one.counters.items()})
        for one in device.consumes_counters
    )
    shared = bool(device.allow_multiple_allocations)
    amounts = tuple(sorted((name, one.value) for name, one in capacity.items()))
    look = (driver, tuple(sorted(attributes.items())), amounts, shared)
    return OfferedDevice(
        (driver, pool, device.name), device, attributes, capacity, counters, device.taints, shared, look
    )


def full_name(driver: str, name: str) -> str:
    """The name of an attribute or a capacity; without a domain it is in its driver's."""
    return name if "/" in name else f"{driver}/{name}"


def quantity_of(nano: int) -> Quantity:
    """Billionths as a quantity, a whole one where it can be."""
    return Quantity(nano, scale=-9 if nano % 10**9 else 0)


def _capacity(one: OfferedCapacity) -> ConsumableCapacity:
    policy = one.request_policy
    if policy is None:
        return ConsumableCapacity(one.value.nano)
    default = policy.default.nano if policy.default is not None else None
    if policy.valid_range is None:
        return ConsumableCapacity(one.value.nano, default, tuple(sorted(value.nano for value in policy.valid_values)))
    limits = policy.valid_range
    least, most, step = (None if amount is None else amount.nano for amount in (limits.min, limits.max, limits.step))
    return ConsumableCapacity(one.value.nano, default, (), least or 0, most, step)
