"""The Memory Manager's state as a value, and its restoration at a start (memory-device 1.4, 1.13, 1.14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.memory_demand import Amounts
from podslice.machine.drift import OFF
from podslice.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.machine.memory_accounts import charge, default_machine_state, rebook, release, settle
from podslice.machine.model import Machine
from podslice.node.checkpoints.restore import restore_memory_state, validate_memory_state
from podslice.node.cpu.state import PodMemory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.node.memory.hints import Groups, is_short, sums_wrap
from podslice.node.memory.reuse import Entries
from podslice.node.rules import MemoryRules
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.golang import U64
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.tables import ContainerIds, container_ids, drop, drop_first, drop_in, put, put_in

Blocks = tuple[Block, ...]


class MemoryState(msgspec.Struct, frozen=True):
    """All that a Memory Manager knows of its pods. A value: methods that change something return a new state.

    `machine_state` (the ledgers), `assignments` {pod: {container: blocks}} and `pod_assignments` {pod: blocks} are the
    content of the state file. `reusable`: bytes by pod and mask that upstream counts as left by init containers.
    `containers`: the runtime's container ids. `short`: bytes by NUMA node that pods hold and the node, whose memory
    went away, lacks.
    """

    machine_state: MachineState = {}
    assignments: dict[str, Entries] = {}
    pod_assignments: dict[str, Blocks] = {}
    reusable: dict[str, dict[Bits, Amounts]] = {}
    containers: ContainerIds = {}
    short: dict[int, int] = {}

    @classmethod
    def of(cls, checkpoint: MemoryCheckpoint, containers: ContainerIds) -> MemoryState:
        """Return the state in a file."""
        return cls(
            checkpoint.machine_state or {},
            {
                pod: {name: tuple(blocks or ()) for name, blocks in (named or {}).items()}
                for pod, named in (checkpoint.entries or {}).items()
            },
            {pod: tuple(blocks or ()) for pod, blocks in (checkpoint.pod_entries or {}).items()},
            containers=containers,
        )

    # Questions

    def entries(self, uid: str) -> Entries:
        """Return the blocks of a pod's containers by name."""
        return self.assignments.get(uid, {})

    def blocks(self, uid: str, container: str) -> Blocks:
        """Return the blocks a container holds, sorted by type."""
        return self.entries(uid).get(container, ())

    def charged_blocks(self, uid: str, containers: Iterable[str], *, pod_level: bool) -> Blocks:
        """Return the blocks the ledgers count for containers of a pod; a pod entry counts instead of its containers."""
        if pod_level and self.pod_assignments.get(uid):
            return self.pod_assignments[uid]
        return tuple(block for name in containers for block in self.blocks(uid, name))

    def ledger_without(self, blocks: Iterable[Block]) -> MachineState:
        """Return the ledgers without these blocks."""
        return free_blocks_in(self.machine_state, (tuple(blocks),), settled=True)

    def of_pod(self, uid: str) -> PodMemory:
        """Return one pod's part of the state."""
        return PodMemory(self.entries(uid), self.pod_assignments.get(uid, ()))

    # Changes

    def restore_pods(self, pods: Mapping[str, PodMemory], *, pod_level: bool) -> MemoryState:
        """Replace the holdings of pods by earlier ones. A pod for whose earlier holding there is no room keeps its
        present one."""
        left = dict(pods)
        while left:
            now = [block for uid in left for block in self.charged_blocks(uid, self.entries(uid), pod_level=pod_level)]
            ledger = self.ledger_without(now)
            alone = None
            for uid, blocks in {uid: had.charged_blocks(pod_level=pod_level) for uid, had in left.items()}.items():
                alone = uid if alone is None and _lacks_room(ledger, blocks) else alone
                ledger = ledger if alone else _charge_all(ledger, blocks)
            # All that are left fit together, although one may take what another gives up.
            if alone is None:
                return self._restore(left, ledger)
            del left[alone]
        return self

    def _restore(self, pods: Mapping[str, PodMemory], ledger: MachineState) -> MemoryState:
        assignments, wholes = self.assignments, self.pod_assignments
        for uid, had in pods.items():
            assignments = put(assignments, uid, had.containers) if had.containers else drop(assignments, uid)
            wholes = put(wholes, uid, had.whole) if had.whole else drop(wholes, uid)
        return replace(self, machine_state=ledger, assignments=assignments, pod_assignments=wholes)

    def resize(self, uid: str, name: str, blocks: Blocks) -> MemoryState:
        """Replace the blocks of a container; with no blocks it holds nothing."""
        ledger = _charge_all(self.ledger_without(self.blocks(uid, name)), blocks)
        entries = {**self.entries(uid), name: blocks} if blocks else drop(self.entries(uid), name)
        return replace(
            self,
            machine_state=ledger,
            assignments=put(self.assignments, uid, entries) if entries else drop(self.assignments, uid),
        )

    def resize_pod(self, uid: str, blocks: Blocks, entries: Entries) -> MemoryState:
        """Replace the blocks that a pod holds as a whole, and their division among its containers."""
        return replace(
            self,
            machine_state=_charge_all(self.ledger_without(self.pod_assignments[uid]), blocks),
            assignments=put(self.assignments, uid, entries),
            pod_assignments=put(self.pod_assignments, uid, blocks),
        )

    def with_machine(self, machine: MachineState) -> MemoryState:
        """Return a copy with these ledgers."""
        return replace(self, machine_state=machine)

    def assign(self, uid: str, entries: Entries, machine: MachineState) -> MemoryState:
        """Assign blocks, which are charged in `machine`, to a pod's containers."""
        return replace(self, machine_state=machine, assignments=put(self.assignments, uid, entries))

    def assign_pod(self, uid: str, blocks: Blocks, entries: Entries, machine: MachineState) -> MemoryState:
        """Assign blocks, which are charged in `machine`, to a pod as a whole, divided among its containers."""
        return replace(
            self,
            machine_state=machine,
            assignments=put(self.assignments, uid, {**self.entries(uid), **entries}),
            pod_assignments=put(self.pod_assignments, uid, blocks),
        )

    def unassign(self, uid: str, name: str) -> MemoryState:
        """Drop a container's entry; the ledgers do not change. The pod's entry goes with its last container."""
        left = drop_in(self.assignments, uid, name)
        return replace(self, assignments=left if left.get(uid) else drop(left, uid))

    def unassign_pod(self, uid: str) -> MemoryState:
        """Drop a pod's own entry; the ledgers do not change."""
        return replace(self, pod_assignments=drop(self.pod_assignments, uid))

    def free_blocks(self, blocks: Iterable[Block], *, settled: bool) -> MemoryState:
        """Free the memory of blocks; `settled`: the groups of the nodes become those that the remaining blocks alone
        would make."""
        return replace(self, machine_state=free_blocks_in(self.machine_state, (tuple(blocks),), settled=settled))

    def with_reusable(self, reusable: dict[str, dict[Bits, Amounts]]) -> MemoryState:
        """Return a copy in which init containers leave this memory."""
        return replace(self, reusable=reusable)

    def start(self, uid: str, name: str, container_id: str) -> MemoryState:
        """Record a container of the runtime."""
        return replace(self, containers=put_in(self.containers, uid, container_id, name))

    def stop(self, uid: str, name: str) -> MemoryState:
        """Forget the oldest runtime id of a container."""
        return replace(self, containers=drop_first(self.containers, uid, name))

    def forget(self, uid: str, *, pod_level: bool, settled: bool) -> MemoryState:
        """Drop a pod with all its containers and free their memory; with `pod_level` instead what the pod holds as a
        whole, if it does. `settled` as in `free_blocks`."""
        own = self.pod_assignments.get(uid) if pod_level else None
        held = self.assignments.get(uid, {}).values() if own is None else (own,)
        return MemoryState(
            free_blocks_in(self.machine_state, held, settled=settled) if held else self.machine_state,
            drop(self.assignments, uid),
            self.pod_assignments if own is None else drop(self.pod_assignments, uid),
            self.reusable,
            drop(self.containers, uid),
            self.short,
        )

    def relocate(
        self, uid: str, containers: Iterable[str], nodes: Bits, *, pod_level: bool, settled: bool
    ) -> MemoryState:
        """Charge the memory of containers of a pod to other NUMA nodes, the pod's as a whole if it has pod-level
        memory.

        No upstream kubelet does this; the caller has checked that it fits there (advise.defrag).
        """
        containers = tuple(containers)
        machine = self.machine_state.copy()
        rebook(machine, self.charged_blocks(uid, containers, pod_level=pod_level), nodes)
        if settled:
            settle(machine)
        own = self.assignments.get(uid)
        pods = self.pod_assignments
        moved = {name: _on(blocks, nodes) if name in containers else blocks for name, blocks in (own or {}).items()}
        return MemoryState(
            machine,
            self.assignments if own is None else put(self.assignments, uid, moved),
            put(pods, uid, _on(pods[uid], nodes)) if uid in pods else pods,
            drop(self.reusable, uid),
            self.containers,
            self.short,
        )


