"""Restore the managers' state files as a starting kubelet does: read them, and check them against the machine
(cpu-topology 8.5, 8.6; memory-device 1.13.2, 1.14)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from podslice.machine.drift import OFF, DriftTolerance, is_drift
from podslice.machine.memory import NO_TABLE, Block, MachineState, MemoryTable, NUMANodeState
from podslice.machine.memory_accounts import charge
from podslice.machine.model import CPUTopology
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.cpu.state import CPUState
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.node.memory.ledger import iter_blocks
from podslice.values.cpuset import Bits, CPUSetError, bits_of, format_bits, parse_bits
from podslice.values.errors import StartError, StartKind, UpstreamDefectError
from podslice.values.go.godump import is_data_file
from podslice.values.go.gojson import CheckpointError
from podslice.values.golang import U64, quote
from podslice.values.releases.release import StateFiles

_CPU_STAGE, _MEMORY_STAGE = "startCPUManager", "startMemoryManager"
REMEDY = "undo the change of machine, policy or reservation, or repair the file: podslice state repair"
_UNUSABLE_CPU_STATE = StartKind(
    "unusable-state",
    "start cpu manager error: could not restore state from checkpoint: {problem}, please drain this node and delete "
    "the CPU manager checkpoint file {path} before restarting {restarted}",
    REMEDY,
)
_INVALID_CPU_STATE = StartKind("invalid-state", "start cpu manager error: {problem}", REMEDY)
_UNUSABLE_MEMORY_STATE = StartKind(
    "unusable-state",
    "start memory manager error: could not restore state from checkpoint: {problem}, please drain this node and "
    "delete the memory manager checkpoint file {path} before restarting {restarted}",
    REMEDY,
)
_INVALID_MEMORY_STATE = StartKind("invalid-state", "start memory manager error: {problem}", REMEDY)


def restore_cpu_state(
    data: bytes | None,
    *,
    policy_name: str,
    pod_level: bool,
    containers: Mapping[str, tuple[str, str]],
    path: str,
    trust_zero: bool = True,
    formats: StateFiles = "v3",
) -> CPUState:
    """Return the state of a state file, or a new one without a file (cpu-topology 8.5).

    `containers` maps the runtime's container ids to (pod UID, name), for V1 files. Without `trust_zero` a checksum of
    0, which upstream accepts in older formats, is refused, and V4 is read as V4. `formats`: those that the release
    reads (`Release.state_files`). Raises `StartError`.
    """
    if data is None:
        return CPUState()
    try:
        if formats == "v2":
            older = checkpoint_cpu.load_oldest_first(data, containers, trust_zero=trust_zero)
            return adopt_cpu(older, policy_name)
        if (formats == "v4" or not trust_zero) and is_data_file(data):
            return adopt_cpu(checkpoint_data.CPU_V4.load(data, pod_level=pod_level), policy_name)
        checkpoint = checkpoint_cpu.load(data, pod_level=pod_level, containers=containers, trust_zero=trust_zero)
        return adopt_cpu(checkpoint, policy_name)
    except CheckpointError as error:
        raise unusable_cpu(error, path) from None


def unusable_cpu(error: CheckpointError, path: str) -> StartError:
    """Return the error of a kubelet that cannot use the file at `path`."""
    return StartError(_CPU_STAGE, _UNUSABLE_CPU_STATE, problem=str(error), path=quote(path), restarted="Kubelet")


def adopt_cpu(checkpoint: CPUCheckpoint, policy_name: str) -> CPUState:
    """Return the state of a checkpoint. Raises `CheckpointError` for another policy's and for bad CPU lists."""
    if checkpoint.policy_name != policy_name:
        raise CheckpointError(
            f"configured policy {quote(policy_name)} differs from state checkpoint policy "
            f"{quote(checkpoint.policy_name)}"
        )
    try:
        default = parse_bits(checkpoint.default_cpuset)
    except CPUSetError as error:
        raise CheckpointError(f"could not parse default cpu set {quote(checkpoint.default_cpuset)}: {error}") from None
    assignments = {
        pod: {name: _parse_assignment(pod, name, text) for name, text in named.items()}
        for pod, named in (checkpoint.entries or {}).items()
        if named
    }
    return CPUState(default, assignments, dict(checkpoint.pod_entries or {}))


def _parse_assignment(pod: str, container: str, text: str) -> Bits:
    """Parse the CPU list of a container. Raises `CheckpointError` with upstream's text."""
    try:
        return parse_bits(text)
    except CPUSetError as error:
        raise CheckpointError(
            f"could not parse cpuset {quote(text)} for container {quote(container)} in pod {quote(pod)}: {error}"
        ) from None


