"""Records of the devices that containers got, and their plain form in the checkpoint (memory-device 2.5, 2.11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.plugin import AllocateResponse
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.response import encode_response
from podslice.values.cpuset import Bits
from podslice.values.go.godump import Checksum, Member, renew


class HeldDevices(msgspec.Struct, frozen=True):
    """Devices of one resource that a container got, also by NUMA id (−1: none), and the plugin's answer."""

    devices: Bits
    by_node: dict[int, list[str]]
    response: AllocateResponse


Records: TypeAlias = "dict[str, dict[str, dict[str, HeldDevices]]]"
"""All records of a node, in order of allocation: pod UID → container → resource → devices held."""


class DeviceRecord(NamedTuple):
    """One record as the checkpoint keeps it; `response` is the protobuf of the plugin's answer."""

    pod: str
    container: str
    resource: str
    by_node: dict[int, list[str]]
    response: bytes


class DeviceContent(NamedTuple):
    """Content of the device checkpoint: all records, and the healthy ids of every registered resource."""

    entries: list[DeviceRecord]
    registered: dict[str, list[str]]


def content_from(checkpoint: checkpoint_devices.DeviceCheckpoint) -> DeviceContent:
    """Return the content of a checkpoint file; in records of kubelets before 1.20, devices have no NUMA node."""
    entries = []
    for entry in checkpoint.entries or []:
        ids = {-1: entry.by_node} if isinstance(entry.by_node, list) else entry.by_node or {}
        by_node = {node: list(own or ()) for node, own in ids.items()}
        entries.append(DeviceRecord(entry.pod, entry.container, entry.resource, by_node, entry.response or b""))
    return DeviceContent(entries, {name: list(ids or ()) for name, ids in (checkpoint.registered or {}).items()})


def iter_records(records: Records) -> Iterator[tuple[str, str, str, HeldDevices]]:
    """Yield every (pod UID, container, resource, devices held)."""
    for uid, containers in records.items():
        for container, resources in containers.items():
            for resource, held in resources.items():
                yield uid, container, resource, held


def entries_of(records: Records) -> list[DeviceRecord]:
    """Return the records as the checkpoint keeps them."""
    return [
        DeviceRecord(uid, name, resource, held.by_node, encode_response(held.response))
        for uid, name, resource, held in iter_records(records)
    ]


class DeviceStateEncoder:
    """Writes one node's checkpoint files; caches the texts of records and resources that did not change."""

    def __init__(self) -> None:
        self._checksum = Checksum()
        self._entries: dict[tuple[str, str, str], Member] = {}
        self._resources: dict[str, Member] = {}

    def encode(self, records: Records, healthy: Mapping[str, tuple[DevicePool, Bits]]) -> bytes:
        """Return the file for records and the `healthy` devices of every registered resource, with the pool that names
        them. Records count as unchanged when they are the same objects."""
        known, self._entries = self._entries, {}
        for uid, container, resource, held in iter_records(records):
            key = uid, container, resource
            old = known.get(key)
            if old is None or old.source is not held:
                entry = checkpoint_devices.PodDevicesEntry(*key, held.by_node, encode_response(held.response))
                old = checkpoint_devices.entry_member(held, entry)
            self._entries[key] = old
        self._resources = renew(self._resources, healthy, _resource)
        return checkpoint_devices.file_of(self._entries.values(), self._resources.values(), self._checksum)


def _resource(resource: str, source: tuple[DevicePool, Bits]) -> Member:
    pool, healthy = source
    return checkpoint_devices.resource_member(source, resource, pool.names(healthy))
