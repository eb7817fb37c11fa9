"""Converting and mending the Memory Manager's state file: the books of the NUMA nodes are made anew from who holds
what, so they can never contradict it."""

from __future__ import annotations

from collections.abc import Collection

from podslice.core.allocate.memory_static import charge
from podslice.core.state.checkpoint_memory import MemoryCheckpoint, decode, encode
from podslice.core.state.gojson import CheckpointError
from podslice.core.state.inspect import Converted
from podslice.core.values.cpuset import bits_of

VERSIONS = ("v1", "v2")


def convert_memory(data: bytes, version: str) -> Converted:
    """Rewrite a file as V1 (gate off) or V2 (PodLevelResourceManagers on). Raises `CheckpointError`.

    V1 has no room for the memory of pods with pod-level resources: those pods keep running, but what they hold is no
    longer booked.
    """
    checkpoint = decode(data)
    lost = []
    if version == "v1":
        for pod, blocks in (checkpoint.pod_entries or {}).items():
            held = ", ".join(f"{block.size} bytes of {block.type}" for block in blocks or ())
            lost.append(f"pod {pod}: {held or 'nothing'}, no longer booked")
            (checkpoint.entries or {}).pop(pod, None)
        checkpoint.pod_entries = {}
        _rebook(checkpoint)
    return Converted(encode(checkpoint, version), tuple(lost))


def repair_memory(data: bytes, running: Collection[str] | None) -> Converted:
    """A consistent file from a damaged one; `running` are the UIDs of the pods that run, None to believe the file.

    Raises `CheckpointError` when the sizes of the NUMA nodes cannot be read; then only a fresh file helps.
    """
    checkpoint = MemoryCheckpoint()
    changes: list[str] = []
    try:
        decode(data, checkpoint)
    except CheckpointError as error:
        changes.append(str(error))
    if not checkpoint.machine_state:
        raise CheckpointError("the NUMA nodes cannot be read; delete the file and let the kubelet write a fresh one")
    for pod in [*(checkpoint.entries or {})]:
        if running is not None and pod not in running:
            changes.append(f"{pod}: does not run, its memory is freed")
            (checkpoint.entries or {}).pop(pod)
            (checkpoint.pod_entries or {}).pop(pod, None)
    for pod in [pod for pod in (checkpoint.pod_entries or {}) if pod not in (checkpoint.entries or {})]:
        changes.append(f"{pod}: holds memory without a container, freed")
        (checkpoint.pod_entries or {}).pop(pod)
    changes += _rebook(checkpoint)
    return Converted(encode(checkpoint, "v2" if checkpoint.pod_entries else "v1"), tuple(changes))


def _rebook(checkpoint: MemoryCheckpoint) -> list[str]:
    """Make the books anew from the entries; returns what changed."""
    machine = checkpoint.machine_state or {}
    before = {node: (state.number_of_assignments, _reserved(state.memory_map)) for node, state in machine.items()}
    for node, state in machine.items():
        state.number_of_assignments = 0
        state.cells = [node]
        for table in (state.memory_map or {}).values():
            table.reserved, table.free = 0, table.allocatable
    changes = []
    for pod, named in (checkpoint.entries or {}).items():
        own = (checkpoint.pod_entries or {}).get(pod)
        for block in own or [block for blocks in (named or {}).values() for block in blocks or ()]:
            if not set(block.numa_affinity or ()) <= set(machine):
                changes.append(f"{pod}: {block.type} on NUMA nodes that do not exist, not booked")
                continue
            charge(machine, bits_of(block.numa_affinity or ()), block.type, block.size)
    for node, state in machine.items():
        if before[node] != (state.number_of_assignments, _reserved(state.memory_map)):
            changes.append(f"NUMA node {node}: booked anew")
    return changes


def _reserved(tables: object) -> list[tuple[str, int]]:
    return sorted((name, table.reserved) for name, table in tables.items()) if isinstance(tables, dict) else []
