"""`memory_manager_state`: the fields of the Memory Manager's state file (memory-device 1.13). The versions of the
file stand in `node/checkpoints/data.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from podslice.machine.memory import Block as Block
from podslice.machine.memory import MachineState as MachineState
from podslice.machine.memory import MemoryTable as MemoryTable
from podslice.machine.memory import NUMANodeState as NUMANodeState
from podslice.values.go.godump import Checksum, Member, add_dump, dump_list, dump_map, fnv1a, json_of, member, renew
from podslice.values.go.gojson import (
    CORRUPT,
    CheckpointError,
    GoInt,
    GoMap,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    dump_string,
    unmarshal,
    zero,
)
from podslice.values.go.gojson import dump_map as json_map

ContainerBlocks = dict[str, dict[str, list[Block] | None] | None]
PodBlocks = dict[str, list[Block] | None]


class MemoryCheckpoint(msgspec.Struct):
    """One file as read. None maps are JSON nulls."""

    policy_name: str = ""
    machine_state: MachineState | None = msgspec.field(default_factory=dict)
    entries: ContainerBlocks | None = msgspec.field(default_factory=dict)
    pod_entries: PodBlocks | None = msgspec.field(default_factory=dict)
    checksum: int = 0


# The text under the checksum

_BEFORE_POLICY = "(*state.MemoryManagerCheckpoint){PolicyName:(string)"
_MACHINE = " MachineState:(state.NUMANodeMap)"
_ENTRIES = " Entries:(state.ContainerMemoryAssignments)"
_PODS = " PodEntries:(state.PodMemoryAssignments)"
_TAIL = " Checksum:(checksum.Checksum)0}"


def dump_text(checkpoint: MemoryCheckpoint, version: str, name: str = "MemoryManagerCheckpoint") -> str:
    """Return the exact text whose FNV-1a is the checksum of `version` (v1, v2)."""
    machine = checkpoint.machine_state
    nodes = "<nil>"
    if machine is not None:
        nodes = f"map[{' '.join(f'{node}:{_dump_node(machine[node])}' for node in sorted(machine))}]"
    pods = _PODS + dump_map(checkpoint.pod_entries, _dump_pod_blocks) if version == "v2" else ""
    head = f"(*state.{name}){{PolicyName:(string){checkpoint.policy_name}"
    return f"{head}{_MACHINE}{nodes}{_ENTRIES}{dump_map(checkpoint.entries, _dump_containers)}{pods}{_TAIL}"


def _dump_node(node: NUMANodeState) -> str:
    return "".join(_node_dump(node))


def _node_dump(node: NUMANodeState) -> Iterator[str]:
    """Yield the dump of a node in pieces: those that allocations change, and the constant text around them."""
    yield "<*>{NumberOfAssignments:(int)"
    yield str(node.number_of_assignments)
    before = " MemoryMap:(map[v1.ResourceName]*state.MemoryTable)"
    if node.memory_map is None:
        before += "<nil>"
    else:
        before += "map["
        blank = ""
        for name in sorted(node.memory_map):
            t = node.memory_map[name]
            yield (
                f"{before}{blank}{name}:<*>{{TotalMemSize:(uint64){t.total} SystemReserved:(uint64){t.system_reserved} "
                f"Allocatable:(uint64){t.allocatable} Reserved:(uint64)"
            )
            yield str(t.reserved)
            yield " Free:(uint64)"
            yield str(t.free)
            before, blank = "}", " "
        before += "]"
    yield f"{before} Cells:([]int){dump_list(node.cells)}}}"


def _dump_containers(containers: Mapping[str, Sequence[Block] | None] | None) -> str:
    return dump_map(containers, _dump_blocks)


def _dump_pod_blocks(blocks: Sequence[Block] | None) -> str:
    return f"{{MemoryBlocks:([]state.Block){_dump_blocks(blocks)}}}"


def _dump_blocks(blocks: Sequence[Block] | None) -> str:
    return dump_list(blocks, _dump_block)


def _dump_block(block: Block) -> str:
    return "".join(_block_dump(block))


def _block_dump(block: Block) -> tuple[str, str, str]:
    affinity = dump_list(block.numa_affinity)
    return f"{{NUMAAffinity:([]int){affinity} Type:(v1.ResourceName){block.type} Size:(uint64)", str(block.size), "}"


def _blocks_dump(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the text of `_dump_blocks` in pieces."""
    before = "["
    for block in blocks:
        yield before
        yield from _block_dump(block)
        before = " "
    yield "]" if blocks else "[]"


