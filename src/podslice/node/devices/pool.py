"""One extended resource of a node: its listed devices, their health and the plugin that serves them.

Device ids become bit positions that never change while the kubelet runs. So sets of devices are plain ints, even when
the plugin's list changes while pods hold devices (memory-device 2.4, 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from podslice.machine.devices import Device
from podslice.node.devices.hints import Coverage
from podslice.node.devices.plugin import DevicePlugin
from podslice.values.cpuset import Bits, bits_of, ids_of

GRACE_PERIOD = 300.0
"""Seconds a resource stays in the node status after its endpoint stopped."""


class DevicePool(msgspec.Struct, frozen=True):
    """One resource as its plugin last listed it. A value: methods that change something return a new pool.

    `known`: devices of the plugin's last list. `healthy`, `unhealthy`: their health as counted now. `registered`: the
    resource is one of the node's device resources. `stopped_at`: when the plugin disconnected, in seconds, None while
    it serves. `position`: bit positions by id, `numa`: NUMA ids by position. `everywhere`: hints are sets of
    all NUMA nodes, also of those without devices.
    """

    machine_nodes: tuple[int, ...]
    coverage: Coverage
    ids: tuple[str, ...] = ()
    known: Bits = 0
    with_topology: Bits = 0
    healthy: Bits = 0
    unhealthy: Bits = 0
    registered: bool = False
    plugin: DevicePlugin | None = None
    stopped_at: float | None = None
    position: dict[str, int] = {}
    numa: dict[int, tuple[int, ...]] = {}
    everywhere: bool = False

    @classmethod
    def on(cls, machine_nodes: tuple[int, ...], *, everywhere: bool = False) -> DevicePool:
        """Return the pool of a resource that no plugin has listed yet."""
        return cls(machine_nodes, Coverage({}, machine_nodes, everywhere=everywhere), everywhere=everywhere)

    # Ids and bits

    def with_ids(self, ids: Iterable[str]) -> DevicePool:
        """Return the pool with a position for each of these ids."""
        new = [device for device in dict.fromkeys(ids) if device not in self.position]
        if not new:
            return self
        # Positions are never reused: records may name a device that is no longer listed.
        position = {**self.position, **{device: len(self.ids) + i for i, device in enumerate(new)}}
        return replace(self, ids=(*self.ids, *new), position=position)

    def bits(self, ids: Iterable[str]) -> Bits:
        """Return ids that have a position, as bits."""
        return bits_of(self.position[device] for device in ids)

    def names(self, devices: Bits) -> list[str]:
        """Return the ids in byte order."""
        if devices & (devices - 1):
            return sorted(map(self.ids.__getitem__, ids_of(devices)))
        return [self.ids[devices.bit_length() - 1]] if devices else []

    def by_node(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Return ids, in their order, by NUMA id, −1 for devices without nodes; one with several nodes is under
        each."""
        placed: dict[int, list[str]] = {}
        for name in names:
            for node in self.numa.get(self.position[name]) or (-1,):
                placed.setdefault(node, []).append(name)
        return placed

    # The plugin and its lists

    def with_devices(self, devices: Iterable[Device]) -> DevicePool:
        """Replace the plugin's list (memory-device 2.4). Of a repeated id, the last entry gives its nodes."""
        devices = tuple(devices)
        pool = self.with_ids(device.id for device in devices)
        known = with_topology = healthy = unhealthy = 0
        numa: dict[int, tuple[int, ...]] = {}
        for device in devices:
            position = pool.position[device.id]
            bit = 1 << position
            known |= bit
            # A repeated id can be in both sets; upstream counts it in both too (memory-device 2.4).
            if device.healthy:
                healthy |= bit
            else:
                unhealthy |= bit
            with_topology = with_topology & ~bit | (bit if device.numa is not None else 0)
            numa[position] = device.numa or ()
        on_node: dict[int, Bits] = {}
        for position, nodes in numa.items():
            for node in nodes:
                on_node[node] = on_node.get(node, 0) | 1 << position
        return replace(
            pool,
            coverage=Coverage(on_node, self.machine_nodes, everywhere=self.everywhere),
            known=known,
            with_topology=with_topology,
            healthy=healthy,
            unhealthy=unhealthy,
            registered=True,
            numa=numa,
        )

    def on_machine(self, machine_nodes: tuple[int, ...]) -> DevicePool:
        """Return the same devices on a machine with these NUMA nodes."""
        return replace(
            self,
            machine_nodes=machine_nodes,
            coverage=Coverage(self.coverage.on_node, machine_nodes, everywhere=self.everywhere),
        )

    def with_plugin(self, plugin: DevicePlugin) -> DevicePool:
        """Return the pool served by this plugin."""
        return replace(self, plugin=plugin, stopped_at=None)

    def await_plugin(self, now: float) -> DevicePool:
        """Return the pool registered but without its plugin, as after a restart of the kubelet."""
        return replace(self, registered=True, stopped_at=now)

    def mark_disconnected(self, now: float) -> DevicePool:
        """Return the pool after its plugin disconnected: no device is healthy any more (memory-device 2.3)."""
        return replace(self, healthy=0, unhealthy=self.unhealthy | self.healthy, stopped_at=now)

    def is_expired(self, now: float) -> bool:
        """Whether the resource leaves the node status (memory-device 2.4)."""
        if not self.registered:
            return False
        if self.stopped_at is None:
            return self.plugin is None
        return now - self.stopped_at > GRACE_PERIOD

    def forget(self) -> DevicePool:
        """Return the pool out of the node status; the device list stays."""
        return replace(self, healthy=0, unhealthy=0, registered=False, plugin=None, stopped_at=None)