def free_blocks_in(machine: MachineState, held: Iterable[Blocks], *, settled: bool) -> MachineState:
    """Return the ledgers after each holder in turn has freed its blocks; `settled` as in `MemoryState.free_blocks`."""
    machine = machine.copy()
    for blocks in held:
        if release(machine, blocks) and settled:
            settle(machine)
    return machine


def _lacks_room(ledger: MachineState, blocks: Blocks) -> bool:
    """Whether nodes of a block are missing, in use in another group, or too full."""
    wanted: dict[tuple[Bits, str], int] = {}
    for block in blocks:
        key = bits_of(block.numa_affinity or ()), block.type
        wanted[key] = wanted.get(key, 0) + block.size
    groups, nodes = Groups.of(ledger), bits_of(ledger)
    return any(
        mask & ~nodes
        or groups.is_violated_by(mask)
        or groups.is_split_by(mask)
        or is_short(ledger, mask, {name: size}, crash=False)
        for (mask, name), size in wanted.items()
    )


def _charge_all(ledger: MachineState, blocks: Blocks) -> MachineState:
    """Charge blocks to ledgers, which are changed in place and returned."""
    for block in blocks:
        charge(ledger, bits_of(block.numa_affinity or ()), block.type, block.size)
    settle(ledger)
    return ledger


