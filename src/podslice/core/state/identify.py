"""What a state file is: which manager wrote it, in which format, and whether its checksum holds."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from podslice.core.state import checkpoint_cpu, checkpoint_devices, checkpoint_memory
from podslice.core.state.godump import fnv1a
from podslice.core.state.gojson import CheckpointError, load_object

CPU, MEMORY, DEVICES, DATA, UNKNOWN = "cpu", "memory", "devices", "data", "unknown"


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """`format` is the version whose checksum matches, empty when none does; `problem` says why."""

    kind: str
    format: str = ""
    stated: int | None = None
    computed: dict[str, int] = {}
    problem: str = ""

    @property
    def verified(self) -> bool:
        return bool(self.format)


def identify(data: bytes) -> Identity:
    """Look at a state file without trusting anything in it. Never raises."""
    try:
        members = load_object(data)
    except (CheckpointError, RecursionError) as error:
        return Identity(UNKNOWN, problem=str(error) or "nested too deeply")
    try:
        return _identify(data, members)
    except (CheckpointError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        return Identity(UNKNOWN, problem=f"not a state file: {error}")


def _identify(data: bytes, members: dict[str, Any]) -> Identity:
    if isinstance(members.get("data"), str):
        return _data(members)
    if isinstance(members.get("data"), dict):
        content, checksum = checkpoint_devices.decode(data)
        return _verdict(DEVICES, checksum, {"devices": fnv1a(checkpoint_devices.dump_text(content))})
    if "machinestate" in members:
        memory = checkpoint_memory.decode(data)
        computed = {
            "v2": fnv1a(checkpoint_memory.dump_text(memory, "v2")),
            "v1": fnv1a(checkpoint_memory.dump_text(memory, "v1")),
            "v1 (named)": fnv1a(checkpoint_memory.dump_text(memory, "v1", "MemoryManagerCheckpointV1")),
        }
        return _verdict(MEMORY, memory.checksum, computed)
    if "policyname" in members or "defaultcpuset" in members:
        return _cpu(data)
    return Identity(UNKNOWN, problem="neither a CPU, memory nor device state file")


def _cpu(data: bytes) -> Identity:
    computed: dict[str, int] = {}
    stated = 0
    problem = ""
    for version in ("v3", "v2", "v1"):
        try:
            checkpoint = checkpoint_cpu.decode(data, version)
        except CheckpointError as error:
            problem = str(error)
            continue
        stated = checkpoint.checksum
        computed[version] = fnv1a(checkpoint_cpu.dump_text(checkpoint, version))
        if version != "v1":
            name = f"CPUManagerCheckpoint{version.upper()}"
            computed[f"{version} (named)"] = fnv1a(checkpoint_cpu.dump_text(checkpoint, version, name))
    if not computed:
        return Identity(CPU, problem=problem)
    return _verdict(CPU, stated, computed)


def _data(members: dict[str, Any]) -> Identity:
    text = members["data"]
    own = fnv1a(f"(string){text}")
    if "datachecksum" in members:
        return _verdict(CPU, int(members["datachecksum"]), {"v4": own})
    computed = {"data": own, "crc32": crc32(text.encode("utf-8", errors="surrogatepass"))}
    return _verdict(DATA, int(members.get("checksum") or 0), computed)


def _verdict(kind: str, stated: int, computed: dict[str, int]) -> Identity:
    match = next((name for name, checksum in computed.items() if checksum == stated), "")
    if match:
        return Identity(kind, match, stated, computed)
    problem = "has no checksum" if stated == 0 else f"checksum {stated} fits none of its formats"
    return Identity(kind, "", stated, computed, problem)
