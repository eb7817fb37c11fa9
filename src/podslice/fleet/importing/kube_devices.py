"""The devices of a node of a live cluster, and their NUMA nodes.

A kubelet's checkpoint has the ids of all devices, and the NUMA nodes of allocated ones. The others are placed where
NodeResourceTopology has room for them, else spread evenly. Ids are numbered in byte order, so that equal nodes are
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.model import Machine
from podslice.node.devices.checkpoint import DeviceCheckpoint, PodDevicesEntry, encode

LISTED_DEVICES = "devices.json"
"""File beside the state files of a node with the devices that its device plugins listed."""


class FiledDevices(NamedTuple):
    """The devices of a checkpoint; the checkpoint with their new ids; and resources whose devices' NUMA nodes were
    assumed (`spread`)."""

    inventory: DeviceInventory
    file: bytes
    spread: tuple[str, ...]


def read_devices(
    checkpoint: DeviceCheckpoint,
    machine: Machine,
    reported: DeviceInventory | None,
    plugins: DeviceInventory | None = None,
) -> FiledDevices:
    """Return the devices of a node by its checkpoint.

    `reported`: its devices by an object of the cluster; `plugins`: the devices that device plugins listed, under the
    ids of the checkpoint.
    """
    entries = checkpoint.entries or []
    exact = {
        one.resource: {device.id: tuple(device.numa or ()) for device in one.devices}
        for one in (plugins.resources if plugins else ())
    }
    places: dict[str, dict[str, tuple[int, ...]]] = {}
    for entry in entries:
        own = places.setdefault(entry.resource, {})
        if not isinstance(entry.by_node, list):
            for node, ids in (entry.by_node or {}).items():
                # Kubelets write -1 for devices without a NUMA node.
                own |= {name: (*own.get(name, ()), node) if node >= 0 else () for name in ids or ()}
    numbered: dict[str, dict[str, str]] = {}
    resources, spread = [], []
    names = {**{entry.resource: None for entry in entries}, **dict.fromkeys(checkpoint.registered or {})}
    for resource in sorted(names):
        held = [name for entry in entries if entry.resource == resource for name in entry.device_ids()]
        every = sorted({*held, *((checkpoint.registered or {}).get(resource) or ())})
        own = exact.get(resource, {})
        known = {**{name: own[name] for name in every if name in own}, **places.get(resource, {})}
        unknown = [name for name in every if name not in known]
        found, guessed = _place(unknown, known, resource, machine, reported)
        spread += [resource] if guessed else []
        numbered[resource] = {name: f"device-{number:04}" for number, name in enumerate(every)}
        devices = (Device(numbered[resource][name], {**known, **found}[name]) for name in every)
        resources.append(DeviceResource(resource, tuple(devices)))
    return FiledDevices(DeviceInventory(tuple(resources)), _rename(checkpoint, numbered), tuple(spread))


def _place(
    unknown: Sequence[str],
    known: Mapping[str, tuple[int, ...]],
    resource: str,
    machine: Machine,
    reported: DeviceInventory | None,
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return NUMA nodes for devices that are not allocated, and whether they were assumed."""
    listed = next((one.devices for one in (reported.resources if reported else ()) if one.resource == resource), ())
    room = [device.numa for device in listed if device.numa]
    for nodes in known.values():
        if nodes in room:
            room.remove(nodes)
    if len(room) >= len(unknown):
        return dict(zip(unknown, [nodes for nodes in room if nodes], strict=False)), False
    owners = [node.id for node in machine.nodes if node.cores]
    return {name: (owners[place * len(owners) // len(unknown)],) for place, name in enumerate(unknown)}, True


def _rename(checkpoint: DeviceCheckpoint, numbered: Mapping[str, Mapping[str, str]]) -> bytes:
    """Encode the checkpoint with the new ids."""

    def ids(resource: str, names: Sequence[str] | None) -> list[str]:
        return [numbered[resource][name] for name in names or ()]

    def entry(one: PodDevicesEntry) -> PodDevicesEntry:
        if isinstance(one.by_node, list):
            return one._replace(by_node=ids(one.resource, one.by_node))
        return one._replace(by_node={node: ids(one.resource, names) for node, names in (one.by_node or {}).items()})

    registered = {name: ids(name, own) for name, own in (checkpoint.registered or {}).items()}
    return encode([entry(one) for one in checkpoint.entries or ()], registered)
