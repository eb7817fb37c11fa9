"""`kubelet_internal_checkpoint`: the Device Manager's state file (memory-device 2.11).

Since 1.20 the ids of an entry are grouped by NUMA node; before, they were a plain list (only read here).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from podslice.values.go.godump import Checksum, Member, add_dump, dump_list, dump_map, fnv1a, json_of, member
from podslice.values.go.gojson import (
    CORRUPT,
    CheckpointError,
    GoBytes,
    GoInt,
    GoMap,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    dump_string,
    unmarshal,
)
from podslice.values.go.gojson import dump_map as json_map


class PodDevicesEntry(NamedTuple):
    """Devices of one resource that a container got. `by_node` maps NUMA ids (−1: none) to device ids, or is the plain
    list of a file from before 1.20; `response` is the protobuf of the plugin's answer."""

    pod: str
    container: str
    resource: str
    by_node: Mapping[int, list[str] | None] | list[str] | None
    response: bytes | None

    def device_ids(self) -> list[str]:
        """Return all ids, whatever their node."""
        if isinstance(self.by_node, list):
            return self.by_node
        return [name for ids in (self.by_node or {}).values() for name in ids or ()]


class DeviceCheckpoint(msgspec.Struct):
    """One file as read; `registered` maps resources to their healthy ids. None stands for JSON null."""

    entries: list[PodDevicesEntry] | None = None
    registered: dict[str, list[str] | None] | None = None
    checksum: int = 0


# The checksum covers Go's printed form (spew) of the structs, with their type names, not the JSON text.
def dump_text(checkpoint: DeviceCheckpoint) -> str:
    """Return the exact text whose FNV-1a is the checksum."""
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{dump_list(checkpoint.entries, _dump_entry)} RegisteredDevices:(map[string][]string)"
        f"{dump_map(checkpoint.registered, dump_list)}}}"
    )


def _dump_entry(entry: PodDevicesEntry) -> str:
    ids = entry.by_node
    if isinstance(ids, list):
        devices = f"([]string){dump_list(ids)}"
    else:
        devices = f"(checkpoint.DevicesPerNUMA){_dump_nodes(ids)}"
    return (
        f"{{PodUID:(string){entry.pod} ContainerName:(string){entry.container} ResourceName:(string){entry.resource} "
        f"DeviceIDs:{devices} AllocResp:([]uint8){dump_list(entry.response)}}}"
    )


def entry_member(source: Any, entry: PodDevicesEntry) -> Member:
    """Return a member of `PodDeviceEntries` for `file_of`."""
    assert not isinstance(entry.by_node, list), "the list form is not written any more"
    return member(
        source,
        _json_entry(entry),
        " {PodUID:(string)",
        entry.pod,
        f" ContainerName:(string){entry.container}",
        f" ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA)",
        _dump_nodes(entry.by_node),
        " AllocResp:([]uint8)",
        dump_list(entry.response),
        "}",
    )


def resource_member(source: Any, resource: str, ids: list[str]) -> Member:
    """Return a member of `RegisteredDevices` for `file_of`."""
    return member(source, f"{dump_string(resource)}:{_json_strings(ids)}", f" {resource}:", dump_list(ids))


def file_of(entries: Iterable[Member], registered: Iterable[Member], checksum: Checksum) -> bytes:
    """Return the file of members, entries in the order given, resources in byte order; the same bytes as `encode`."""
    listed = ",".join([one.json for one in entries])
    text = ["(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"]
    if listed:
        add_dump(text, entries, checksum, opening="[")
    else:
        text.append("<nil>")
    text.append(" RegisteredDevices:(map[string][]string)")
    add_dump(text, registered, checksum)
    text.append("}")
    entries_text = f"[{listed}]" if listed else "null"
    data = f'{{"PodDeviceEntries":{entries_text},"RegisteredDevices":{json_of(registered) or "{}"}}}'
    return f'{{"Data":{data},"Checksum":{checksum.of(text)}}}'.encode()


