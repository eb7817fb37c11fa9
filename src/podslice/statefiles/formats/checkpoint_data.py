"""State files that carry their content as a string with a checksum of that string.

`cpu_manager_state` V4 (Kubernetes 1.37 line; cpu-topology 8.7) has the members of V3 for older kubelets with
checksum 0, and beside them `data`, which alone counts, with `dataChecksum`. A transitional form has only `data` and
`checksum`; the DRA manager's file is that with a CRC. `memory_manager_state` V3 of the same line is built like V4.
Members of `data` we do not know are kept.
"""

from __future__ import annotations

import zlib

import msgspec

from podslice.statefiles.formats import checkpoint_cpu, checkpoint_memory
from podslice.statefiles.formats.checkpoint_cpu import CPUCheckpoint
from podslice.statefiles.formats.checkpoint_memory import MemoryCheckpoint
from podslice.statefiles.go.godump import fnv1a
from podslice.statefiles.go.gojson import CORRUPT, CheckpointError, Members, dump_string, dump_value, parse
from podslice.statefiles.go.gounmarshal import GoInt, GoString, GoStruct, unmarshal

_FORMAT = GoStruct(
    "state.DataCheckpoint",
    {"data": GoString(), "checksum": GoInt("checksum.Checksum"), "dataChecksum": GoInt("checksum.Checksum")},
)
_CPU_MEMBERS = frozenset({"policyname", "defaultcpuset", "entries", "podentries"})
_MEMORY_MEMBERS = frozenset({"policyname", "machinestate", "entries", "podentries"})


class DataCheckpoint(msgspec.Struct):
    """One file as read. `data_checksum` is 0 in the transitional form, which uses `checksum`."""

    data: str
    checksum: int = 0
    data_checksum: int = 0

    @property
    def stated(self) -> int:
        """The checksum that covers `data`."""
        return self.data_checksum or self.checksum


def is_data_file(data: bytes) -> bool:
    """True when a file carries its content as a string. Raises `CheckpointError` for broken JSON."""
    value = parse(data)
    return isinstance(value, Members) and any(key.lower() == "data" and isinstance(v, str) for key, v in value)


def decode_data(data: bytes) -> DataCheckpoint:
    """Read the envelope, without looking at the checksums. Raises `CheckpointError`."""
    fields = unmarshal(data, _FORMAT)
    return DataCheckpoint(*fields.values())


def data_checksum(data: str) -> int:
    """What `dataChecksum` must be."""
    return fnv1a(f"(string){data}")


def crc_checksum(data: str) -> int:
    """What the DRA manager's checksum must be."""
    return zlib.crc32(data.encode())


def _content(data: bytes, known: frozenset[str]) -> tuple[bytes, str]:
    """The string `data`, and its members outside `known` as JSON text (`,"key":value…`)."""
    content = decode_data(data).data.encode()
    value = parse(content)
    members = value if isinstance(value, Members) else Members()
    unknown = [f",{dump_string(key)}:{dump_value(member)}" for key, member in members if key.casefold() not in known]
    return content, "".join(unknown)


def _check(data: bytes) -> None:
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.stated:
        raise CheckpointError(CORRUPT)


def _wrap(members: str, unknown: str) -> bytes:
    content = f"{{{members}{unknown}}}"
    return f'{{{members},"checksum":0,"data":{dump_string(content)},"dataChecksum":{data_checksum(content)}}}'.encode()


# cpu_manager_state V4


def decode_v4(data: bytes) -> tuple[CPUCheckpoint, str]:
    """The content of a CPU state file V4, and its unknown members as JSON text, without looking at the checksum.
    Raises `CheckpointError`."""
    content, unknown = _content(data, _CPU_MEMBERS)
    return checkpoint_cpu.decode(content, "v3"), unknown


def load_v4(data: bytes, *, pod_level: bool) -> CPUCheckpoint:
    """Read V4 as a newer kubelet does; with the gate off bubbles are dropped. Raises `CheckpointError`."""
    _check(data)
    checkpoint, _ = decode_v4(data)
    if not pod_level:
        checkpoint.pod_entries = {}
    return checkpoint


def encode_v4(checkpoint: CPUCheckpoint, unknown: str = "") -> bytes:
    """The file in V4; `unknown` are further members of `data` as `decode_v4` gives them."""
    return _wrap(checkpoint_cpu.json_members(checkpoint), unknown)


# memory_manager_state V3


def decode_memory_v3(data: bytes) -> tuple[MemoryCheckpoint, str]:
    """The content of a memory state file V3, and its unknown members. Raises `CheckpointError`."""
    content, unknown = _content(data, _MEMORY_MEMBERS)
    return checkpoint_memory.decode(content, "v2"), unknown


def load_memory_v3(data: bytes, *, pod_level: bool) -> MemoryCheckpoint:
    """Read V3 as a newer kubelet does; with the gate off pod entries are dropped. Raises `CheckpointError`."""
    _check(data)
    checkpoint, _ = decode_memory_v3(data)
    if not pod_level:
        checkpoint.pod_entries = {}
    return checkpoint


def encode_memory_v3(checkpoint: MemoryCheckpoint, unknown: str = "") -> bytes:
    """The file in V3; `unknown` are further members of `data` as `decode_memory_v3` gives them."""
    return _wrap(checkpoint_memory.json_members(checkpoint), unknown)