def validate_cpu_state(
    state: CPUState, topology: CPUTopology, *, reserved: Bits, strict: bool, pod_level: bool, offline: Bits = 0
) -> CPUState:
    """Return a restored state after checking it against the machine; an empty default set is initialised (cpu-topology
    8.6). It may name CPUs that are `offline`. Raises `StartError`."""
    everything = topology.all_cpus & ~reserved if strict else topology.all_cpus
    default = state.default
    # As upstream, pod CPUs do not count here: with them alone they stay, and overlap the new default set (cpu-topology
    # 11.16).
    if not default:
        if state.assignments:
            raise _invalid_cpu("default cpuset cannot be empty")
        return state.with_default(everything)
    # A file fails in both directions when `strict-cpu-reservation` is switched (cpu-topology 8.6, step 2).
    if strict:
        if reserved & default:
            raise _invalid_cpu(
                f"some of strictly reserved cpus: {_q(reserved & default)} are present in defaultCpuSet: {_q(default)}"
            )
    elif reserved & ~default:
        raise _invalid_cpu(f"not all reserved cpus: {_q(reserved)} are present in defaultCpuSet: {_q(default)}")
    union = default
    for pod, containers in state.assignments.items():
        for name, cpus in containers.items():
            if cpus & default:
                raise _invalid_cpu(
                    f"pod: {pod}, container: {name} cpuset: {_q(cpus)} overlaps with default cpuset {_q(default)}"
                )
            union |= cpus
    if pod_level:
        for cpus in state.pod_cpus.values():
            union |= cpus
    if union & ~offline != everything:
        raise _invalid_cpu(
            f"current set of available CPUs {_q(everything)} doesn't match with CPUs in state {_q(union)}"
        )
    return state


def _invalid_cpu(problem: str) -> StartError:
    return StartError(_CPU_STAGE, _INVALID_CPU_STATE, problem=problem)


def _q(cpus: Bits) -> str:
    return f'"{format_bits(cpus)}"'


def restore_memory_state(
    data: bytes,
    *,
    policy_name: str,
    pod_level: bool,
    path: str,
    trust_zero: bool = True,
    formats: StateFiles = "v3",
) -> MemoryCheckpoint:
    """Return the content of a state file. Without `trust_zero` a checksum of 0, which upstream accepts in V1 from 1.36
    on, is refused, and V3 is read as V3. `formats` as in `restore_cpu_state`. Raises `StartError`."""
    try:
        if formats == "v2":
            return adopt_memory(checkpoint_memory.load_only_version(data), policy_name)
        if (formats == "v4" or not trust_zero) and is_data_file(data):
            return adopt_memory(checkpoint_data.MEMORY_V3.load(data, pod_level=pod_level), policy_name)
        return adopt_memory(checkpoint_memory.load(data, pod_level=pod_level, trust_zero=trust_zero), policy_name)
    except CheckpointError as error:
        raise unusable_memory(error, path) from None


def adopt_memory(checkpoint: MemoryCheckpoint, policy_name: str) -> MemoryCheckpoint:
    """Return the checkpoint if it is this policy's. Raises `CheckpointError`."""
    if checkpoint.policy_name != policy_name:
        raise CheckpointError(
            f"[memorymanager] configured policy {quote(policy_name)} differs from state checkpoint policy "
            f"{quote(checkpoint.policy_name)}"
        )
    return checkpoint


def unusable_memory(error: CheckpointError, path: str) -> StartError:
    """Return the error of a kubelet that cannot use the file at `path`."""
    return StartError(_MEMORY_STAGE, _UNUSABLE_MEMORY_STATE, problem=str(error), path=quote(path), restarted="Kubelet")


def validate_memory_state(
    checkpoint: MemoryCheckpoint,
    default: MachineState,
    *,
    pod_level: bool,
    tolerance: DriftTolerance = OFF,
    tables_may_miss: bool = False,
    node_by_node: bool = False,
) -> None:
    """Compare a restored state with the machine plus its assignments; `default` is consumed (memory-device 1.14).

    NUMA nodes whose memory size changed since then within the `tolerance` get the new size, as long as the holdings
    still fit (KEP-6232). `tables_may_miss`: a block may span nodes without the resource, as long as one has it or the
    block is empty; otherwise a group with such a node raises `UpstreamDefectError`, as the comparison crashes.
    `node_by_node`: free and reserved memory must agree on every node of a group, as in 1.31. Raises `StartError`.
    """
    if tolerance.kind != "off":
        _adopt_drift(checkpoint.machine_state or {}, default, tolerance)
    stored = checkpoint.machine_state or {}
    if not stored:
        if checkpoint.entries:
            raise _invalid_memory("[memorymanager] machine state can not be empty when it has memory assignments")
        checkpoint.machine_state = default
        return
    for pod, container, block in iter_blocks(checkpoint, pod_level=pod_level):
        _check_block(default, pod, container, block, tables_may_miss=tables_may_miss)
        charge(default, bits_of(block.numa_affinity or ()), block.type, block.size)
    same = set(stored) == set(default) and all(
        _equal(stored, default, node, tables_may_miss=tables_may_miss, node_by_node=node_by_node) for node in stored
    )
    if not same:
        raise _invalid_memory("[memorymanager] the expected machine state is different from the real one")


