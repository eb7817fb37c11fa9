"""State files that carry their content as a string with a checksum of that string.

`cpu_manager_state` V4 (Kubernetes 1.37 line) has the members of V2 for older kubelets, with V2's checksum, and
beside them `data`, which alone counts, with `dataChecksum`. A transitional form has only `data` and `checksum`; the DRA
manager's file is that with a CRC. `memory_manager_state` V3 of the same line is built like V4, on V1. Unknown members
of `data` are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.go.godump import data_checksum, decode_data
from podslice.values.go.gojson import (
    CORRUPT,
    CheckpointError,
    Members,
    dump_string,
    dump_value,
    parse,
)


def _check(data: bytes) -> None:
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.stored_checksum:
        raise CheckpointError(CORRUPT)


def add_data(older: bytes, newest: bytes) -> bytes:
    """Return a file of the 1.37 line: the members of `older` with its checksum, and those of `newest` as `data`."""
    content = newest.rpartition(b',"checksum":')[0].decode() + "}"
    end = f'"data":{dump_string(content)},"dataChecksum":{data_checksum(content)}}}'
    return older.removesuffix(b"}") + b"," + end.encode()


C = TypeVar("C", bound=CPUCheckpoint | MemoryCheckpoint)


class DataFormat(Generic[C]):
    """A manager's file whose `data` has the members of an older version, which `read` and `write` handle."""

    def __init__(
        self, known: set[str], read: Callable[[bytes], C], write: Callable[[C], str], write_older: Callable[[C], bytes]
    ) -> None:
        self._known = known
        self._read = read
        self._write = write
        self._write_older = write_older

    def decode(self, data: bytes) -> tuple[C, str]:
        """Return the content, and the unknown members of `data` as JSON text (`,"key":value…`), without checking the
        checksum. Raises `CheckpointError`."""
        content = decode_data(data).data.encode()
        value = parse(content)
        members = value if isinstance(value, Members) else Members()
        unknown = [
            f",{dump_string(key)}:{dump_value(one)}" for key, one in members if key.casefold() not in self._known
        ]
        return self._read(content), "".join(unknown)

    def load(self, data: bytes, *, pod_level: bool) -> C:
        """Read the file as a newer kubelet does; with the gate off, holdings of whole pods are dropped. Raises
        `CheckpointError`."""
        _check(data)
        checkpoint, _ = self.decode(data)
        if not pod_level:
            checkpoint.pod_entries = {}
        return checkpoint

    def encode(self, checkpoint: C, unknown: str = "") -> bytes:
        """Return the file; `unknown` are further members of `data` as `decode` returns them."""
        content = f"{{{self._write(checkpoint)}{unknown}}}"
        older = self._write_older(checkpoint).decode().removesuffix("}")
        return f'{older},"data":{dump_string(content)},"dataChecksum":{data_checksum(content)}}}'.encode()


CPU_V4 = DataFormat(
    {"policyname", "defaultcpuset", "entries", "podentries"},
    lambda data: checkpoint_cpu.decode(data, "v3"),
    checkpoint_cpu.json_members,
    lambda checkpoint: checkpoint_cpu.encode(checkpoint, "v2"),
)
MEMORY_V3 = DataFormat(
    {"policyname", "machinestate", "entries", "podentries"},
    lambda data: checkpoint_memory.decode(data, "v2"),
    checkpoint_memory.json_members,
    lambda checkpoint: checkpoint_memory.encode(checkpoint, "v1"),
)
