"""Devices, capacities and counters that allocated claims hold, and the effect of one more grant (cluster-integration
A.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.dra.allocation.pools import Amounts, DeviceID, OfferedDevice, full_name
from podslice.dra.objects import AllocationResult, DeviceSubRequest

CounterID = tuple[str, str, str, str]
"""Driver, pool, counter set and counter."""


class DeviceGrant(NamedTuple):
    """A device that a request gets. `consumed` are billionths by capacity, None for an exclusive device."""

    request: str
    offered: OfferedDevice
    consumed: Amounts | None = None
    admin: bool = False


class DeviceUsage:
    """Devices, capacities and counters in use. Grants are given back in reverse order."""

    def __init__(self) -> None:
        self.owned: dict[DeviceID, str] = {}
        """The owner of each exclusive device."""
        self.consumed: defaultdict[DeviceID, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.counters: defaultdict[CounterID, int] = defaultdict(int)

    def copy(self) -> DeviceUsage:
        """Return an independent copy."""
        one = DeviceUsage()
        one.owned.update(self.owned)
        one.counters.update(self.counters)
        for device, amounts in self.consumed.items():
            one.consumed[device].update(amounts)
        return one

    def take(self, grant: DeviceGrant, owner: str) -> None:
        """Book a grant; devices with admin access are not owned."""
        if grant.admin:
            return
        offered = grant.offered
        first = offered.id not in self.consumed
        if grant.consumed is None:
            self.owned[offered.id] = owner
        else:
            held = self.consumed[offered.id]
            for name, amount in grant.consumed.items():
                held[name] += amount
        # A shared device consumes its counters once, with its first user.
        if grant.consumed is None or first:
            self.count(offered, 1)

    def give_back(self, grant: DeviceGrant, *, first: bool) -> None:
        """Undo `take`; `first` says whether the device was free before."""
        if grant.admin:
            return
        offered = grant.offered
        if grant.consumed is None:
            del self.owned[offered.id]
        elif first:
            del self.consumed[offered.id]
        else:
            held = self.consumed[offered.id]
            for name, amount in grant.consumed.items():
                held[name] -= amount
        if first:
            self.count(offered, -1)

    def count(self, offered: OfferedDevice, sign: int) -> None:
        """Add the device's counters to those in use, or with `sign` -1 subtract them."""
        driver, pool, _ = offered.id
        for which, amounts in offered.counters:
            for name, amount in amounts.items():
                self.counters[driver, pool, which, name] += sign * amount

    def is_used(self, device: DeviceID) -> bool:
        """Whether the device, or a part of it, is in use."""
        return device in self.owned or device in self.consumed

    def fits(self, offered: OfferedDevice, consumed: Amounts | None, counters: Mapping[str, Amounts]) -> bool:
        """Whether the device can be granted, `consumed` of it where it serves many."""
        if consumed is None:
            if self.is_used(offered.id):
                return False
        elif offered.id in self.consumed:
            held = self.consumed[offered.id]
            # Its counters were checked and booked with its first user.
            return all(held[name] + amount <= offered.capacity[name].value for name, amount in consumed.items())
        elif any(amount > offered.capacity[name].value for name, amount in consumed.items()):
            return False
        driver, pool, _ = offered.id
        return all(
            self.counters.get((driver, pool, which, name), 0) + amount <= counters[which][name]
            for which, amounts in offered.counters
            for name, amount in amounts.items()
        )

    def add_result(self, result: AllocationResult, offered: OfferedDevice | None, owner: str) -> None:
        """Book a device of an allocated claim; `offered` is None for one that is in no slice any more, and holds no
        counters."""
        if result.admin_access:
            return
        device = (result.driver, result.pool, result.device)
        if offered is not None:
            # Only an allocation of a shared device has a shareID.
            consumed = None if result.share_id is None else recorded_consumption(result)
            self.take(DeviceGrant(result.request, offered, consumed), owner)
        elif result.share_id is None:
            self.owned[device] = owner


def recorded_consumption(result: AllocationResult) -> Amounts:
    """Return the consumed billionths by capacity, under full names."""
    consumed = result.consumed_capacity or {}
    return {full_name(result.driver, name): amount.nano for name, amount in consumed.items()}


def can_serve(offered: OfferedDevice, form: DeviceSubRequest) -> bool:
    """Whether the device has all amounts that a request of this form names."""
    for name, amount in form.capacity.requests.items():
        capacity = offered.capacity.get(full_name(offered.driver, name))
        if capacity is None or amount.nano > capacity.value:
            return False
    return True


def consumption_of(offered: OfferedDevice, form: DeviceSubRequest) -> Amounts | None:
    """Return the amounts that a request of this form takes of a device that serves many; None where it requests more
    than the policy allows."""
    requested = {full_name(offered.driver, name): amount.nano for name, amount in form.capacity.requests.items()}
    consumed: dict[str, int] = {}
    for name, capacity in offered.capacity.items():
        taken = capacity.consumption(requested.get(name))
        if taken is None:
            return None
        consumed[name] = taken
    return consumed


def usage_of(
    allocations: Iterable[tuple[str, Iterable[AllocationResult]]], devices: Mapping[DeviceID, OfferedDevice]
) -> DeviceUsage:
    """Return the usage of allocated claims, given by the owner's name."""
    usage = DeviceUsage()
    for owner, results in allocations:
        for result in results:
            usage.add_result(result, devices.get((result.driver, result.pool, result.device)), owner)
    return usage
