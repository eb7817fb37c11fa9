"""Identify the kubelet that wrote a state file by the one format under which its checksum is right.

A file does not name its version; the hashed text does (cpu-topology 8.4; memory-device 1.13.1, 2.11). All
formats a kubelet ever wrote are tried, including names that only unit tests of Kubernetes used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.values.go.godump import crc_checksum, data_checksum, decode_data, fnv1a
from podslice.values.go.gojson import CheckpointError, GoInt, GoStruct, Members, parse, unmarshal

Kind = Literal["cpu", "memory", "device", "data", "guard", "dra", "pod-status"]

FORMATS: dict[tuple[Kind, str], str] = {
    ("cpu", "v2"): "CPUManagerCheckpoint without podEntries (kubelet 1.18..1.35, and later with "
    "PodLevelResourceManagers off)",
    ("cpu", "v3"): "CPUManagerCheckpoint with podEntries (PodLevelResourceManagers on)",
    ("cpu", "v1"): "CPUManagerCheckpointV1 (entries: container id -> cpus)",
    ("cpu", "v2raw"): "hashed under the name CPUManagerCheckpointV2",
    ("cpu", "v3raw"): "hashed under the name CPUManagerCheckpointV3",
    ("memory", "v1"): "MemoryManagerCheckpoint without podEntries",
    ("memory", "v2"): "MemoryManagerCheckpoint with podEntries",
    ("memory", "v1raw"): "hashed under the name MemoryManagerCheckpointV1",
    ("device", "v1"): "DeviceIDs as a list (before 1.20)",
    ("device", "v2"): "DeviceIDs by NUMA node (1.20+)",
    ("data", "data"): "fnv-32a of the spew text of the data string (cpu manager v4, memory manager v3, allocation "
    "manager)",
    ("data", "crc32"): "crc32-ieee of Data (DRA manager)",
    ("dra", "v1"): "claims as a list (DRA manager of kubelets with the alpha gate)",
    ("pod-status", "v1"): "granted resources (kubelet 1.27 to 1.30 with InPlacePodVerticalScaling)",
    ("guard", "v1"): "files of the kernel that guards have changed (podslice); without a checksum",
}
"""Descriptions of the formats, in the order they are tried."""

_CHECKSUM = GoStruct("state.Checksum", {"checksum": GoInt("checksum.Checksum")})


class IdentifiedFile(msgspec.Struct, frozen=True):
    """The kind and format of a file. `stated` is the member `checksum` (None where there is none), `version` the format
    under which the file is intact (None: no known format), `computed` the checksum it would need in every format it can
    be read as. Where a file has a `dataChecksum`, that one has to be right."""

    kind: Kind
    stated: int | None
    version: str | None
    computed: dict[str, int]

    @property
    def matches(self) -> str | None:
        """Description of the matching format."""
        return None if self.version is None else FORMATS[self.kind, self.version]


def identify(data: bytes) -> IdentifiedFile:
    """Identify a state file by content and checksum. Raises `CheckpointError` for anything but a JSON object."""
    value = parse(data)
    if not isinstance(value, Members):
        raise CheckpointError("a state file is a JSON object")
    # Go's decoder takes member names in any case, so a kubelet reads such a file.
    keys = {key.lower(): member for key, member in value}
    kind = _classify(keys)
    if kind is None:
        raise UnknownFileError(_describe([key for key, _ in value], keys.get("kind")))
    if kind == "guard":
        return IdentifiedFile(kind, None, "v1", {})
    if kind in ("dra", "pod-status"):
        return IdentifiedFile(kind, unmarshal(data, _CHECKSUM)["checksum"], None, {})
    stated = None
    if "checksum" in keys:
        stated = unmarshal(data, _CHECKSUM)["checksum"]
    computed = _COMPUTE[kind](data)
    # The newest files wrap their content as a string, whose checksum has a member of its own.
    valid = decode_data(data).stored_checksum if kind == "data" else stated
    version = None
    if stated is not None:
        # Formats with the same text have the same checksum; the first one listed is the one that kubelets write.
        version = next((v for k, v in FORMATS if k == kind and computed.get(v) == valid), None)
    return IdentifiedFile(kind, stated, version, computed)


def _classify(keys: dict[str, Any]) -> Kind | None:
    """Return the kind of an object by its members; None for one that no manager wrote."""
    if isinstance(keys.get("data"), str):
        return "data"
    if isinstance(keys.get("data"), Members):
        return "device"
    if "bootid" in keys and "files" in keys:
        return "guard"
    if "machinestate" in keys:
        return "memory"
    if "allocationentries" in keys:
        return "pod-status"
    if isinstance(keys.get("entries"), list) and "version" in keys:
        return "dra"
    if not keys.keys() & _OF_CPU_FILE and keys.keys() - _OF_ANY_FILE:
        return None
    return "cpu"


_OF_CPU_FILE = {"policyname", "defaultcpuset"}
_OF_ANY_FILE = {"entries", "podentries", "checksum", "data", "datachecksum"}


def _describe(names: list[str], kind: Any) -> str:
    """Return what an object is that no manager wrote."""
    shown = ", ".join(name[:40] for name in names[:3])
    what = f"it is a {kind[:40]}" if isinstance(kind, str) else f"it has {shown}"
    return f"is not a state file of a kubelet: {what}"


class UnknownFileError(CheckpointError):
    """Raised for JSON with nothing of a state file in it."""


def _add_checksums(computed: dict[str, int], read: Callable[[], dict[str, str]]) -> None:
    """Add the checksums of the texts that `read` returns, unless the file cannot be read that way."""
    try:
        texts = read()
    except CheckpointError:
        return
    computed |= {version: fnv1a(text) for version, text in texts.items()}


def _cpu_checksums(data: bytes) -> dict[str, int]:
    """Return the checksum that each version of a CPU state file would have, for the versions it can be read as."""
    computed: dict[str, int] = {}

    def old() -> dict[str, str]:
        return {"v1": checkpoint_cpu.dump_text(checkpoint_cpu.decode(data, "v1"), "v1")}

    def new() -> dict[str, str]:
        dump = checkpoint_cpu.dump_text
        checkpoint = checkpoint_cpu.decode(data, "v3")
        return {
            "v2": dump(checkpoint, "v2"),
            "v2raw": dump(checkpoint, "v2", "CPUManagerCheckpointV2"),
            "v3": dump(checkpoint, "v3"),
            "v3raw": dump(checkpoint, "v3", "CPUManagerCheckpointV3"),
        }

    _add_checksums(computed, old)
    _add_checksums(computed, new)
    return computed


def _memory_checksums(data: bytes) -> dict[str, int]:
    """Return the checksum that each version of a memory state file would have."""
    computed: dict[str, int] = {}

    def read() -> dict[str, str]:
        dump = checkpoint_memory.dump_text
        checkpoint = checkpoint_memory.decode(data)
        return {
            "v1": dump(checkpoint, "v1"),
            "v1raw": dump(checkpoint, "v1", "MemoryManagerCheckpointV1"),
            "v2": dump(checkpoint, "v2"),
        }

    _add_checksums(computed, read)
    return computed


def _device_checksums(data: bytes) -> dict[str, int]:
    computed: dict[str, int] = {}
    for version in ("v1", "v2"):
        _add_checksums(
            computed,
            lambda version=version: {  # type: ignore[misc]  # binds the loop variable
                version: checkpoint_devices.dump_text(checkpoint_devices.decode(data, version))
            },
        )
    return computed


def _data_checksums(data: bytes) -> dict[str, int]:
    content = decode_data(data).data
    return {"data": data_checksum(content), "crc32": crc_checksum(content)}


_COMPUTE: dict[Kind, Callable[[bytes], dict[str, int]]] = {
    "cpu": _cpu_checksums,
    "memory": _memory_checksums,
    "device": _device_checksums,
    "data": _data_checksums,
}
