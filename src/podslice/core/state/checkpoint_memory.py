"""`memory_manager_state`: the Memory Manager's state file, V1 and V2 (spec memory-device 1.13)."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.state.godump import dump_list, dump_map, fnv1a
from podslice.core.state.gojson import CORRUPT, CheckpointError, dump_string, load_object, typed
from podslice.core.state.gojson import dump_map as json_map
from podslice.core.values.golang import GoSyntaxError, atoi

ContainerBlocks = dict[str, dict[str, list[Block] | None] | None]
PodBlocks = dict[str, list[Block] | None]


class MemoryCheckpoint(msgspec.Struct):
    """One file as read. None maps are JSON nulls."""

    policy_name: str = ""
    machine_state: MachineState | None = msgspec.field(default_factory=dict)
    entries: ContainerBlocks | None = msgspec.field(default_factory=dict)
    pod_entries: PodBlocks | None = msgspec.field(default_factory=dict)
    checksum: int = 0


def dump_text(checkpoint: MemoryCheckpoint, version: str, name: str = "MemoryManagerCheckpoint") -> str:
    """The exact text whose FNV-1a is the checksum of `version` (v1, v2)."""
    machine = checkpoint.machine_state
    nodes = "<nil>"
    if machine is not None:
        nodes = f"map[{' '.join(f'{node}:{_dump_node(machine[node])}' for node in sorted(machine))}]"
    pods = ""
    if version == "v2":
        entries = dump_map(checkpoint.pod_entries, lambda b: f"{{MemoryBlocks:([]state.Block){_dump_blocks(b)}}}")
        pods = f" PodEntries:(state.PodMemoryAssignments){entries}"
    return (
        f"(*state.{name}){{PolicyName:(string){checkpoint.policy_name} MachineState:(state.NUMANodeMap){nodes} "
        f"Entries:(state.ContainerMemoryAssignments)"
        f"{dump_map(checkpoint.entries, lambda c: dump_map(c, _dump_blocks))}{pods} Checksum:(checksum.Checksum)0}}"
    )


def _dump_node(node: NUMANodeState) -> str:
    tables = dump_map(node.memory_map, _dump_table)
    return (
        f"<*>{{NumberOfAssignments:(int){node.number_of_assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){dump_list(node.cells)}}}"
    )


def _dump_table(table: MemoryTable) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _dump_blocks(blocks: list[Block] | None) -> str:
    return dump_list(blocks, _dump_block)


def _dump_block(block: Block) -> str:
    affinity = dump_list(block.numa_affinity)
    return f"{{NUMAAffinity:([]int){affinity} Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"


def encode(checkpoint: MemoryCheckpoint, version: str) -> bytes:
    """The file a kubelet writes in `version` (v1, v2), with its checksum."""
    machine = "null"
    if checkpoint.machine_state is not None:
        machine = json_map({str(node): _json_node(state) for node, state in checkpoint.machine_state.items()})
    members = [f'"policyName":{dump_string(checkpoint.policy_name)}', f'"machineState":{machine}']
    if checkpoint.entries:
        entries = {
            pod: "null" if containers is None else json_map({n: _json_blocks(b) for n, b in containers.items()})
            for pod, containers in checkpoint.entries.items()
        }
        members.append(f'"entries":{json_map(entries)}')
    if version == "v2" and checkpoint.pod_entries:
        pods = {
            pod: f'{{"memoryBlocks":{_json_blocks(blocks)}}}' if blocks else "{}"
            for pod, blocks in checkpoint.pod_entries.items()
        }
        members.append(f'"podEntries":{json_map(pods)}')
    members.append(f'"checksum":{fnv1a(dump_text(checkpoint, version))}')
    return f"{{{','.join(members)}}}".encode()


def _json_node(node: NUMANodeState) -> str:
    tables = "null"
    if node.memory_map is not None:
        tables = json_map({name: _json_table(table) for name, table in node.memory_map.items()})
    cells = "null" if node.cells is None else f"[{','.join(map(str, node.cells))}]"
    return f'{{"numberOfAssignments":{node.number_of_assignments},"memoryMap":{tables},"cells":{cells}}}'


def _json_table(table: MemoryTable) -> str:
    return (
        f'{{"total":{table.total},"systemReserved":{table.system_reserved},"allocatable":{table.allocatable},'
        f'"reserved":{table.reserved},"free":{table.free}}}'
    )


def _json_blocks(blocks: list[Block] | None) -> str:
    if blocks is None:
        return "null"
    return f"[{','.join(map(_json_block, blocks))}]"


def _json_block(block: Block) -> str:
    affinity = "null" if block.numa_affinity is None else f"[{','.join(map(str, block.numa_affinity))}]"
    return f'{{"numaAffinity":{affinity},"type":{dump_string(block.type)},"size":{block.size}}}'


def decode(data: bytes, partial: MemoryCheckpoint | None = None) -> MemoryCheckpoint:
    """Read a file without looking at the checksum. Raises `CheckpointError` with Go's text; what could be read
    before an error is left in `partial`."""
    checkpoint = partial if partial is not None else MemoryCheckpoint()
    error: CheckpointError | None = None
    for key, value in load_object(data).items():
        try:
            _decode_member(checkpoint, key, value)
        except CheckpointError as problem:
            error = error or problem
    if error is not None:
        raise error
    return checkpoint


_STRUCT = "MemoryManagerCheckpoint"


def _decode_member(checkpoint: MemoryCheckpoint, key: str, value: Any) -> None:
    if key == "policyname" and value is not None:
        checkpoint.policy_name = typed(value, str, _STRUCT, "policyName", "string")
    elif key == "checksum" and value is not None:
        checkpoint.checksum = typed(value, int, _STRUCT, "checksum", "checksum.Checksum")
    elif key == "machinestate":
        members = None if value is None else typed(value, dict, _STRUCT, "machineState", "state.NUMANodeMap")
        checkpoint.machine_state = None if members is None else {_node_id(k): _node(v) for k, v in members.items()}
    elif key == "entries":
        members = None if value is None else typed(value, dict, _STRUCT, "entries", "state.ContainerMemoryAssignments")
        checkpoint.entries = None if members is None else {pod: _containers(c) for pod, c in members.items()}
    elif key == "podentries":
        members = None if value is None else typed(value, dict, _STRUCT, "podEntries", "state.PodMemoryAssignments")
        checkpoint.pod_entries = None if members is None else {pod: _pod_blocks(e) for pod, e in members.items()}


def _node_id(key: str) -> int:
    try:
        return atoi(key)
    except GoSyntaxError:
        raise CheckpointError(
            f"json: cannot unmarshal number {key} into Go struct field {_STRUCT}.machineState of type int"
        ) from None


def _lowered(value: Any, field: str, go_type: str) -> dict[str, Any]:
    members = typed({} if value is None else value, dict, _STRUCT, field, go_type)
    return {key.lower(): member for key, member in members.items()}


def _node(value: Any) -> NUMANodeState:
    members = _lowered(value, "machineState", "state.NUMANodeState")
    tables = members.get("memorymap")
    return NUMANodeState(
        _integer(members, "numberofassignments"),
        None if tables is None else {name: _table(table) for name, table in _mapping(tables).items()},
        _integers(members.get("cells")),
    )


def _table(value: Any) -> MemoryTable:
    members = _lowered(value, "machineState.memoryMap", "state.MemoryTable")
    names = ("total", "systemreserved", "allocatable", "reserved", "free")
    return MemoryTable(*(_integer(members, name) for name in names))


def _mapping(value: Any) -> dict[str, Any]:
    members = typed(value, dict, _STRUCT, "machineState.memoryMap", "map[v1.ResourceName]*state.MemoryTable")
    assert isinstance(members, dict)
    return members


def _integer(members: dict[str, Any], name: str) -> int:
    return int(typed(members.get(name) or 0, int, _STRUCT, name, "uint64"))


def _integers(value: Any) -> list[int] | None:
    if value is None:
        return None
    return [int(typed(item, int, _STRUCT, "cells", "int")) for item in typed(value, list, _STRUCT, "cells", "[]int")]


def _containers(value: Any) -> dict[str, list[Block] | None] | None:
    if value is None:
        return None
    members = typed(value, dict, _STRUCT, "entries", "map[string][]state.Block")
    return {name: _blocks(blocks) for name, blocks in members.items()}


def _pod_blocks(value: Any) -> list[Block] | None:
    return _blocks(_lowered(value, "podEntries", "state.PodEntry").get("memoryblocks"))


def _blocks(value: Any) -> list[Block] | None:
    if value is None:
        return None
    blocks = []
    for item in typed(value, list, _STRUCT, "entries", "[]state.Block"):
        members = _lowered(item, "entries", "state.Block")
        affinity = _integers(members.get("numaaffinity"))
        name = typed(members.get("type") or "", str, _STRUCT, "entries.type", "v1.ResourceName")
        blocks.append(Block(None if affinity is None else tuple(affinity), name, _integer(members, "size")))
    return blocks


def verify(checkpoint: MemoryCheckpoint, version: str, *, pod_level: bool, trust_zero: bool = True) -> None:
    """Check the checksum as a kubelet with or without PodLevelResourceManagers does (spec 1.13.1).

    Raises `CheckpointError`.
    """
    if checkpoint.checksum == 0 and version == "v1" and trust_zero:
        return
    names = ["MemoryManagerCheckpoint"]
    if version == "v1" and not pod_level:
        names.append("MemoryManagerCheckpointV1")
    if all(fnv1a(dump_text(checkpoint, version, name)) != checkpoint.checksum for name in names):
        raise CheckpointError(CORRUPT)


def load(data: bytes, *, pod_level: bool, trust_zero: bool = True) -> MemoryCheckpoint:
    """Read a file as a kubelet does: V2 first with the gate on, then V1 over the same bytes (spec 1.13.2).

    Raises `CheckpointError`; the V1 error is the one reported.
    """
    newest = MemoryCheckpoint()
    if pod_level:
        try:
            checkpoint = decode(data, newest)
            verify(checkpoint, "v2", pod_level=True)
            return checkpoint
        except CheckpointError:
            pass
    checkpoint = decode(data)
    verify(checkpoint, "v1", pod_level=pod_level, trust_zero=trust_zero)
    checkpoint.pod_entries = dict(newest.pod_entries or {}) if pod_level else {}
    return checkpoint
