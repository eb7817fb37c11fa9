"""One extended resource of a node: its listed devices, their health, who is in use, and the plugin behind it.

Device ids become bit positions that never change while the kubelet runs, so sets of devices are plain ints even when
the plugin's list changes under allocations that go on (memory-device 2.4, 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.core.hints.devices import Coverage
from podslice.core.machine.devices import Device
from podslice.core.managers.device_plugin import DevicePlugin
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

GRACE_PERIOD = 300.0
"""Seconds a stopped endpoint keeps its resource in the node status."""


class DevicePool:
    """State of one resource.

    `known`: devices of the plugin's last list. `healthy`, `unhealthy`: their health as counted now. `registered`: the
    resource is one of the node's device resources. `allocated`: devices in use; `counted` tells whether allocations
    know the resource at all. `stopped_at`: when the plugin went away, in seconds, None while it is there.
    """

    def __init__(self, machine_nodes: tuple[int, ...]) -> None:
        self.ids: list[str] = []
        self.known: Bits = 0
        self.with_topology: Bits = 0
        self.healthy: Bits = 0
        self.unhealthy: Bits = 0
        self.registered = False
        self.allocated: Bits = 0
        self.counted = False
        self.plugin: DevicePlugin | None = None
        self.stopped_at: float | None = None
        self.coverage = Coverage({}, machine_nodes)
        self._machine_nodes = machine_nodes
        self._position: dict[str, int] = {}
        self._numa: dict[int, tuple[int, ...]] = {}

    @property
    def is_device_resource(self) -> bool:
        return self.registered or self.counted

    @property
    def free(self) -> Bits:
        """Healthy devices nobody uses."""
        return self.healthy & ~self.allocated

    def bits(self, ids: Iterable[str]) -> Bits:
        """Ids as bits; new ids get a position."""
        return bits_of(self._index(device) for device in ids)

    def _index(self, device: str) -> int:
        position = self._position.get(device)
        if position is None:
            position = self._position[device] = len(self.ids)
            self.ids.append(device)
        return position

    def names(self, devices: Bits) -> list[str]:
        """Ids in byte order."""
        return sorted(self.ids[i] for i in iter_bits(devices))

    def update(self, devices: Iterable[Device]) -> None:
        """Replace the plugin's list (memory-device 2.4). Of a repeated id, the last entry says where it is."""
        self.known = self.with_topology = self.healthy = self.unhealthy = 0
        self._numa = {}
        for device in devices:
            position = self._index(device.id)
            bit = 1 << position
            self.known |= bit
            if device.healthy:
                self.healthy |= bit
            else:
                self.unhealthy |= bit
            self.with_topology = self.with_topology & ~bit | (bit if device.numa is not None else 0)
            self._numa[position] = device.numa or ()
        self.registered = True
        on_node: dict[int, Bits] = {}
        for position, nodes in self._numa.items():
            for node in nodes:
                on_node[node] = on_node.get(node, 0) | 1 << position
        self.coverage = Coverage(on_node, self._machine_nodes)

    def by_node(self, devices: Bits) -> dict[int, list[str]]:
        """Ids in byte order by NUMA id, −1 for devices without nodes; one with several nodes is under each."""
        placed: dict[int, list[str]] = {}
        for name in self.names(devices):
            for node in self._numa.get(self._position[name]) or (-1,):
                placed.setdefault(node, []).append(name)
        return placed

    def disconnect(self, now: float) -> None:
        """The plugin is gone: nothing is healthy any more (memory-device 2.3)."""
        self.unhealthy |= self.healthy
        self.healthy = 0
        self.stopped_at = now

    def expired(self, now: float) -> bool:
        """True when the resource leaves the node status (memory-device 2.4)."""
        if not self.registered:
            return False
        if self.stopped_at is None:
            return self.plugin is None
        return now - self.stopped_at > GRACE_PERIOD

    def forget(self) -> None:
        """Take the resource out of the node status; the device list stays."""
        self.plugin = None
        self.stopped_at = None
        self.registered = False
        self.healthy = self.unhealthy = 0
