"""Make a consistent memory state from a damaged file, as `repair` does for CPUs. The ledger is computed from the blocks
that do not contradict the machine; blocks that do not fit are dropped and reported."""

from __future__ import annotations

from typing import Any

from podslice.machine.memory_accounts import charge, default_machine_state
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints.releases import Release
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import (
    Block,
    MachineState,
    MemoryCheckpoint,
    MemoryTable,
    NUMANodeState,
)
from podslice.node.memory.ledger import empty_ledger, find_misplaced
from podslice.state_files.consequence import NodeFacts, reservations
from podslice.state_files.convert import Rewritten
from podslice.state_files.repair import RunningPods, choose_policy
from podslice.state_files.salvage import object_map, read_damaged
from podslice.values.cpuset import bits_of
from podslice.values.golang import U64
from podslice.values.quantity import bytes_text

_MEMBERS = frozenset({"policyname", "machinestate", "entries"})


def repair_memory(data: bytes, target: Release, facts: NodeFacts, running: RunningPods | None) -> Rewritten:
    """Repair the memory state file for `target`. Without a machine in `facts`, NUMA nodes and their sizes are taken
    from the file. Raises `InputError` for JSON that is another file."""
    members, actions = read_damaged(data, _MEMBERS)
    policy = choose_policy(members, ("None", "Static"), "Static", actions)
    checkpoint = MemoryCheckpoint(policy)
    version = target.writes("memory")
    if policy == "Static":
        ledger = _machine(members, facts)
        pods = object_map(members.get("podentries")) if target.pod_level else {}
        _take_memory(checkpoint, ledger, object_map(members.get("entries")), pods, running, actions)
        checkpoint.machine_state = ledger
    if version == "v3":
        return Rewritten(checkpoint_data.MEMORY_V3.encode(checkpoint), version, actions)
    return Rewritten(checkpoint_memory.encode(checkpoint, version), version, actions)


def _machine(members: dict[str, Any], facts: NodeFacts) -> MachineState:
    """Return a ledger with nothing charged: the machine's, else with the NUMA nodes and sizes of the file."""
    stored: MachineState = {}
    for node, record in object_map(members.get("machinestate")).items():
        lowered = {key.lower(): value for key, value in record.items()}
        tables = {name: _table(entry) for name, entry in object_map(lowered.get("memorymap")).items()}
        # Bounded: a huge id would make a mask of absurd size.
        if node.isdecimal() and len(node) < 5:
            stored[int(node)] = NUMANodeState(0, tables, [int(node)])
    if facts.machine is None:
        return empty_ledger(stored)
    known = {node.id for node in facts.machine.nodes}
    # Without a configuration the file alone says how much is reserved; for NUMA nodes that are gone it does not count.
    kept = facts.memory_reserved or reservations(
        MemoryCheckpoint("Static", {node: state for node, state in stored.items() if node in known})
    )
    return default_machine_state(facts.machine, kept)


def _table(entry: dict[str, Any]) -> MemoryTable:
    """Read total, system-reserved and allocatable bytes of a table; 0 for values that are no unsigned integers."""
    lowered = {key.lower(): value for key, value in entry.items()}
    names = ("total", "systemreserved", "allocatable")
    numbers = [value if isinstance(value := lowered.get(name), int) and 0 <= value <= U64 else 0 for name in names]
    return MemoryTable(numbers[0], numbers[1], numbers[2], 0, numbers[2])


def _take_memory(
    checkpoint: MemoryCheckpoint,
    ledger: MachineState,
    entries: dict[str, dict[str, Any]],
    pods: dict[str, dict[str, Any]],
    running: RunningPods | None,
    actions: list[str],
) -> None:
    taken: dict[str, dict[str, list[Block] | None] | None] = {}
    for pod, named in sorted(entries.items()):
        if running is not None and pod not in running:
            actions.append(f"entries.{pod}: does not run any more; dropped")
            continue
        # Keys in any case, as Go's JSON reader takes them.
        own = _blocks({k.lower(): v for k, v in pods.get(pod, {}).items()}.get("memoryblocks"))
        if own and not _charge_all(ledger, own, f"podEntries.{pod}", actions):
            continue
        if own:
            assert checkpoint.pod_entries is not None
            checkpoint.pod_entries[pod] = own
        for name, listed in sorted(named.items()):
            path = f"entries.{pod}.{name}"
            if running is not None and name not in running[pod]:
                actions.append(f"{path}: does not run any more; dropped")
                continue
            known = running[pod][name].memory if running is not None else None
            blocks = list(known) if known is not None else _blocks(listed)
            # Blocks of a pod as a whole are charged once, for the pod; its containers' blocks lie within them.
            if own or _charge_all(ledger, blocks, path, actions):
                containers = taken.setdefault(pod, {})
                assert containers is not None
                containers[name] = blocks
    checkpoint.entries = taken


def _blocks(value: Any) -> list[Block]:
    """Read the blocks of a list; those of a wrong form are left out."""
    blocks = []
    for item in value if isinstance(value, list) else []:
        lowered = {key.lower(): member for key, member in item.items()} if isinstance(item, dict) else {}
        nodes, name, size = lowered.get("numaaffinity"), lowered.get("type"), lowered.get("size")
        whole = isinstance(nodes, list) and all(isinstance(node, int) and 0 <= node < 1 << 12 for node in nodes)
        if whole and isinstance(name, str) and isinstance(size, int) and 0 <= size <= U64:
            blocks.append(Block(tuple(nodes or ()), name, size))
    return blocks


def _charge_all(ledger: MachineState, blocks: list[Block], path: str, actions: list[str]) -> bool:
    """Charge all blocks to the ledger if there is room for them; else charge none, note why, and return False."""
    needed: dict[tuple[tuple[int, ...], str], int] = {}
    for block in blocks:
        missing = find_misplaced(ledger, block) if block.numa_affinity else "no NUMA node"
        if missing:
            actions.append(f"{path}: uses {missing}, which the machine lacks; dropped")
            return False
        place = block.numa_affinity or (), block.type
        needed[place] = needed.get(place, 0) + block.size
    # Checked as a sum before any is charged: blocks that fit one by one may not fit together.
    for (nodes, name), size in needed.items():
        if sum((ledger[node].memory_map or {})[name].free for node in nodes) < size:
            actions.append(f"{path}: {bytes_text(size)} of {name} do not fit; dropped")
            return False
    for block in blocks:
        charge(ledger, bits_of(block.numa_affinity or ()), block.type, block.size)
    return True