def _dump_nodes(by_node: Mapping[int, list[str] | None] | None) -> str:
    if by_node is None:
        return "<nil>"
    # Printed by number; in the JSON the same keys are strings and stand in byte order ("10" before "2").
    return f"map[{' '.join(f'{node}:{dump_list(by_node[node])}' for node in sorted(by_node))}]"


def encode(entries: Iterable[PodDevicesEntry] | None, registered: Mapping[str, list[str] | None] | None) -> bytes:
    """Return the file a kubelet since 1.20 writes, entries and ids in the order given, with its checksum."""
    checkpoint = DeviceCheckpoint(
        None if entries is None else [PodDevicesEntry(*entry) for entry in entries],
        None if registered is None else dict(registered),
    )
    listed = "null"
    if checkpoint.entries is not None:
        listed = f"[{','.join(map(_json_entry, checkpoint.entries))}]"
    resources = "null"
    if checkpoint.registered is not None:
        resources = json_map({name: _json_strings(ids) for name, ids in checkpoint.registered.items()})
    data = f'{{"PodDeviceEntries":{listed},"RegisteredDevices":{resources}}}'
    return f'{{"Data":{data},"Checksum":{fnv1a(dump_text(checkpoint))}}}'.encode()


def _json_entry(entry: PodDevicesEntry) -> str:
    assert not isinstance(entry.by_node, list), "the list form is not written any more"
    ids = "null"
    if entry.by_node is not None:
        ids = json_map({str(node): _json_strings(names) for node, names in entry.by_node.items()})
    response = "null" if entry.response is None else f'"{base64.b64encode(entry.response).decode()}"'
    return (
        f'{{"PodUID":{dump_string(entry.pod)},"ContainerName":{dump_string(entry.container)},'
        f'"ResourceName":{dump_string(entry.resource)},"DeviceIDs":{ids},"AllocResp":{response}}}'
    )


def _json_strings(names: list[str] | None) -> str:
    return "null" if names is None else f"[{','.join(map(dump_string, names))}]"


_STRINGS = GoSlice("[]string", GoString())


def _format(device_ids: GoType) -> GoStruct:
    """Return the Go type of a device checkpoint, whose printed form the checksum covers."""
    entry = GoStruct(
        "checkpoint.PodDevicesEntry",
        {
            "PodUID": GoString(),
            "ContainerName": GoString(),
            "ResourceName": GoString(),
            "DeviceIDs": device_ids,
            "AllocResp": GoBytes(),
        },
    )
    data = GoStruct(
        "checkpoint.checkpointData",
        {
            "PodDeviceEntries": GoSlice("[]checkpoint.PodDevicesEntry", entry),
            "RegisteredDevices": GoMap("map[string][]string", _STRINGS),
        },
    )
    return GoStruct("checkpoint.Data", {"Data": data, "Checksum": GoInt("checksum.Checksum")})


FORMATS = {"v1": _format(_STRINGS), "v2": _format(GoMap("checkpoint.DevicesPerNUMA", _STRINGS, numeric=True))}


def decode(data: bytes, version: str = "v2") -> DeviceCheckpoint:
    """Read a file as `v2` (since 1.20) or `v1`, without checking the checksum. Raises `CheckpointError`."""
    fields = unmarshal(data, FORMATS[version])
    content: dict[str, Any] = fields["Data"]
    entries = content["PodDeviceEntries"]
    return DeviceCheckpoint(
        None if entries is None else [PodDevicesEntry(*entry.values()) for entry in entries],
        content["RegisteredDevices"],
        fields["Checksum"],
    )


def load(data: bytes) -> DeviceCheckpoint:
    """Read a file as a kubelet does, checksum included (0 is not accepted). Raises `CheckpointError`."""
    checkpoint = decode(data)
    if fnv1a(dump_text(checkpoint)) != checkpoint.checksum:
        raise CheckpointError(CORRUPT)
    return checkpoint
