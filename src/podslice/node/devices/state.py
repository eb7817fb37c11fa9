"""The Device Manager's state as a value: the plugins' lists and two ledgers (memory-device 2.4, 2.11 to 2.14).

`records` are the devices that containers got; `used` are the devices that count as in use. The second is marked as soon
as a device is taken and is recomputed from the first whenever something is released, so after a failed allocation the
two can differ for a while. `file` is the records as they were when the checkpoint was last written, which upstream does
after a list of devices and after an allocation (quirk `device_file_keeps_gone_pods`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import DeviceContent, HeldDevices, Records
from podslice.node.devices.response import ResponseError, decode_response
from podslice.values.cpuset import Bits
from podslice.values.tables import put

T = TypeVar("T")


class DeviceState(msgspec.Struct, frozen=True):
    """All that a Device Manager knows. A value: methods that change something return a new state.

    `pools` and `used` by resource; a resource is in `used` once an allocation has counted it. `reusable`: devices by
    pod and resource that its plain init containers leave. `running`: the (pod UID, container) that ran at the kubelet's
    start.
    """

    pools: dict[str, DevicePool] = {}
    used: dict[str, Bits] = {}
    records: Records = {}
    file: Records = {}
    reusable: dict[str, dict[str, Bits]] = {}
    running: frozenset[tuple[str, str]] = frozenset()

    # Questions

    def of(self, uid: str, container: str) -> dict[str, HeldDevices]:
        """Return what one container holds, by resource."""
        return self.records.get(uid, {}).get(container, {})

    def of_pod(self, uid: str) -> dict[str, Bits]:
        """Return what all containers of a pod hold, by resource."""
        devices: dict[str, Bits] = {}
        for resources in self.records.get(uid, {}).values():
            for resource, held in resources.items():
                devices[resource] = devices.get(resource, 0) | held.devices
        return devices

    def select_managed(self, limits: Mapping[str, T]) -> dict[str, T]:
        """Return the limits that the manager is responsible for: resources that are registered, or that containers
        hold."""
        known, pools = {}, self.pools
        for resource, amount in limits.items():
            pool = pools.get(resource)
            if pool is not None and (pool.registered or resource in self.used):
                known[resource] = amount
        return known

    def free(self, resource: str) -> Bits:
        """Return the healthy devices that are not in use."""
        return self.pools[resource].healthy & ~self.used.get(resource, 0)

    # Changes

    def with_pool(self, resource: str, pool: DevicePool) -> DeviceState:
        """Replace the pool of a resource."""
        return replace(self, pools=put(self.pools, resource, pool))

    def take(self, resource: str, devices: Bits) -> DeviceState:
        """Mark devices as in use."""
        used = self.used.copy()
        used[resource] = used.get(resource, 0) | devices
        return replace(self, used=used)

    def add(self, uid: str, container: str, resource: str, held: HeldDevices) -> DeviceState:
        """Record devices that a container got."""
        of_pod = self.records.get(uid, {})
        of_pod = {**of_pod, container: {**of_pod.get(container, {}), resource: held}}
        return replace(self, records=put(self.records, uid, of_pod))

    def without(self, uids: Iterable[str], *, written: bool) -> DeviceState:
        """Drop the records of pods; `written`: the checkpoint is written too."""
        records = self.records.copy()
        for uid in uids:
            del records[uid]
        return replace(self, records=records, used=_devices_in_use(records), file=records if written else self.file)

    def recount(self) -> DeviceState:
        """Compute the devices in use anew from the records."""
        return replace(self, used=_devices_in_use(self.records))

    def mark_written(self) -> DeviceState:
        """Note that the checkpoint holds the present records."""
        return replace(self, file=self.records)

    def with_reusable(self, reusable: dict[str, dict[str, Bits]]) -> DeviceState:
        """Return a copy in which init containers leave these devices."""
        return self if reusable == self.reusable else replace(self, reusable=reusable)

    @classmethod
    def restore(
        cls,
        content: DeviceContent,
        machine_nodes: tuple[int, ...],
        running: Iterable[tuple[str, str]] = (),
        *,
        now: float = 0.0,
        everywhere: bool = False,
    ) -> DeviceState:
        """Return the state of a restored checkpoint (memory-device 2.11, 2.12).

        `running` names the (pod UID, container) the runtime reports as running; `now` in seconds, any origin. Entries
        whose response does not parse are skipped. `everywhere` as in `DevicePool`.
        """
        pools: dict[str, DevicePool] = {}
        records: Records = {}
        for entry in content.entries:
            try:
                response = decode_response(entry.response)
            except ResponseError:
                continue
            ids = [name for names in entry.by_node.values() for name in names]
            pool = pools.get(entry.resource) or DevicePool.on(machine_nodes, everywhere=everywhere)
            pool = pools[entry.resource] = pool.with_ids(ids)
            held = HeldDevices(pool.bits(ids), entry.by_node, response)
            records.setdefault(entry.pod, {}).setdefault(entry.container, {})[entry.resource] = held
        # A resource of the checkpoint counts as registered until its plugin has been away for the grace period.
        for resource in content.registered:
            pools[resource] = (pools.get(resource) or DevicePool.on(machine_nodes, everywhere=everywhere)).await_plugin(
                now
            )
        return cls(pools, {}, records, records, {}, frozenset(running)).recount()


def _devices_in_use(records: Records) -> dict[str, Bits]:
    """Return the devices that containers hold, by resource."""
    used: defaultdict[str, Bits] = defaultdict(int)
    for containers in records.values():
        for resources in containers.values():
            for resource, held in resources.items():
                used[resource] |= held.devices
    return dict(used)
