"""`kubelet_internal_checkpoint`: the Device Manager's state file (spec memory-device 2.11).

The file holds a list of records (which container holds which devices, by NUMA node, with the plugin's answer) and the
healthy devices of every resource. Before Kubernetes 1.20 a record's devices were a plain list.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from podslice.core.state.godump import dump_list, dump_map, fnv1a
from podslice.core.state.gojson import CORRUPT, CheckpointError, dump_string, load_object, typed
from podslice.core.state.gojson import dump_map as json_map

Json = dict[str, Any]
_STRUCT = "Data"


def dump_text(data: Json) -> str:
    """The exact text whose FNV-1a is the checksum; `data` is the decoded member `Data`."""
    entries = dump_list(data.get("PodDeviceEntries"), _dump_entry)
    registered = dump_map(data.get("RegisteredDevices"), dump_list)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


def _dump_entry(entry: Json) -> str:
    devices = entry.get("DeviceIDs")
    if isinstance(devices, list):
        held = f"([]string){dump_list(devices)}"
    elif devices is None:
        held = "(checkpoint.DevicesPerNUMA)<nil>"
    else:
        nodes = " ".join(f"{node}:{dump_list(devices[node])}" for node in sorted(devices, key=int))
        held = f"(checkpoint.DevicesPerNUMA)map[{nodes}]"
    response = entry.get("AllocResp")
    answer = "<nil>" if response is None else dump_list(base64.b64decode(response))
    return (
        f"{{PodUID:(string){entry.get('PodUID', '')} ContainerName:(string){entry.get('ContainerName', '')} "
        f"ResourceName:(string){entry.get('ResourceName', '')} DeviceIDs:{held} AllocResp:([]uint8){answer}}}"
    )


def encode(data: Json) -> bytes:
    """The file for decoded `Data`, with its checksum; keys in upstream's order."""
    entries = data.get("PodDeviceEntries")
    shown = "null" if entries is None else f"[{','.join(map(_json_entry, entries))}]"
    registered = data.get("RegisteredDevices")
    devices = "null" if registered is None else json_map({name: _json_list(ids) for name, ids in registered.items()})
    return (
        f'{{"Data":{{"PodDeviceEntries":{shown},"RegisteredDevices":{devices}}},"Checksum":{fnv1a(dump_text(data))}}}'
    ).encode()


def _json_entry(entry: Json) -> str:
    devices = entry.get("DeviceIDs")
    if isinstance(devices, list) or devices is None:
        held = _json_list(devices)
    else:
        held = json_map({node: _json_list(ids) for node, ids in devices.items()})
    texts = ",".join(
        f'"{key}":{dump_string(entry.get(key, ""))}' for key in ("PodUID", "ContainerName", "ResourceName")
    )
    response = entry.get("AllocResp")
    return f'{{{texts},"DeviceIDs":{held},"AllocResp":{"null" if response is None else dump_string(response)}}}'


def _json_list(ids: list[str] | None) -> str:
    return "null" if ids is None else f"[{','.join(map(dump_string, ids))}]"


def decode(data: bytes) -> tuple[Json, int]:
    """`Data` and the checksum of a file, not compared yet. Raises `CheckpointError`."""
    members = load_object(data)
    content = typed(members.get("data") or {}, dict, "Checkpoint", _STRUCT, "checkpoint.checkpointData")
    for entry in content.get("PodDeviceEntries") or ():
        response = typed(entry, dict, _STRUCT, "PodDeviceEntries", "checkpoint.PodDevicesEntry").get("AllocResp")
        try:
            base64.b64decode(response or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise CheckpointError(f"illegal base64 data in AllocResp {response!r}") from None
    return content, int(typed(members.get("checksum") or 0, int, "Checkpoint", "Checksum", "checksum.Checksum"))


def verify(content: Json, checksum: int) -> None:
    """Raises `CheckpointError`; a checksum of 0 is no exception."""
    if fnv1a(dump_text(content)) != checksum:
        raise CheckpointError(CORRUPT)