def _on(blocks: Iterable[Block], nodes: Bits) -> Blocks:
    affinity = tuple(iter_bits(nodes))
    return tuple(Block(affinity, block.type, block.size) for block in blocks)


# The start


class Restored(NamedTuple):
    """The state a manager starts with, the rules with what the state says about the machine, and whether the state is
    that of the file."""

    state: MemoryState
    rules: MemoryRules
    as_filed: bool


def restore_state(
    rules: MemoryRules,
    data: bytes | None,
    containers: Mapping[str, tuple[str, str]],
    path: str,
    quirks: Quirks,
    release: Release,
    *,
    tracks: bool = False,
) -> Restored:
    """Restore or create the state, and check it against the machine (memory-device 1.13.2, 1.14); with `tracks` the
    ledgers are rebuilt where the machine's memory changed. Raises `StartError`."""
    checkpoint = MemoryCheckpoint(policy_name=rules.policy)
    if data is not None:
        checkpoint = restore_memory_state(
            data,
            policy_name=rules.policy,
            pod_level=rules.pod_level,
            path=path,
            trust_zero=quirks.zero_checksum_is_trusted,
            formats=release.state_files,
        )
    before = dict(checkpoint.machine_state or {})
    if rules.static and tracks and before:
        return _rebuild_state(rules, checkpoint, containers)
    if rules.static:
        validate_memory_state(
            checkpoint,
            default_machine_state(rules.machine, rules.reserved),
            pod_level=rules.pod_level,
            tolerance=OFF if quirks.memory_drift_blocks_start else rules.tolerance,
            tables_may_miss=not rules.crashes,
            node_by_node=not release.memory_groups_are_compared,
        )
        # Files of upstream may have other amounts on the single nodes of a group.
        if rules.settles:
            settle(checkpoint.machine_state or {})
    state = MemoryState.of(checkpoint, container_ids(containers))
    as_filed = data is not None and before == state.machine_state
    if not quirks.refused_pods_leave_state:
        # Left by an interrupted admission; the ledgers do not count them (memory-device 4.9).
        for uid in [uid for uid in state.pod_assignments if not state.assignments.get(uid)]:
            state, as_filed = state.unassign_pod(uid), False
    if rules.static:
        rules = replace(rules, sums_wrap=sums_wrap(state.machine_state))
    return Restored(state, rules, as_filed)


