"""Read the GPUs and NICs of a machine for a `--devices` file: PCI functions of sysfs with their NUMA nodes.

A device plugin decides what a node offers and under which name; sysfs cannot know that. So functions get the names
that the usual plugins give them, by class and vendor, and every name can be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.host.filesystem import FileSystem
from podslice.host.kernel_text import parse_mask, read_optional_text
from podslice.machine.devices import Device, DeviceInventory, DeviceResource, is_extended_resource_name
from podslice.machine.model import Machine, PCIDevice
from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.errors import InputError

PCI = "sys/bus/pci/devices"
GPU, NIC, VF = "gpu", "nic", "vf"
_MOST_FUNCTIONS = 65536
_LARGEST_NODE = 63
_KINDS = {"0x0300": GPU, "0x0302": GPU, "0x0380": GPU, "0x1200": GPU, "0x0200": NIC, "0x0207": NIC}
"""By class and subclass: VGA, 3D and other display controllers, processing accelerators; Ethernet, InfiniBand."""
_NOT_FOR_COMPUTING = ("0x1a03", "0x102b", "0x1234", "0x1013", "0x15ad", "0x1b36", "0x1af4")
"""Vendors of displays that are not GPUs: of baseboard controllers and virtual machines."""
_PLACED = ("0x01", "0x02", "0x03", "0x0b", "0x12")
"""Classes of functions whose NUMA node matters: storage, network, display, processors, accelerators."""
_NAMES = {
    "gpu:10de": "nvidia.com/gpu",
    "gpu:1002": "amd.com/gpu",
    "gpu:8086": "gpu.intel.com/i915",
    "gpu:1da3": "habana.ai/gaudi",
    "gpu": "example.com/gpu",
    "vf:8086": "intel.com/intel_sriov_netdevice",
    "vf:15b3": "intel.com/mlnx_sriov_rdma",
    "vf": "intel.com/sriov_netdevice",
    "nic:8086": "intel.com/nic",
    "nic:15b3": "nvidia.com/nic",
    "nic": "example.com/nic",
}
_KEY = re.compile(r"(?:(gpu|nic|vf)|(?:(gpu|nic|vf):)?([0-9a-f]{4})(?::([0-9a-f]{4}))?)\Z")


class Function(NamedTuple):
    """A PCI function that a device plugin could offer. `kind`: `gpu`, `nic`, `vf` (a virtual function of a NIC);
    `vendor` and `model` are four hexadecimal digits, empty where sysfs does not have them."""

    address: str
    kind: str
    vendor: str
    model: str
    numa: int | None


def read_pci_functions(fs: FileSystem, machine: Machine) -> list[Function]:
    """Return GPUs and NICs by address. A NIC with active virtual functions is represented by those, not by itself."""
    return [found for address in _addresses(fs) if (found := _function(fs, address, machine)) is not None]


def read_placed_devices(fs: FileSystem) -> tuple[PCIDevice, ...]:
    """Return devices whose NUMA node matters and is known to the kernel, by address."""
    found = []
    for address in _addresses(fs):
        if read_optional_text(fs, f"{PCI}/{address}/class").startswith(_PLACED):
            node = read_optional_text(fs, f"{PCI}/{address}/numa_node").strip()
            if node.isdecimal() and int(node) <= _LARGEST_NODE:
                found.append(PCIDevice(address, int(node), tuple(fs.entries(f"{PCI}/{address}/net"))))
    return tuple(found)


def _addresses(fs: FileSystem) -> list[str]:
    """Return the addresses of all PCI functions. Raises `InputError` for more than any machine has."""
    addresses = fs.entries(PCI)
    if len(addresses) > _MOST_FUNCTIONS:
        raise InputError(f"has {len(addresses)} PCI functions", source=fs.label, remedy=f"at most {_MOST_FUNCTIONS}")
    return addresses


def group_by_resource(functions: Iterable[Function], names: Mapping[str, str]) -> DeviceInventory:
    """Group functions by resource. `names` maps `gpu`, `nic`, `vf`, a vendor (`8086`) or a model (`8086:1889`), each
    also after a kind (`vf:8086`), to a resource; an empty one leaves the functions out. The most specific entry counts,
    then the usual names."""
    resources: dict[str, list[Device]] = {}
    for function in functions:
        name = next(table[key] for table in (names, _NAMES) for key in _keys(function) if key in table)
        if name:
            numa = None if function.numa is None else (function.numa,)
            resources.setdefault(name, []).append(Device(function.address, numa))
    return DeviceInventory(tuple(DeviceResource(name, tuple(devices)) for name, devices in sorted(resources.items())))


def parse_resource_names(texts: Iterable[str]) -> dict[str, str]:
    """Parse `--resource KEY=NAME` options. Raises `InputError`."""
    names = {}
    for text in texts:
        key, equals, name = text.partition("=")
        key = key.lower().replace("0x", "")
        if not equals or _KEY.match(key) is None:
            remedy = "gpu=, vf=intel.com/sriov, 10de=nvidia.com/gpu or 8086:1889=openshift.io/fast"
            raise InputError(f"{text!r} is not KEY=NAME", path="--resource", remedy=remedy)
        if name and not is_extended_resource_name(name):
            raise InputError(f"{name!r} is not an extended resource", path="--resource", remedy="write vendor.com/name")
        names[key] = name
    return names


def _keys(function: Function) -> Iterator[str]:
    """Yield the keys that match a function, the most specific first."""
    if function.model:
        yield f"{function.kind}:{function.vendor}:{function.model}"
        yield f"{function.vendor}:{function.model}"
    if function.vendor:
        yield f"{function.kind}:{function.vendor}"
        yield function.vendor
    yield function.kind


def _function(fs: FileSystem, address: str, machine: Machine) -> Function | None:
    """Read a function; None for one that no plugin would offer."""

    def text(name: str) -> str:
        return read_optional_text(fs, f"{PCI}/{address}/{name}").strip().lower()

    kind = _KINDS.get(text("class")[:6])
    vendor = text("vendor")
    # A server's console is a display controller as well.
    if kind is None or (kind == GPU and vendor in _NOT_FOR_COMPUTING):
        return None
    if kind == NIC and text("physfn/class"):
        kind = VF
    elif kind == NIC and text("sriov_numvfs") not in ("", "0"):
        return None
    return Function(address, kind, _digits(vendor), _digits(text("device")), _numa(text, machine))


def _digits(text: str) -> str:
    return text[2:] if re.fullmatch(r"0x[0-9a-f]{4}", text) else ""


def _numa(text: Callable[[str], str], machine: Machine) -> int | None:
    """Return the NUMA node from `numa_node`, as plugins read it; without that file the only node of the local CPUs."""
    node = text("numa_node")
    # -1: the firmware does not say. A plugin then offers the device without a NUMA node.
    if node:
        return int(node) if node.isdecimal() and int(node) <= _LARGEST_NODE else None
    try:
        near = parse_bits(text("local_cpulist")) or parse_mask(text("local_cpus") or "0")
    except (CPUSetError, ValueError):
        return None
    homes = [n.id for n in machine.nodes if any(near >> cpu & 1 for core in n.cores for cpu in core.threads)]
    return homes[0] if len(homes) == 1 and len(machine.nodes) > 1 else None