# Writing


def encode(checkpoint: MemoryCheckpoint, version: str) -> bytes:
    """Return the file a kubelet writes in `version` (v1, v2), with its checksum."""
    members = json_members(checkpoint, pods=version == "v2")
    return f'{{{members},"checksum":{fnv1a(dump_text(checkpoint, version))}}}'.encode()


def json_members(checkpoint: MemoryCheckpoint, *, pods: bool = True) -> str:
    """Return the JSON members policyName to entries or, with `pods`, to podEntries."""
    machine = "null"
    if checkpoint.machine_state is not None:
        machine = json_map({str(node): _json_node(state) for node, state in checkpoint.machine_state.items()})
    entries = {pod: _json_containers(containers) for pod, containers in (checkpoint.entries or {}).items()}
    blocks = {pod: _json_pod_blocks(blocks) for pod, blocks in (checkpoint.pod_entries or {}).items()} if pods else {}
    return _members(
        checkpoint.policy_name, machine, json_map(entries) if entries else "", json_map(blocks) if blocks else ""
    )


def _members(policy_name: str, machine: str, entries: str, pods: str) -> str:
    text = f'"policyName":{dump_string(policy_name)},"machineState":{machine}'
    if entries:
        text += f',"entries":{entries}'
    return f'{text},"podEntries":{pods}' if pods else text


def _json_node(node: NUMANodeState) -> str:
    tables = "null"
    if node.memory_map is not None:
        tables = json_map({name: _json_table(table) for name, table in node.memory_map.items()})
    return f'{{"numberOfAssignments":{node.number_of_assignments},"memoryMap":{tables},"cells":{_ids(node.cells)}}}'


def _ids(ids: Sequence[int] | None) -> str:
    return "null" if ids is None else f"[{','.join(map(str, ids))}]"


def _json_table(table: MemoryTable) -> str:
    return (
        f'{{"total":{table.total},"systemReserved":{table.system_reserved},"allocatable":{table.allocatable},'
        f'"reserved":{table.reserved},"free":{table.free}}}'
    )


def _json_containers(containers: Mapping[str, Sequence[Block] | None] | None) -> str:
    if containers is None:
        return "null"
    return json_map({name: _json_blocks(blocks) for name, blocks in containers.items()})


def _json_pod_blocks(blocks: Sequence[Block] | None) -> str:
    return f'{{"memoryBlocks":{_json_blocks(blocks)}}}' if blocks else "{}"


def _json_blocks(blocks: Sequence[Block] | None) -> str:
    return "null" if blocks is None else f"[{','.join(map(_json_block, blocks))}]"


def _json_block(block: Block) -> str:
    return f'{{"numaAffinity":{_ids(block.numa_affinity)},"type":{dump_string(block.type)},"size":{block.size}}}'