def _rebuild_state(
    rules: MemoryRules, checkpoint: MemoryCheckpoint, containers: Mapping[str, tuple[str, str]]
) -> Restored:
    """Return the state of a file with ledgers rebuilt for the present machine."""
    state = MemoryState.of(checkpoint, container_ids(containers))
    for uid in [uid for uid in state.pod_assignments if not state.assignments.get(uid)]:
        state = state.unassign_pod(uid)
    now = rebuild_ledger(rules.machine, rules.reserved, state, pod_level=rules.pod_level)
    wraps = sums_wrap(now.machine_state)
    return Restored(now, replace(rules, sums_wrap=wraps), now.machine_state == checkpoint.machine_state)


# A machine whose memory changed: all blocks are charged to new ledgers, as a kubelet would at its next start. Blocks
# that no longer fit make their NUMA nodes short: nothing new goes there until pods have left.


def rebuild_ledger(
    host: Machine, reserved: Mapping[int, Mapping[str, int]], state: MemoryState, *, pod_level: bool
) -> MemoryState:
    """Return the state with the ledgers of this machine, of which bytes are reserved by NUMA node and resource."""
    machine = {node: _drop_negative(ledger) for node, ledger in default_machine_state(host, reserved).items()}
    for block in _charged_blocks(state, pod_level=pod_level):
        charge(machine, bits_of(block.numa_affinity or ()), block.type, block.size)
    # `settle` makes the ledgers independent of the order in which blocks were charged.
    settle(machine)
    return replace(state, machine_state=machine, short=_short(machine, state, pod_level=pod_level))


def fits(host: Machine, reserved: Mapping[int, Mapping[str, int]], state: MemoryState) -> bool:
    """Whether the ledgers are those of this machine already, and nothing is short."""
    machine = {node: _drop_negative(ledger) for node, ledger in default_machine_state(host, reserved).items()}
    return not state.short and _sizes(machine) == _sizes(state.machine_state)


def _drop_negative(ledger: NUMANodeState) -> NUMANodeState:
    """Return the ledger without amounts below zero, which wrap at 64 bits: more is reserved than the node has."""
    tables = {name: table if table.allocatable <= U64 >> 1 else _empty_table(table) for name, table in _tables(ledger)}
    return replace(ledger, memory_map=tables)


def _empty_table(table: MemoryTable) -> MemoryTable:
    return MemoryTable(table.total, table.system_reserved)


def _tables(ledger: NUMANodeState) -> list[tuple[str, MemoryTable]]:
    return list((ledger.memory_map or {}).items())


def _sizes(machine: MachineState) -> dict[int, dict[str, tuple[int, int, int]]]:
    return {
        node: {name: (table.total, table.system_reserved, table.allocatable) for name, table in _tables(ledger)}
        for node, ledger in machine.items()
    }


def _charged_blocks(state: MemoryState, *, pod_level: bool) -> Iterator[Block]:
    for uid, named in state.assignments.items():
        yield from state.charged_blocks(uid, named, pod_level=pod_level)


def _short(machine: MachineState, state: MemoryState, *, pod_level: bool) -> dict[int, int]:
    """Return the bytes that blocks hold and the ledgers lack, under the lowest NUMA node of each block."""
    short: dict[int, int] = {}
    wanted: dict[tuple[tuple[int, ...], str], int] = {}
    for block in _charged_blocks(state, pod_level=pod_level):
        nodes = tuple(sorted(node for node in block.numa_affinity or () if node in machine))
        if nodes:
            wanted[nodes, block.type] = wanted.get((nodes, block.type), 0) + block.size
    reserved = {(node, name): table.reserved for node, ledger in machine.items() for name, table in _tables(ledger)}
    for (nodes, name), size in sorted(wanted.items()):
        for node in nodes:
            booked = min(size, reserved.get((node, name), 0))
            reserved[node, name] = reserved.get((node, name), 0) - booked
            size -= booked
        if size:
            short[nodes[0]] = short.get(nodes[0], 0) + size
    return short
