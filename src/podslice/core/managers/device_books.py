"""The Device Manager's two books, the plugins and their lists of devices (memory-device 2.4, 2.11 to 2.14).

`records` say which container was given which devices; each pool's `allocated` set says which devices count as in use.
The second is marked as soon as a device is taken and is recomputed from the first whenever something is released, so
after a failed allocation the two can differ for a while. The checkpoint holds the records as they were when it was
last written, which upstream does after a list of devices and after an allocation (quirk `device_file_keeps_gone_pods`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podslice.core.machine.devices import Device
from podslice.core.managers.context import NodeContext
from podslice.core.managers.device_plugin import DevicePlugin
from podslice.core.managers.device_pool import DevicePool
from podslice.core.managers.device_records import DeviceContent, DeviceRecords, DeviceStateEncoder, Held, PodRecords
from podslice.core.managers.device_response import ResponseError, decode_response
from podslice.core.values.cpuset import Bits


class DeviceCapacity(NamedTuple):
    """The resources' part of the node status: devices, healthy devices, and resources that are gone."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: list[str]


class Snapshot(NamedTuple):
    """The books as they were before a pod; `DeviceBooks.restore` puts them back."""

    records: PodRecords
    reusable: dict[str, dict[str, Bits]]


class DeviceBooks:
    """Devices of one node by extended resource, and who has them.

    `machine_nodes` are the machine's NUMA ids in machine order. `revision` changes with the content of the checkpoint.
    """

    def __init__(self, machine_nodes: Iterable[int], context: NodeContext) -> None:
        self.context = context
        self.revision = 0
        self._machine_nodes = tuple(machine_nodes)
        self._pools: dict[str, DevicePool] = {}
        self._records = DeviceRecords()
        self._file = DeviceRecords()
        self._unwritten: dict[str, None] = {}
        self._reusable: dict[str, dict[str, Bits]] = {}
        self._running: frozenset[tuple[str, str]] = frozenset()
        self._cleaned = 0
        self._encoder = DeviceStateEncoder()

    # Start, plugins and their lists

    def start(
        self, content: DeviceContent | None, running: Iterable[tuple[str, str]] = (), *, now: float = 0.0
    ) -> None:
        """Go to work on a restored checkpoint (memory-device 2.11, 2.12).

        `running` names the (pod UID, container) the runtime reports as running; `now` in seconds, any origin. Entries
        whose response does not parse are skipped.
        """
        self._running = frozenset(running)
        if content is None:
            return
        for entry in content.entries:
            try:
                response = decode_response(entry.response)
            except ResponseError:
                continue
            devices = self._pool(entry.resource).bits(name for names in entry.by_node.values() for name in names)
            self._records.add(entry.pod, entry.container, entry.resource, Held(devices, entry.by_node, response))
            self._unwritten[entry.pod] = None
        self._put_into_file()
        self._recount()
        for resource in content.registered:
            pool = self._pool(resource)
            pool.registered = True
            pool.stopped_at = now

    def register(self, resource: str, devices: Iterable[Device], plugin: DevicePlugin) -> None:
        """A plugin serves `resource` from now on and has sent its first list."""
        pool = self._pool(resource)
        pool.plugin = plugin
        pool.stopped_at = None
        self.update_devices(resource, devices)

    def update_devices(self, resource: str, devices: Iterable[Device]) -> None:
        """The plugin's complete list of devices (memory-device 2.4)."""
        self._pool(resource).update(devices)
        self._write()

    def disconnect(self, resource: str, *, now: float = 0.0) -> None:
        """The plugin is gone; its devices are unhealthy, what is allocated stays. Unknown resources are ignored."""
        pool = self._pools.get(resource)
        if pool is not None and pool.plugin is not None:
            pool.disconnect(now)

    def capacity(self, *, now: float = 0.0) -> DeviceCapacity:
        """The capacity report of a node status update; drops resources without a plugin for 5 minutes
        (memory-device 2.4)."""
        report = DeviceCapacity({}, {}, [])
        for resource, pool in self._pools.items():
            if pool.expired(now):
                pool.forget()
                self._write()
                report.removed.append(resource)
            elif pool.registered:
                report.capacity[resource] = (pool.healthy | pool.unhealthy).bit_count()
                report.allocatable[resource] = pool.healthy.bit_count()
        return report

    def _pool(self, resource: str) -> DevicePool:
        pool = self._pools.get(resource)
        if pool is None:
            pool = self._pools[resource] = DevicePool(self._machine_nodes)
        return pool

    # The checkpoint

    def _write(self) -> None:
        """The checkpoint is written: it holds the records as they are now."""
        self.revision += 1
        self._put_into_file()

    def _put_into_file(self) -> None:
        for uid in self._unwritten:
            self._file.put_back(uid, self._records.copy_of(uid))
        self._unwritten.clear()

    # Taking back

    def _recount(self) -> None:
        """Compute the devices in use from the records."""
        for pool in self._pools.values():
            pool.allocated = 0
            pool.counted = False
        for _, _, resource, held in self._records:
            pool = self._pools[resource]
            pool.counted = True
            if held.response is not None:
                pool.allocated |= held.devices

    def snapshot(self, uid: str) -> Snapshot:
        """What a failed admission of this pod must be undone to."""
        return Snapshot(self._records.copy_of(uid), self._reusable)

    def restore(self, uid: str, before: Snapshot) -> None:
        """Undo everything done for a pod since `snapshot`."""
        self._records.put_back(uid, before.records)
        self._reusable = before.reusable
        self._recount()
        self._unwritten[uid] = None
        self._write()

    # Queries

    def devices_of(self, uid: str, container: str) -> dict[str, list[str]]:
        """Ids the container holds by resource, in byte order."""
        records = self._records.of(uid, container)
        return {resource: self._pools[resource].names(records[resource].devices) for resource in sorted(records)}

    def assignments(self) -> dict[str, dict[str, dict[str, list[str]]]]:
        """All records: pod UID → container → resource → ids in byte order."""
        return {
            uid: {name: self.devices_of(uid, name) for name in records} for uid, records in self._records.pods.items()
        }

    def placed(self) -> dict[str, dict[str, dict[str, dict[int, tuple[str, ...]]]]]:
        """All records: pod UID → container → resource → NUMA node (-1: none) → ids."""
        return {
            uid: {
                name: {
                    resource: {node: tuple(ids) for node, ids in held.by_node.items()}
                    for resource, held in records.items()
                }
                for name, records in named.items()
            }
            for uid, named in self._records.pods.items()
        }

    def holds_devices(self, uid: str) -> bool:
        """True when the pod has records, which lets it pass the general predicates (memory-device 2.14)."""
        return uid in self._records.pods

    def allocated(self) -> dict[str, int]:
        """Number of devices that count as in use, for every resource in use (memory-device 2.14)."""
        return {resource: pool.allocated.bit_count() for resource, pool in self._pools.items() if pool.counted}

    def content(self) -> DeviceContent:
        """The content of the device checkpoint; records in order of allocation, ids in byte order
        (memory-device 2.11)."""
        registered = {resource: pool.names(pool.healthy) for resource, pool in self._pools.items() if pool.registered}
        return DeviceContent(self._file.entries(), registered)

    def encode(self) -> bytes:
        """The checkpoint file of `content`."""
        healthy = {resource: (pool, pool.healthy) for resource, pool in self._pools.items() if pool.registered}
        return self._encoder.encode(self._file, healthy)
