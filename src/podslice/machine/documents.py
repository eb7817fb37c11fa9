"""Machines and their devices as documents, which every command also reads (`--from`, `--devices`).

The form of a machine is that of its file (`machine/readers/form.py`): facts that are not there are left out, sizes are
quantities, huge pages counts by page size.
"""

from __future__ import annotations

import msgspec

from podslice.machine import devices
from podslice.machine.model import Core, CoreType, CPUGroup, MaxFrequency, PCIDevice
from podslice.values.assumption import Assumption
from podslice.values.cpuset import CPUSet


class FileNUMANode(msgspec.Struct, frozen=True):
    """A NUMA node; `cores` is missing on memory-only nodes, `distances` where the kernel does not list them."""

    id: int
    memory: str = ""
    hugepages: dict[str, int] | list[dict[str, int]] = {}
    distances: tuple[int, ...] = ()
    cores: tuple[Core, ...] = ()


class FileKernelNode(msgspec.Struct, frozen=True):
    """A NUMA node as the kernel, not cAdvisor, lists it."""

    id: int
    cpus: CPUSet
    memory: str = ""
    hugepages: dict[str, int] | list[dict[str, int]] = {}
    distances: tuple[int, ...] = ()


class FileCache(msgspec.Struct, frozen=True):
    """A cache shared by `cpus`."""

    level: int
    type: str
    size: str
    cpus: CPUSet


class Machine(msgspec.Struct, frozen=True, rename="camel"):
    """A machine. `num_cores` is cAdvisor's NumCores, which counts logical CPUs, not cores; like `num_sockets` and
    `memory_capacity` it is left out where it follows from the nodes."""

    nodes: tuple[FileNUMANode, ...]
    num_cores: int = 0
    num_sockets: int = 0
    memory_capacity: int = 0
    hugepages: dict[str, int] | list[dict[str, int]] = {}
    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""
    offline: CPUSet = CPUSet()
    isolated: CPUSet = CPUSet()
    caches: tuple[FileCache, ...] = ()
    core_types: tuple[CoreType, ...] = ()
    max_frequencies: tuple[MaxFrequency, ...] = ()
    nohz_full: CPUSet = CPUSet()
    rcu_nocbs: CPUSet = CPUSet()
    groups: tuple[CPUGroup, ...] = ()
    kernel_nodes: tuple[FileKernelNode, ...] = ()
    pci_devices: tuple[PCIDevice, ...] = ()
    warnings: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    operating_system: str = "linux"


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