def _adopt_drift(stored: MachineState, expected: MachineState, tolerance: DriftTolerance) -> None:
    """Adjust the stored `memory` tables to the machine where they differ by no more than a reboot explains."""
    legacy = tolerance.kind == "legacy"
    if not legacy and not is_drift(_totals(stored), _totals(expected), tolerance):
        return
    for node, state in list(stored.items()):
        mine = (state.memory_map or {}).get("memory")
        theirs = (expected[node].memory_map or {}).get("memory") if node in expected else None
        if mine is None or theirs is None or mine.system_reserved != theirs.system_reserved:
            continue
        drift = theirs.total - mine.total
        same_rest = theirs.allocatable - mine.allocatable == drift
        small = not legacy or is_drift({node: mine.total}, {node: theirs.total}, tolerance)
        if drift and same_rest and small and mine.free + drift >= 0:
            now = MemoryTable(
                mine.total + drift, mine.system_reserved, mine.allocatable + drift, mine.reserved, mine.free + drift
            )
            stored[node] = replace(state, memory_map={**(state.memory_map or {}), "memory": now})


def _totals(machine: MachineState) -> dict[int, int]:
    return {node: (state.memory_map or {}).get("memory", NO_TABLE).total for node, state in machine.items()}


def _check_block(machine: MachineState, pod: str, container: str, block: Block, *, tables_may_miss: bool) -> None:
    """Check that the machine has the NUMA nodes and resources of a block. Raises `StartError` with upstream's text."""
    who = f"[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses"
    known = tables_may_miss and not block.size
    for node in block.numa_affinity or ():
        if node not in machine:
            raise _invalid_memory(f"{who} the NUMA that does not exist")
        here = block.type in (machine[node].memory_map or {})
        known = known or here
        if not (here or tables_may_miss):
            raise _invalid_memory(f"{who} memory resource that does not exist")
    if block.numa_affinity and not known:
        raise _invalid_memory(f"{who} memory resource that does not exist")


def _equal(
    stored: MachineState, expected: MachineState, node: int, *, tables_may_miss: bool, node_by_node: bool
) -> bool:
    """Whether a NUMA node's stored record equals the expected one (memory-device 1.14)."""
    mine, theirs = stored[node], expected[node]
    if mine.number_of_assignments != theirs.number_of_assignments:
        return False
    if sorted(mine.cells or ()) != sorted(theirs.cells or ()):
        return False
    tables, others = mine.memory_map or {}, theirs.memory_map or {}
    if set(tables) != set(others):
        return False
    for name, table in tables.items():
        other = others[name]
        facts = (table.total, table.system_reserved, table.allocatable)
        if facts != (other.total, other.system_reserved, other.allocatable):
            return False
        if node_by_node:
            if table != other:
                return False
            continue
        if not tables_may_miss:
            _check_group(stored, mine, name)
        # Only sums over a group must agree; single nodes of it may differ (memory-device 1.14).
        for field in ("free", "reserved"):
            if _group_sum(stored, mine, name, field) != _group_sum(expected, mine, name, field):
                return False
    return True


def _check_group(machine: MachineState, state: NUMANodeState, name: str) -> None:
    for cell in state.cells or ():
        if cell not in machine or name not in (machine[cell].memory_map or {}):
            raise UpstreamDefectError("missing_hugepages_crash", f"NUMA node {cell} has no {name}")


def _group_sum(machine: MachineState, state: NUMANodeState, name: str, field: str) -> int:
    """Return the sum of a field over the nodes of a group; wraps at 64 bits."""
    total = sum(
        int(getattr((machine[cell].memory_map or {})[name], field))
        for cell in state.cells or ()
        if cell in machine and name in (machine[cell].memory_map or {})
    )
    return total & U64


def _invalid_memory(problem: str) -> StartError:
    return StartError(_MEMORY_STAGE, _INVALID_MEMORY_STATE, problem=problem)