class MemoryStateEncoder:
    """Writes one node's state files; caches the texts of NUMA nodes and pods that did not change."""

    def __init__(self) -> None:
        self._checksum = Checksum()
        self._nodes: dict[int, Member] = {}
        self._pods: dict[str, Member] = {}
        self._pod_blocks: dict[str, Member] = {}

    def encode(
        self,
        policy_name: str,
        machine_state: MachineState,
        entries: Mapping[str, Mapping[str, Sequence[Block]]],
        pod_entries: Mapping[str, Sequence[Block]] | None,
    ) -> bytes:
        """Return the file for a state, the same bytes as the function `encode`: v2, or v1 where `pod_entries` is None.
        Records of NUMA nodes count as unchanged when they are the same objects."""
        nodes = self._nodes = _renew_nodes(self._nodes, machine_state)
        self._pods = renew(self._pods, entries, _pod_member)
        pods, pod_blocks = self._pods.values(), self._pod_blocks.values()
        text = [_BEFORE_POLICY, policy_name, _MACHINE]
        add_dump(text, nodes.values(), self._checksum)
        text.append(_ENTRIES)
        add_dump(text, pods, self._checksum)
        if pod_entries is not None:
            self._pod_blocks = renew(self._pod_blocks, pod_entries, _pod_entry_member)
            pod_blocks = self._pod_blocks.values()
            text.append(_PODS)
            add_dump(text, pod_blocks, self._checksum)
        text.append(_TAIL)
        # Go's JSON sorts map keys as text, so node 10 comes before node 2; the dump sorts them as numbers.
        machine = json_of(nodes[node] for node in sorted(nodes, key=str)) or "{}"
        members = _members(policy_name, machine, json_of(pods), json_of(pod_blocks))
        return f'{{{members},"checksum":{self._checksum.of(text)}}}'.encode()


def _renew_nodes(known: Mapping[int, Member], machine: MachineState) -> dict[int, Member]:
    members = {}
    for node in sorted(machine):
        state, old = machine[node], known.get(node)
        members[node] = old if old is not None and old.source is state else _node_member(node, state)
    return members


def _node_member(node: int, state: NUMANodeState) -> Member:
    return member(state, f'"{node}":{_json_node(state)}', f" {node}:", *_node_dump(state))


def _pod_member(uid: str, containers: Mapping[str, Sequence[Block]]) -> Member:
    dump, json = [f" {uid}:map["], []
    blank = ""
    for name in sorted(containers):
        dump.append(f"{blank}{name}:")
        dump += _blocks_dump(containers[name])
        json.append(f"{dump_string(name)}:{_json_blocks(containers[name])}")
        blank = " "
    dump.append("]")
    return member(containers, f"{dump_string(uid)}:{{{','.join(json)}}}", *dump)


def _pod_entry_member(uid: str, blocks: Sequence[Block]) -> Member:
    dump = (f" {uid}:", "{MemoryBlocks:([]state.Block)", *_blocks_dump(blocks), "}")
    return member(blocks, f"{dump_string(uid)}:{_json_pod_blocks(blocks)}", *dump)


# Reading

_SIZE = GoInt("uint64")
_IDS = GoSlice("[]int", GoInt("int", signed=True))
_TABLE = GoStruct(
    "state.MemoryTable",
    dict.fromkeys(("total", "systemReserved", "allocatable", "reserved", "free"), _SIZE),
    pointer=True,
)
_NODE = GoStruct(
    "state.NUMANodeState",
    {
        "numberOfAssignments": GoInt("int", signed=True),
        "memoryMap": GoMap("map[v1.ResourceName]*state.MemoryTable", _TABLE),
        "cells": _IDS,
    },
    pointer=True,
)
_BLOCKS = GoSlice(
    "[]state.Block",
    GoStruct("state.Block", {"numaAffinity": _IDS, "type": GoString("v1.ResourceName"), "size": _SIZE}),
)
_FIELDS: dict[str, GoType] = {
    "policyName": GoString(),
    "machineState": GoMap("state.NUMANodeMap", _NODE, numeric=True),
    "entries": GoMap("state.ContainerMemoryAssignments", GoMap("map[string][]state.Block", _BLOCKS)),
    "checksum": GoInt("checksum.Checksum"),
}
_POD_ENTRIES = GoMap("state.PodMemoryAssignments", GoStruct("state.PodEntry", {"memoryBlocks": _BLOCKS}))
_EMPTY = frozenset({"machineState", "entries", "podEntries"})
FORMATS = {
    "v1": GoStruct("state.MemoryManagerCheckpointV1", _FIELDS, _EMPTY),
    "v1-only": GoStruct("state.MemoryManagerCheckpoint", _FIELDS, _EMPTY),
    "v2": GoStruct("state.MemoryManagerCheckpoint", {**_FIELDS, "podEntries": _POD_ENTRIES}, _EMPTY),
}


