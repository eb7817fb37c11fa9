"""The list of ready-made machines, and devices, as documents. A machine is its own document: `machine/readers/form.py`
writes and reads it, and leaves out what is not there."""

from __future__ import annotations

import msgspec

from podslice.machine import devices


class MachineSummary(msgspec.Struct, frozen=True):
    """A ready-made machine: logical CPUs, what it is, where its facts come from."""

    name: str
    cpus: int
    description: str
    source: str


class MachineList(msgspec.Struct, frozen=True):
    """All ready-made machines by name."""

    items: tuple[MachineSummary, ...]


class FileDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device; without `numa` it has no topology, any `health` but Healthy is unhealthy."""

    id: str
    numa: tuple[int, ...] = ()
    health: str = "Healthy"


class FileResource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All devices of one extended resource, in one of three ways: listed, as numbers by NUMA node, as a number."""

    resource: str
    devices: tuple[FileDevice, ...] = ()
    per_numa_node: dict[str, int] = msgspec.field(default={}, name="perNUMANode")
    count: int = 0
    preferred_allocation: bool = True


class DeviceInventory(msgspec.Struct, frozen=True):
    """The devices of one machine by resource."""

    devices: tuple[FileResource, ...]


def device_inventory(inventory: devices.DeviceInventory) -> DeviceInventory:
    """Return the devices as a document, each one listed."""
    resources = (
        FileResource(
            resource=resource.resource,
            devices=tuple(FileDevice(one.id, one.numa or (), one.health) for one in resource.devices),
            preferred_allocation=resource.preferred_allocation,
        )
        for resource in inventory.resources
    )
    return DeviceInventory(tuple(resources))
