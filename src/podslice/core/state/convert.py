"""Rewriting a state file in another version, with a valid checksum (spec cpu-topology 8.3, memory-device 1.13)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.state import checkpoint_cpu, checkpoint_memory


def rewrite(kind: str, data: bytes, version: str, containers: Mapping[str, tuple[str, str]]) -> bytes:
    """The file `data` of a kind (`cpu`, `memory`) as `version`; what that version cannot hold is dropped.

    `containers` maps container ids to (pod UID, name), which V1 CPU entries are named by;
    a container without an id is named after pod, container and restart 0. Raises `CheckpointError`.
    """
    if kind == "memory":
        return checkpoint_memory.encode(checkpoint_memory.decode(data), version)
    checkpoint = checkpoint_cpu.decode(data, "v3")
    if version == "v1":
        by_reference = {reference: container_id for container_id, reference in containers.items()}
        checkpoint.entries_v1 = {
            by_reference.get((pod, name), f"{pod}_{name}_0"): cpus
            for pod, named in (checkpoint.entries or {}).items()
            for name, cpus in (named or {}).items()
        }
    return checkpoint_cpu.encode(checkpoint, version)
