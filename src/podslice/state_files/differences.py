"""Differences between a state file and its repaired form, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from podslice.node.checkpoints.content import Content, read_content
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint, MemoryTable, NUMANodeState
from podslice.values.go.gojson import CheckpointError

_MISSING = "nothing"


def differences(before: bytes, after: bytes) -> list[str]:
    """Return a line for each figure outside of the entries that differs: the shared pool of the CPU Manager's file, the
    amounts of the Memory Manager's. Where only form or checksum differ, one line says so; equal files have none."""
    if before == after:
        return []
    try:
        old = read_content(before)
    except CheckpointError as error:
        return [f"written anew: {error}"]
    new = read_content(after)
    found = list(_figures(old, new))
    if found:
        return found
    if old.version != new.version:
        return [f"written as {new.version}, not {old.version}"]
    return ["written anew with its checksum" if not old.intact else "written anew in the form of a kubelet"]


def _figures(old: Content, new: Content) -> Iterator[str]:
    match old.checkpoint, new.checkpoint:
        case CPUCheckpoint() as before, CPUCheckpoint() as after:
            if before.default_cpuset != after.default_cpuset:
                yield _line("defaultCpuSet", before.default_cpuset, after.default_cpuset)
        case MemoryCheckpoint() as before, MemoryCheckpoint() as after:
            earlier, later = before.machine_state or {}, after.machine_state or {}
            for node in sorted(earlier.keys() | later.keys()):
                yield from _node(f"machineState.{node}", earlier.get(node), later.get(node))


def _node(path: str, old: NUMANodeState | None, new: NUMANodeState | None) -> Iterator[str]:
    if old is None or new is None:
        yield f"{path} is {'added' if old is None else 'removed'}"
        return
    if old.number_of_assignments != new.number_of_assignments:
        yield _line(f"{path}.numberOfAssignments", old.number_of_assignments, new.number_of_assignments)
    if (old.cells or []) != (new.cells or []):
        yield _line(f"{path}.cells", old.cells, new.cells)
    earlier, later = old.memory_map or {}, new.memory_map or {}
    for kind in sorted(earlier.keys() | later.keys()):
        was, will = _table(earlier.get(kind)), _table(later.get(kind))
        for name in was | will:
            if was.get(name) != will.get(name):
                yield _line(f"{path}.memoryMap.{kind}.{name}", was.get(name, _MISSING), will.get(name, _MISSING))


def _table(table: MemoryTable | None) -> dict[str, int]:
    """Return the amounts of a table by the names of the file; none where there is no table."""
    return {} if table is None else msgspec.to_builtins(table)


def _line(path: str, old: object, new: object) -> str:
    return f"{path}: {old} becomes {new}"
