"""State files that carry their content as a string with a checksum of that string.

`cpu_manager_state` V4 (Kubernetes 1.37 line; cpu-topology 8.7) has the members of V3 for older kubelets with
checksum 0, and beside them `data`, which alone counts, with `dataChecksum`. A transitional form has only `data` and
`checksum`; the DRA manager's file is that with a CRC. `memory_manager_state` V3 of the same line is built like V4.
Members of `data` we do not know are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from podslice.statefiles.formats import checkpoint_cpu, checkpoint_memory
from podslice.statefiles.formats.checkpoint_cpu import CPUCheckpoint
from podslice.statefiles.formats.checkpoint_memory import MemoryCheckpoint
from podslice.statefiles.go.godump import fnv1a
from podslice.statefiles.go.gojson import (
    CORRUPT,
    CheckpointError,
    GoInt,
    GoString,
    GoStruct,
    Members,
    dump_string,
    dump_value,
    parse,
    unmarshal,
)

_FORMAT = GoStruct(
    "state.DataCheckpoint",
    {"data": GoString(), "checksum": GoInt("checksum.Checksum"), "dataChecksum": GoInt("checksum.Checksum")},
)


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


def _check(data: bytes) -> None:
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.stated:
        raise CheckpointError(CORRUPT)


C = TypeVar("C", bound=CPUCheckpoint | MemoryCheckpoint)


class DataFormat(Generic[C]):
    """A manager's file whose `data` has the members of an older version, which `read` and `write` know."""

    def __init__(self, known: set[str], read: Callable[[bytes], C], write: Callable[[C], str]) -> None:
        self._known = known
        self._read = read
        self._write = write

    def decode(self, data: bytes) -> tuple[C, str]:
        """The content, and the members of `data` we do not know as JSON text (`,"key":value…`), without looking at
        the checksum. Raises `CheckpointError`."""
        content = decode_data(data).data.encode()
        value = parse(content)
        members = value if isinstance(value, Members) else Members()
        unknown = [
            f",{dump_string(key)}:{dump_value(one)}" for key, one in members if key.casefold() not in self._known
        ]
        return self._read(content), "".join(unknown)

    def load(self, data: bytes, *, pod_level: bool) -> C:
        """Read it as a newer kubelet does; with the gate off what pods own is dropped. Raises `CheckpointError`."""
        _check(data)
        checkpoint, _ = self.decode(data)
        if not pod_level:
            checkpoint.pod_entries = {}
        return checkpoint

    def encode(self, checkpoint: C, unknown: str = "") -> bytes:
        """The file; `unknown` are further members of `data` as `decode` gives them."""
        members = self._write(checkpoint)
        content = f"{{{members}{unknown}}}"
        end = f'"checksum":0,"data":{dump_string(content)},"dataChecksum":{data_checksum(content)}'
        return f"{{{members},{end}}}".encode()


CPU_V4 = DataFormat(
    {"policyname", "defaultcpuset", "entries", "podentries"},
    lambda data: checkpoint_cpu.decode(data, "v3"),
    checkpoint_cpu.json_members,
)
MEMORY_V3 = DataFormat(
    {"policyname", "machinestate", "entries", "podentries"},
    lambda data: checkpoint_memory.decode(data, "v2"),
    checkpoint_memory.json_members,
)
