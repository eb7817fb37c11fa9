"""Devices of a machine: the GPUs, NICs and the like that a node offers, their NUMA nodes and their health.

A kubelet learns this from device plugins. A simulated node has none, so its devices are written down: in the recorded
cases as a list of resources, for people in a shorter YAML form (`inventory_from_data`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from podslice.values.decoding import abbreviate
from podslice.values.document import without_header
from podslice.values.errors import InputError

HEALTHY = "Healthy"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_NODE_ID = re.compile(r"[0-9]{1,9}")
MOST_NUMA_NODES = 64
_LARGEST_NODE = MOST_NUMA_NODES - 1
_MOST_DEVICES = 65536


class Device(msgspec.Struct, frozen=True):
    """A device as a plugin lists it. `numa`: its NUMA nodes; None for no topology, `()` for an empty one.

    Any `health` other than exactly `Healthy` is unhealthy.
    """

    id: str
    numa: tuple[int, ...] | None = None
    health: str = HEALTHY

    @property
    def healthy(self) -> bool:
        """Whether it can be allocated."""
        return self.health == HEALTHY


class DeviceResource(msgspec.Struct, frozen=True, rename="camel"):
    """All devices of one extended resource. `preferred_allocation`: the plugin answers GetPreferredAllocation."""

    resource: str
    devices: tuple[Device, ...] = ()
    preferred_allocation: bool = True


class DeviceInventory(msgspec.Struct, frozen=True):
    """The devices of one machine by resource; iterate over `resources` to register them. `grows`: plugins register
    later, so the device checkpoint is kept from the start."""

    grows: ClassVar[bool] = False
    resources: tuple[DeviceResource, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resources)


def is_extended_resource_name(name: str) -> bool:
    """Whether a device plugin may register the name (memory-device 2.3): `vendor.com/gpu`."""
    domain, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return (
        # Upstream checks the name with the prefix that quotas use, so a domain has 9 characters less.
        len("requests." + domain) <= 253
        and _SUBDOMAIN.match(domain) is not None
        and len(rest) <= 63
        and _LABEL.match(rest) is not None
    )


def inventory_from_data(data: Any, *, source: str = "") -> DeviceInventory:
    """Return devices from plain YAML or JSON data: a list of resources, or a mapping with such a list under `devices`.

    Each resource gives its devices in one of three ways::

        - resource: example.com/nic
          devices: [{id: nic-0, numa: [0]}, {id: nic-1, numa: [1], health: Unhealthy}]
        - resource: nvidia.com/gpu
          perNUMANode: {0: 4, 1: 4}        # gpu-0 … gpu-3 on node 0, gpu-4 … gpu-7 on node 1
        - resource: example.com/fpga
          count: 2                         # fpga-0, fpga-1 without topology

    A device without `numa` has no topology. Raises `InputError`.
    """
    try:
        entries, place = _entries(data)
        resources = tuple(_parse_resources(entries, place))
        _refuse_repeats([resource.resource for resource in resources], place, "resource")
    except InputError as error:
        raise error.at(source=source) from None
    return DeviceInventory(resources)


def _parse_resources(entries: list[Any], place: str) -> Iterator[DeviceResource]:
    total = 0
    for i, entry in enumerate(entries):
        resource = _parse_resource(entry, f"{place}[{i}]")
        total += len(resource.devices)
        if total > _MOST_DEVICES:
            raise InputError("too many devices on one node", path=f"{place}[{i}]", remedy=f"at most {_MOST_DEVICES}")
        yield resource


def _entries(data: Any) -> tuple[list[Any], str]:
    if isinstance(data, Mapping):
        data = without_header("DeviceInventory", data)
        if "devices" not in data:
            raise InputError("no list of devices", remedy="write `devices:` followed by a list of resources")
        data = data["devices"]
    if data is None:
        return [], "devices"
    if not isinstance(data, list):
        raise _make_error("devices", data, "a list of resources, each with `resource: vendor.com/name`")
    return data, "devices"


def _parse_resource(entry: Any, place: str) -> DeviceResource:
    if not isinstance(entry, Mapping):
        raise _make_error(
            place, entry, "a mapping with `resource: vendor.com/name` and `devices`, `perNUMANode` or `count`"
        )
    known = ("resource", "devices", "perNUMANode", "count", "preferredAllocation")
    for key in entry:
        if key not in known:
            raise InputError(f"unknown field {key!r}", path=place, remedy=f"use one of: {', '.join(known)}")
    name = entry.get("resource")
    if not isinstance(name, str) or not is_extended_resource_name(name):
        raise _make_error(f"{place}.resource", name, "an extended resource name such as vendor.com/gpu")
    forms = [key for key in ("devices", "perNUMANode", "count") if entry.get(key) is not None]
    if len(forms) != 1:
        raise InputError(
            f"{len(forms)} of devices, perNUMANode and count given", path=place, remedy="give exactly one of them"
        )
    preferred = entry.get("preferredAllocation", True)
    if not isinstance(preferred, bool):
        raise _make_error(f"{place}.preferredAllocation", preferred, "true or false")
    read = {"devices": _parse_device_list, "perNUMANode": _parse_per_node, "count": _parse_count}[forms[0]]
    devices = read(entry[forms[0]], name.partition("/")[2], f"{place}.{forms[0]}")
    return DeviceResource(name, devices, preferred)


def _parse_device_list(value: Any, name: str, place: str) -> tuple[Device, ...]:
    if not isinstance(value, list):
        raise _make_error(place, value, "a list of devices such as {id: gpu-0, numa: [0]}")
    devices = tuple(_parse_device(item, f"{place}[{i}]") for i, item in enumerate(value))
    _refuse_repeats([device.id for device in devices], place, "device id")
    return devices


def _parse_device(item: Any, place: str) -> Device:
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), str) or not item["id"]:
        raise _make_error(place, item, "a device such as {id: gpu-0, numa: [0]}")
    for key in item:
        if key not in ("id", "numa", "health"):
            raise InputError(f"unknown field {key!r}", path=place, remedy="use one of: id, numa, health")
    health = item.get("health", HEALTHY)
    if not isinstance(health, str):
        raise _make_error(f"{place}.health", health, "Healthy or Unhealthy")
    numa = item.get("numa")
    nodes = [] if numa is None else numa if isinstance(numa, list) else [numa]
    # An empty list means no topology here; only recorded cases distinguish it from one without nodes.
    return Device(item["id"], tuple(_parse_node(node, f"{place}.numa") for node in nodes) or None, health)


def _parse_per_node(value: Any, name: str, place: str) -> tuple[Device, ...]:
    if not isinstance(value, Mapping):
        raise _make_error(place, value, "a mapping of NUMA node to number of devices, such as {0: 4, 1: 4}")
    nodes: list[int] = []
    for key, number in value.items():
        node = _parse_node(int(key) if isinstance(key, str) and _NODE_ID.fullmatch(key) else key, place)
        nodes += [node] * _parse_number(number, f"{place}[{key}]")
        if len(nodes) > _MOST_DEVICES:
            raise _make_error(place, len(nodes), f"at most {_MOST_DEVICES} devices")
    return tuple(Device(f"{name}-{i}", (node,)) for i, node in enumerate(nodes))


def _parse_count(value: Any, name: str, place: str) -> tuple[Device, ...]:
    return tuple(Device(f"{name}-{i}") for i in range(_parse_number(value, place)))


def _parse_number(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_DEVICES:
        raise _make_error(place, value, f"a number of devices from 0 to {_MOST_DEVICES}")
    return value


def _parse_node(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_NODE:
        raise _make_error(place, value, f"a NUMA node id from 0 to {_LARGEST_NODE}")
    return value


def _refuse_repeats(names: list[str], place: str, what: str) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise InputError(f"{what} {name!r} appears twice", path=f"{place}[{i}]", remedy="give each one once")
        seen.add(name)


def _make_error(place: str, value: Any, remedy: str) -> InputError:
    return InputError(f"{abbreviate(value)} does not fit", path=place, remedy=f"write {remedy}")