def decode(data: bytes, version: str = "v2", partial: MemoryCheckpoint | None = None) -> MemoryCheckpoint:
    """Read a file as `version` (v1, v2; v1-only: V1 under the name it had before there was V2) without checking the
    checksum. Raises `CheckpointError` with Go's text; what could be read before an error is left in `partial`."""
    checkpoint = partial if partial is not None else MemoryCheckpoint()
    fields = zero(FORMATS[version])
    try:
        unmarshal(data, FORMATS[version], fields)
    finally:
        _fill(checkpoint, fields)
    return checkpoint


def _fill(checkpoint: MemoryCheckpoint, fields: dict[str, Any]) -> None:
    """Fill a checkpoint from decoded members."""
    checkpoint.policy_name = fields["policyName"]
    checkpoint.checksum = fields["checksum"]
    machine, entries, pods = fields["machineState"], fields["entries"], fields.get("podEntries", {})
    checkpoint.machine_state = _map_values(machine, _read_node)
    checkpoint.entries = _map_values(entries, lambda containers: _map_values(containers, _read_blocks))
    checkpoint.pod_entries = _map_values(pods, lambda entry: _read_blocks(entry["memoryBlocks"]))


def _map_values(members: Any, read: Any) -> Any:
    return None if members is None else {key: read(member) for key, member in members.items()}


def _read_node(fields: dict[str, Any] | None) -> NUMANodeState:
    if fields is None:
        raise CheckpointError("a NUMA node of machineState is null")
    return NUMANodeState(fields["numberOfAssignments"], _map_values(fields["memoryMap"], _read_table), fields["cells"])


def _read_table(fields: dict[str, int] | None) -> MemoryTable:
    if fields is None:
        raise CheckpointError("a memory table of machineState is null")
    return MemoryTable(*fields.values())


def _read_blocks(blocks: list[dict[str, Any]] | None) -> list[Block] | None:
    if blocks is None:
        return None
    return [Block(_tuple(block["numaAffinity"]), block["type"], block["size"]) for block in blocks]


def _tuple(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def verify(checkpoint: MemoryCheckpoint, version: str, *, pod_level: bool, trust_zero: bool = True) -> None:
    """Check the checksum as a kubelet with or without PodLevelResourceManagers does (memory-device 1.13.1);
    `trust_zero` lets a checksum of 0 pass in V1, as upstream does.

    Raises `CheckpointError`.
    """
    if checkpoint.checksum == 0 and version == "v1" and trust_zero:
        return
    names = ["MemoryManagerCheckpoint"]
    if version == "v1" and not pod_level:
        names.append("MemoryManagerCheckpointV1")
    if all(fnv1a(dump_text(checkpoint, version, name)) != checkpoint.checksum for name in names):
        raise CheckpointError(CORRUPT)


def load_only_version(data: bytes) -> MemoryCheckpoint:
    """Read a file as kubelets up to 1.35 do, which have one version and accept no checksum of 0. Raises
    `CheckpointError`."""
    checkpoint = decode(data, "v1-only")
    verify(checkpoint, "v1", pod_level=True, trust_zero=False)
    return checkpoint


def load(data: bytes, *, pod_level: bool, trust_zero: bool = True) -> MemoryCheckpoint:
    """Read a file as a kubelet does: V2 first with the gate on, then V1 over the same bytes (memory-device 1.13.2);
    `trust_zero` as in `verify`.

    Raises `CheckpointError`; the V1 error is the one reported.
    """
    newest = MemoryCheckpoint()
    if pod_level:
        try:
            checkpoint = decode(data, "v2", newest)
            verify(checkpoint, "v2", pod_level=True)
            return checkpoint
        except CheckpointError:
            pass
    checkpoint = decode(data, "v1")
    verify(checkpoint, "v1", pod_level=pod_level, trust_zero=trust_zero)
    # As with CPUs: pod entries read as V2 survive the fall back to V1.
    checkpoint.pod_entries = dict(newest.pod_entries or {}) if pod_level else {}
    return checkpoint
