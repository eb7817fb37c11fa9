"""Devices that one node can use, in the order in which the scheduler tries them (cluster-integration A.2, A.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from podslice.dra.objects import (
    DeviceTaint,
    OfferedCapacity,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
    TypedValue,
)
from podslice.scheduling.selectors import Labels
from podslice.values.quantity import Quantity

DeviceID = tuple[str, str, str]
"""Driver, pool and name of a device."""
Amounts = Mapping[str, int]
"""Billionths by name."""


class ConsumableCapacity(NamedTuple):
    """An amount in billionths, and the policy for requests of it. `values` are in rising order, empty for none."""

    value: int
    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def consumption(self, requested: int | None) -> int | None:
        """Return the amount that an allocation takes, None for an invalid request. Without a request it is the default;
        without a policy the whole capacity."""
        # The default is required with a policy, so there is no policy.
        if self.default is None:
            return self.value if requested is None else requested
        if requested is None:
            return self.default
        if self.values:
            return next((value for value in self.values if value >= requested), None)
        if self.least is None:
            return requested
        taken = max(requested, self.least)
        if self.step:
            # Round up to a multiple of `step` above `least`: the division of a negative number rounds away from zero.
            taken = self.least - (self.least - taken) // self.step * self.step
        return None if self.most is not None and taken > self.most else taken


class OfferedDevice(NamedTuple):
    """A device with all properties that decide about it; `look` is equal for devices that no selector distinguishes."""

    id: DeviceID
    device: SliceDevice
    attributes: Mapping[str, TypedValue]
    capacity: Mapping[str, ConsumableCapacity]
    counters: tuple[tuple[str, Amounts], ...]
    taints: tuple[DeviceTaint, ...]
    shared: bool
    look: tuple[object, ...]

    @property
    def driver(self) -> str:
        """The driver that offers it."""
        return self.id[0]


class Pool(NamedTuple):
    """The devices of a pool that one node can use. `problem` says why none of them can be used; `complete` is False
    while slices of the pool are missing."""

    driver: str
    name: str
    devices: tuple[OfferedDevice, ...]
    counters: Mapping[str, Amounts]
    complete: bool = True
    problem: str = ""
    local: bool = True
    """Whether the pool is this node's alone."""


class LabelledNode(NamedTuple):
    """The name and labels by which slices select a node."""

    name: str
    labels: Labels = MappingProxyType({})


def pools_of(slices: Iterable[ResourceSlice], node: LabelledNode) -> tuple[Pool, ...]:
    """Return the pools that a node can use, by driver and name; of each only the newest generation counts."""
    pools = (_pool_of(members, node) for members in _newest_slices(slices))
    return tuple(pool for pool in pools if pool is not None)


def incomplete_pools(slices: Iterable[ResourceSlice]) -> list[Pool]:
    """Return, without devices, the pools with counters of which slices are missing: v1.36.2 sees them on every node."""
    return [
        Pool(spec.driver, spec.pool.name, (), {}, complete=False)
        for members in _newest_slices(slices)
        for spec in (members[0].spec,)
        if len(members) < spec.pool.resource_slice_count and any(one.spec.shared_counters for one in members)
    ]


def _newest_slices(slices: Iterable[ResourceSlice]) -> Iterator[list[ResourceSlice]]:
    """Yield the slices of each pool's newest generation, by name."""
    found: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for one in slices:
        found[one.spec.driver, one.spec.pool.name].append(one)
    # Pools by driver and name, slices by object name: the order in which the scheduler allocates.
    for _, members in sorted(found.items()):
        newest = max(one.spec.pool.generation for one in members)
        yield sorted((one for one in members if one.spec.pool.generation == newest), key=lambda one: one.metadata.name)


def _pool_of(members: list[ResourceSlice], node: LabelledNode) -> Pool | None:
    """Return a pool as the node sees it; None where none of its slices is for the node."""
    if not any(_serves_node(one, node) for one in members):
        return None
    spec = members[0].spec
    counters = {
        shared.name: {name: counter.value.nano for name, counter in shared.counters.items()}
        for one in members
        for shared in one.spec.shared_counters
    }
    devices = tuple(
        make_device(one.spec.driver, one.spec.pool.name, device)
        for one in members
        if _serves_node(one, node)
        for device in one.spec.devices
        if not one.spec.per_device_node_selection or _is_for_node(device, node)
    )
    problem = _pool_problem(members, counters)
    local = all(one.spec.node_name is not None for one in members)
    complete = len(members) >= spec.pool.resource_slice_count
    return Pool(spec.driver, spec.pool.name, devices, counters, complete, problem, local)


def _serves_node(one: ResourceSlice, node: LabelledNode) -> bool:
    return bool(one.spec.per_device_node_selection) or _is_for_node(one.spec, node)


def _is_for_node(place: ResourceSliceSpec | SliceDevice, node: LabelledNode) -> bool:
    """Whether a slice, or a device with its own node selection, is for the node."""
    if place.node_name is not None:
        return place.node_name == node.name
    if place.node_selector is not None:
        return place.node_selector.matches(node.labels, node.name)
    return bool(place.all_nodes)


def _pool_problem(members: list[ResourceSlice], counters: Mapping[str, Amounts]) -> str:
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


def make_device(driver: str, pool: str, device: SliceDevice) -> OfferedDevice:
    """Return a device with full names: a name without a domain is in its driver's."""
    attributes = {full_name(driver, name): one.typed_value for name, one in device.attributes.items()}
    capacity = {full_name(driver, name): _make_capacity(one) for name, one in device.capacity.items()}
    counters = tuple(
        (one.counter_set, {name: counter.value.nano for name, counter in one.counters.items()})
        for one in device.consumes_counters
    )
    shared = bool(device.allow_multiple_allocations)
    amounts = tuple(sorted((name, one.value) for name, one in capacity.items()))
    # What CEL sees of a device (cluster-integration A.1.3): its name is not among it.
    look = (driver, tuple(sorted(attributes.items())), amounts, shared)
    return OfferedDevice(
        (driver, pool, device.name), device, attributes, capacity, counters, device.taints, shared, look
    )


def full_name(driver: str, name: str) -> str:
    """Return the full name of an attribute or a capacity; without a domain it is in its driver's."""
    return name if "/" in name else f"{driver}/{name}"


def quantity_of(nano: int) -> Quantity:
    """Return billionths as a quantity, a whole one where possible."""
    return Quantity(nano, scale=-9 if nano % 10**9 else 0)


def _make_capacity(one: OfferedCapacity) -> ConsumableCapacity:
    policy = one.request_policy
    if policy is None:
        return ConsumableCapacity(one.value.nano)
    default = policy.default.nano if policy.default is not None else None
    if policy.valid_range is None:
        return ConsumableCapacity(one.value.nano, default, tuple(sorted(value.nano for value in policy.valid_values)))
    limits = policy.valid_range
    least, most, step = (None if amount is None else amount.nano for amount in (limits.min, limits.max, limits.step))
    return ConsumableCapacity(one.value.nano, default, (), least or 0, most, step)
