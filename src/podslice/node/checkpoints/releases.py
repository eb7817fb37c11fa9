"""Formats that a kubelet of a release reads and writes (cpu-topology 8.2, 8.7; memory-device 1.13, 2.11).

Up to 1.17 the CPU file was V1, then V2; 1.36 writes V3 with PodLevelResourceManagers on; the 1.37 line writes V4, and
memory V3 beside it. Releases before 1.36 do not know the gate. They read the CPU file as V1 first, and accept no
checksum of 0 in the memory file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.errors import InputError
from podslice.values.go.godump import is_data_file
from podslice.values.go.gojson import CheckpointError

FileKind = Literal["cpu", "memory", "device", "allocation", "policy", "guard", "dra", "pod-status"]
_FIRST_WITH_VERSIONS = 36
"""The first kubelet that can write another CPU file than V2, and another memory file than V1."""
_VERSION = re.compile(r"v?1\.(\d{1,3})(\.\d+)?([-+].*)?\Z")


class Release(NamedTuple):
    """A kubelet: minor version of Kubernetes 1.x, and the gate PodLevelResourceManagers."""

    minor: int
    pod_level: bool = False

    def __str__(self) -> str:
        gate = " with PodLevelResourceManagers" if self.pod_level else ""
        return f"1.{self.minor}{gate}"

    def writes(self, kind: FileKind) -> str:
        """Return the format this kubelet writes."""
        if kind == "cpu":
            return "v4" if self.minor >= 37 else "v3" if self.pod_level else "v2" if self.minor >= 18 else "v1"
        if kind == "memory":
            return "v3" if self.minor >= 37 else "v2" if self.pod_level else "v1"
        if kind in ("allocation", "policy"):
            return "data"
        if kind in ("guard", "pod-status"):
            return "v1"
        return "v2" if self.minor >= 20 else "v1"


def release(text: str, *, pod_level: bool = False) -> Release:
    """Return the release of `1.36`, `v1.36` or `v1.36.2-gke.1`. Raises `InputError`."""
    match = _VERSION.match(text)
    if match is None:
        raise InputError(f"{text!r} is not a Kubernetes version", remedy="write for example 1.36")
    minor = int(match[1])
    if pod_level and minor < 36:
        raise InputError(f"Kubernetes 1.{minor} has no gate PodLevelResourceManagers", remedy="leave it out")
    return Release(minor, pod_level)


def load_cpu(data: bytes, reader: Release, containers: Mapping[str, tuple[str, str]]) -> CPUCheckpoint:
    """Read a CPU state file as that kubelet does. `containers` maps container ids to (pod UID, name), for V1 files.
    Raises `CheckpointError`."""
    if reader.minor < 18:
        checkpoint = checkpoint_cpu.decode(data, "v1")
        checkpoint_cpu.verify(checkpoint, "v1", pod_level=False)
        return checkpoint_cpu.migrate_v1(checkpoint, containers)
    if reader.minor < _FIRST_WITH_VERSIONS:
        return checkpoint_cpu.load_oldest_first(data, containers, trust_zero=True)
    if reader.minor >= 37 and _is_data_file(data):
        return checkpoint_data.CPU_V4.load(data, pod_level=reader.pod_level)
    return checkpoint_cpu.load(data, pod_level=reader.pod_level, containers=containers)


def load_memory(data: bytes, reader: Release) -> MemoryCheckpoint:
    """Read a memory state file as that kubelet does. Raises `CheckpointError`."""
    if reader.minor < _FIRST_WITH_VERSIONS:
        return checkpoint_memory.load_only_version(data)
    if reader.minor >= 37 and _is_data_file(data):
        return checkpoint_data.MEMORY_V3.load(data, pod_level=reader.pod_level)
    return checkpoint_memory.load(data, pod_level=reader.pod_level)


def _is_data_file(data: bytes) -> bool:
    try:
        return is_data_file(data)
    except CheckpointError:
        return False
