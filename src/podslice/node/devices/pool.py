"""One extended resource of a node: its listed devices, their health, who is in use, and the plugin behind it.

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
"""Seconds a stopped endpoint keeps its resource in the node status."""


class DevicePool(msgspec.Struct, frozen=True):
    """One resource as its plugin last listed it. A value: what changes it returns another one.

    `known`: devices of the plugin's last list. `healthy`, `unhealthy`: their health as counted now. `registered`: the
    resource is one of the node's device resources. `stopped_at`: when the plugin went away, in seconds, None while it
    is there. `position`: bit positions by id, `numa`: NUMA ids by position.
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

    @classmethod
    def on(cls, machine_nodes: tuple[int, ...]) -> DevicePool:
        """A resource nobody has listed yet."""
        return cls(machine_nodes, Coverage({}, machine_nodes))

    # Ids and bits

    def knowing(self, ids: Iterable[str]) -> DevicePool:
        """The pool with a position for each of these ids."""
        new = [device for device in dict.fromkeys(ids) if device not in self.position]
        if not new:
            return self
        position = {**self.position, **{device: len(self.ids) + i for i, device in enumerate(new)}}
        return replace(self, ids=(*self.ids, *new), position=position)

    def bits(self, ids: Iterable[str]) -> Bits:
        """Ids that have a position, as bits."""
        return bits_of(self.position[device] for device in ids)

    def names(self, devices: Bits) -> list[str]:
        """Ids in byte order."""
        if devices & (devices - 1):
            return sorted(map(self.ids.__getitem__, ids_of(devices)))
        return [self.ids[devices.bit_length() - 1]] if devices else []

    def by_node(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Ids, in their order, by NUMA id, −1 for devices without nodes; one with several nodes is under each."""
        placed: dict[int, list[str]] = {}
        for name in names:
            for node in self.numa.get(self.position[name]) or (-1,):
                placed.setdefault(node, []).append(name)
        return placed

    # The plugin and its lists

    def updated(self, devices: Iterable[Device]) -> DevicePool:
        """The plugin's list is this (memory-device 2.4). Of a repeated id, the last entry says where it is."""
        devices = tuple(devices)
        pool = self.knowing(device.id for device in devices)
        known = with_topology = healthy = unhealthy = 0
        numa: dict[int, tuple[int, ...]] = {}
        for device in devices:
            position = pool.position[device.id]
            bit = 1 << position
            known |= bit
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
            coverage=Coverage(on_node, self.machine_nodes),
            known=known,
            with_topology=with_topology,
            healthy=healthy,
            unhealthy=unhealthy,
            registered=True,
            numa=numa,
        )

    def on_machine(self, machine_nodes: tuple[int, ...]) -> DevicePool:
        """The same devices on a machine with these NUMA nodes."""
        return replace(self, machine_nodes=machine_nodes, coverage=Coverage(self.coverage.on_node, machine_nodes))

    def served_by(self, plugin: DevicePlugin) -> DevicePool:
        """A plugin is there."""
        return replace(self, plugin=plugin, stopped_at=None)

    def awaited(self, now: float) -> DevicePool:
        """The resource was registered before the kubelet started; its plugin is awaited."""
        return replace(self, registered=True, stopped_at=now)

    def disconnected(self, now: float) -> DevicePool:
        """The plugin is gone: nothing is healthy any more (memory-device 2.3)."""
        return replace(self, healthy=0, unhealthy=self.unhealthy | self.healthy, stopped_at=now)

    def expired(self, now: float) -> bool:
        """True when the resource leaves the node status (memory-device 2.4)."""
        if not self.registered:
            return False
        if self.stopped_at is None:
            return self.plugin is None
        return now - self.stopped_at > GRACE_PERIOD

    def forgotten(self) -> DevicePool:
        """The resource is out of the node status; the device list stays."""
        return replace(self, healthy=0, unhealthy=0, registered=False, plugin=None, stopped_at=None)
