"""Check a state file: checksum, structure, CPUs and memory with two owners or with none.

A kubelet checks less than this (two containers may share CPUs in its file unnoticed), so a file can be fine for it
and not fine here. Findings of level `error` mean that the file must not be trusted; `warning` that something is lost
or unprotected; `note` that something is unusual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podslice.api.pod.spec import PodAllocation, ResourceRequirements
from podslice.machine.model import Machine
from podslice.node.checkpoints.claims import ClaimCheckpoint, PreparedClaim
from podslice.node.checkpoints.content import AllocationCheckpoint, Content, read_content
from podslice.node.checkpoints.guard_state import GuardContent
from podslice.node.checkpoints.names import (
    ACTUATED_STATE_FILE,
    ALLOCATED_STATE_FILE,
    CLAIM_STATE_FILE,
    CPU_STATE_FILE,
    DEVICE_STATE_FILE,
    GUARD_STATE_FILE,
    MEMORY_STATE_FILE,
    POLICY_STATE_FILE,
    STATUS_STATE_FILE,
)
from podslice.node.checkpoints.pod_status import StatusCheckpoint
from podslice.node.checkpoints.policy_state import PolicyContent
from podslice.node.checkpoints.releases import FileKind
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory.checkpoint import MachineState, MemoryCheckpoint
from podslice.node.memory.ledger import find_misplaced, iter_blocks, rebuild_from_blocks
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.convert import same_cpus
from podslice.state_files.documents import Level, StateFinding
from podslice.state_files.guards import check_guards
from podslice.state_files.promises import check_promises, kubelet_promises
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits
from podslice.values.go.godump import is_data_file
from podslice.values.go.gojson import CheckpointError


def kind_of_name(name: str) -> FileKind | None:
    """Return the kind of the file with this name; None for other names."""
    kinds: dict[str, FileKind] = {
        CPU_STATE_FILE: "cpu",
        MEMORY_STATE_FILE: "memory",
        DEVICE_STATE_FILE: "device",
        ALLOCATED_STATE_FILE: "allocation",
        ACTUATED_STATE_FILE: "allocation",
        POLICY_STATE_FILE: "policy",
        GUARD_STATE_FILE: "guard",
        CLAIM_STATE_FILE: "dra",
        STATUS_STATE_FILE: "pod-status",
    }
    return kinds.get(name)


def verify(
    data: bytes, facts: NodeFacts, cpus: CPUCheckpoint | None = None
) -> tuple[Content | None, list[StateFinding]]:
    """Return a file's content (None where it cannot be read) and all findings; `cpus` is the CPU Manager's file beside
    it. Raises nothing."""
    try:
        content = read_content(data)
    except CheckpointError as error:
        return None, [StateFinding("error", "unreadable", "", str(error))]
    findings = [*_check_checksum(content), *_check_text(content, data)]
    match content.checkpoint:
        case CPUCheckpoint() as cpu:
            findings += _check_cpu(content, cpu, facts)
            findings += _check_container_ids(cpu, facts)
            promised, _ = kubelet_promises(content.unknown)
            findings += check_promises(PolicyContent(1, originals=promised), "", cpu)
        case MemoryCheckpoint() as memory:
            findings += _check_memory(memory, facts.machine)
        case DeviceCheckpoint() as device:
            findings += _check_devices(device)
        case AllocationCheckpoint(pods):
            findings += _check_allocations(pods, "entries")
        case StatusCheckpoint(pods):
            findings += _check_allocations(pods, "allocationEntries")
        case ClaimCheckpoint(claims):
            findings += _check_claims(claims)
        case PolicyContent() as policy:
            findings += check_promises(policy, content.unknown, cpus)
        case GuardContent() as guards:
            findings += check_guards(guards)
    return content, findings


def _check_checksum(content: Content) -> Iterator[StateFinding]:
    identity, checkpoint = content.identity, content.checkpoint
    pods = checkpoint.pod_entries if isinstance(checkpoint, CPUCheckpoint | MemoryCheckpoint) else None
    # A file with checksum 0 or that of an older version may carry pod entries: no checksum covers them, and a kubelet
    # adopts them all the same (cpu-topology 8.5).
    covering = ("data", "v3" if content.kind == "cpu" else "v2")
    if pods and identity.version not in covering and (content.intact or content.is_unchecked):
        yield StateFinding("warning", "uncovered", "podEntries", "are covered by no checksum")
    if content.intact:
        return
    if content.has_unknown_checksum:
        text = f"is {identity.stated}: it covers values of the kubelet that wrote it, and cannot be checked"
        yield StateFinding("note", "unchecked", "checksum", text)
        return
    if identity.stated is None:
        yield StateFinding(
            "warning", "no-checksum", "checksum", "the file has no checksum (kubelets before 1.11 wrote none)"
        )
    elif content.is_unchecked:
        yield StateFinding(
            "warning", "unchecked", "checksum", "is 0: kubelets accept older formats so without checking them"
        )
    else:
        needed = ", ".join(
            f"{value} ({version})" for version, value in identity.computed.items() if "raw" not in version
        )
        yield StateFinding(
            "error", "checksum", "checksum", f"is {identity.stated}, but this content has {needed or 'none'}"
        )


def _check_text(content: Content, data: bytes) -> Iterator[StateFinding]:
    """Report a file whose members for older kubelets are all that is left of it."""
    if content.identity.kind in ("cpu", "memory") and is_data_file(data):
        text = "is not text: a kubelet 1.37 reads nothing else, older ones lose what belongs to whole pods"
        yield StateFinding("warning", "no-data", "data", text)


# cpu_manager_state


class _Owner(msgspec.Struct, frozen=True):
    """An owner of CPUs: a container or, with an empty name, the pod as a whole."""

    pod: str
    container: str
    cpus: Bits

    @property
    def path(self) -> str:
        return f"entries.{self.pod}.{self.container}" if self.container else f"podEntries.{self.pod}"


def _check_cpu(content: Content, checkpoint: CPUCheckpoint, facts: NodeFacts) -> Iterator[StateFinding]:
    if checkpoint.policy_name not in ("none", "static"):
        yield StateFinding(
            "warning", "policy", "policyName", f"{checkpoint.policy_name!r} is not a policy of the kubelet"
        )
    broken: list[StateFinding] = []
    default = _parse_list(checkpoint.default_cpuset, "defaultCpuSet", broken)
    owners = _owners(checkpoint, broken)
    pods = [_Owner(pod, "", cpus) for pod, cpus in (checkpoint.pod_entries or {}).items()]
    yield from broken
    for owner in owners:
        if owner.cpus == 0:
            yield StateFinding("warning", "empty", owner.path, "holds no CPUs")
    if default is None:
        return
    yield from _check_overlaps(default, owners, pods)
    yield from _check_twins(checkpoint, owners)
    if checkpoint.policy_name == "static" and not broken:
        yield from _check_coverage(default, owners + pods, facts)


def _check_container_ids(checkpoint: CPUCheckpoint, facts: NodeFacts) -> Iterator[StateFinding]:
    if checkpoint.entries_v1 and not facts.containers:
        text = "are by container id: the runtime's containers say which pods own them (--containers FILE)"
        yield StateFinding("warning", "container-ids", "entries", text)


def _parse_list(text: str, path: str, broken: list[StateFinding]) -> Bits | None:
    try:
        return parse_bits(text)
    except CPUSetError as error:
        broken.append(StateFinding("error", "cpu-list", path, f"{text!r} is not a CPU list: {error}"))
        return None


def _owners(checkpoint: CPUCheckpoint, broken: list[StateFinding]) -> list[_Owner]:
    texts = [(container_id, "", text) for container_id, text in (checkpoint.entries_v1 or {}).items()]
    for pod, named in (checkpoint.entries or {}).items():
        texts += [(pod, name, text) for name, text in (named or {}).items()]
    owners = []
    for pod, name, text in texts:
        cpus = _parse_list(text, f"entries.{pod}.{name}".rstrip("."), broken)
        if cpus is not None:
            owners.append(_Owner(pod, name or pod, cpus))
    return owners


def _check_overlaps(default: Bits, owners: list[_Owner], pods: list[_Owner]) -> Iterator[StateFinding]:
    pod_cpus = {owner.pod: owner.cpus for owner in pods}
    held: list[_Owner] = []
    for owner in [*pods, *owners]:
        if owner.cpus & default:
            text = f"CPUs {format_bits(owner.cpus & default)} are in defaultCpuSet as well"
            yield StateFinding("error", "owned-and-shared", owner.path, text)
        for other in held:
            # Within a pod containers may have the same CPUs: of its shared pool, or one after the other.
            if other.pod != owner.pod and other.cpus & owner.cpus:
                text = f"CPUs {format_bits(owner.cpus & other.cpus)} belong to {other.path} as well"
                yield StateFinding("error", "owned-twice", owner.path, text)
        outside = owner.cpus & ~pod_cpus.get(owner.pod, owner.cpus)
        if outside:
            yield StateFinding("error", "outside-pod", owner.path, f"CPUs {format_bits(outside)} are not the pod's")
        held.append(owner)


def _check_twins(checkpoint: CPUCheckpoint, owners: list[_Owner]) -> Iterator[StateFinding]:
    """Note equal CPU sets of several containers, which a conversion from pod entries leaves and which look
    exclusive."""
    for pod in sorted({owner.pod for owner in owners if owner.container} - set(checkpoint.pod_entries or {})):
        twins = same_cpus({owner.container: owner.cpus for owner in owners if owner.pod == pod})
        if twins:
            text = f"{', '.join(twins)} have the same CPUs, and a kubelet takes them for exclusive"
            text += ": it lifts the CPU limits of containers that share their pod's pool"
            yield StateFinding("note", "shared-set", f"entries.{pod}", text)


def _check_coverage(default: Bits, owners: list[_Owner], facts: NodeFacts) -> Iterator[StateFinding]:
    if facts.machine is None or not (default or owners):
        return
    everything = facts.machine.cpus.bits
    if facts.strict:
        everything &= ~facts.reserved
    union = default
    for owner in owners:
        union |= owner.cpus
    if everything & ~union:
        text = f"CPUs {format_bits(everything & ~union)} of the machine are in no set: no container can use them"
        yield StateFinding("error", "leaked", "defaultCpuSet", text)
    offline = facts.machine.offline.bits & ~facts.machine.cpus.bits
    for owner in owners:
        if owner.cpus & offline:
            text = (
                f"CPUs {format_bits(owner.cpus & offline)} are offline: with hotplug in its policy podslice lets it run"
            )
            text += " on the rest; a kubelet does not start"
            yield StateFinding("warning", "degraded", owner.path, text)
    # Owners may keep offline CPUs, a warning above; in the default set they are an error below.
    union &= ~(offline & ~default)
    if union & ~everything:
        text = f"CPUs {format_bits(union & ~everything)} are not on the machine"
        yield StateFinding(
            "error", "unknown-cpus", "defaultCpuSet", f"{text}, or reserved strictly" if facts.strict else text
        )
    if facts.reserved & ~default and not facts.strict:
        text = f"lacks the reserved CPUs {format_bits(facts.reserved & ~default)}"
        yield StateFinding("error", "reserved", "defaultCpuSet", text)


# memory_manager_state


def _check_memory(checkpoint: MemoryCheckpoint, machine: Machine | None) -> Iterator[StateFinding]:
    if checkpoint.policy_name not in ("None", "Static"):
        yield StateFinding(
            "warning", "policy", "policyName", f"{checkpoint.policy_name!r} is not a policy of the kubelet"
        )
    ledger = checkpoint.machine_state or {}
    yield from _check_tables(ledger)
    wrong = False
    for pod, container, block in iter_blocks(checkpoint, pod_level=True):
        path = f"entries.{pod}.{container}" if container else f"podEntries.{pod}"
        missing = find_misplaced(ledger, block)
        if missing or not block.numa_affinity:
            nowhere = not any(
                block.type in (ledger[n].memory_map or {}) for n in block.numa_affinity or () if n in ledger
            )
            unusable = nowhere or any(node not in ledger for node in block.numa_affinity or ())
            wrong = wrong or unusable
            level: Level = "error" if unusable else "warning"
            yield StateFinding(level, "misplaced", path, f"uses {missing or 'no NUMA node'}, which machineState lacks")
    # Blocks on NUMA nodes that the ledger lacks cannot be charged again.
    if not wrong:
        yield from _check_balance(ledger, rebuild_from_blocks(ledger, checkpoint, pod_level=True))
    if machine is not None and ledger:
        yield from _check_machine(ledger, machine)


def _check_tables(ledger: MachineState) -> Iterator[StateFinding]:
    for node, state in sorted(ledger.items()):
        for name, table in sorted((state.memory_map or {}).items()):
            if table.reserved + table.free != table.allocatable:
                text = f"reserved {table.reserved} and free {table.free} are not allocatable {table.allocatable}"
                yield StateFinding("error", "table", f"machineState.{node}.memoryMap.{name}", text)


def _check_balance(ledger: MachineState, expected: MachineState) -> Iterator[StateFinding]:
    for node, state in sorted(ledger.items()):
        wanted = expected[node]
        if state.number_of_assignments != wanted.number_of_assignments:
            text = f"is {state.number_of_assignments}, but {wanted.number_of_assignments} assignments use the node"
            yield StateFinding("error", "assignments", f"machineState.{node}.numberOfAssignments", text)
        if sorted(state.cells or ()) != sorted(wanted.cells or ()):
            text = f"is {state.cells}, but the assignments make it {wanted.cells}"
            yield StateFinding("warning", "cells", f"machineState.{node}.cells", text)
    # By group: how a block is spread over its NUMA nodes depends on what was charged before it.
    for group in {tuple(sorted(state.cells or (node,))) for node, state in expected.items()}:
        for name in sorted({name for node in group if node in ledger for name in ledger[node].memory_map or {}}):
            have, want = _sum_reserved(ledger, group, name), _sum_reserved(expected, group, name)
            if have != want:
                path = f"machineState.{','.join(map(str, group))}.memoryMap.{name}"
                yield StateFinding("error", "reserved", path, f"reserves {have} bytes, but the assignments need {want}")


def _sum_reserved(ledger: MachineState, group: tuple[int, ...], name: str) -> int:
    tables = ((ledger[node].memory_map or {}).get(name) for node in group if node in ledger)
    return sum(table.reserved for table in tables if table is not None)


def _check_machine(ledger: MachineState, machine: Machine) -> Iterator[StateFinding]:
    nodes = {node.id: node for node in machine.nodes}
    if set(nodes) != set(ledger):
        text = f"has NUMA nodes {sorted(ledger)}, the machine has {sorted(nodes)}"
        yield StateFinding("error", "nodes", "machineState", text)
    for number in sorted(set(nodes) & set(ledger)):
        table = (ledger[number].memory_map or {}).get("memory")
        if table is not None and table.total != nodes[number].memory:
            drift = nodes[number].memory - table.total
            text = f"is {table.total}, the machine has {nodes[number].memory} ({drift:+d} bytes)"
            yield StateFinding("error", "drift", f"machineState.{number}.memoryMap.memory.total", text)


# kubelet_internal_checkpoint


def _check_devices(checkpoint: DeviceCheckpoint) -> Iterator[StateFinding]:
    held: dict[tuple[str, str], str] = {}
    registered = checkpoint.registered or {}
    for entry in checkpoint.entries or []:
        path = f"PodDeviceEntries.{entry.pod}.{entry.container}.{entry.resource}"
        for device in entry.device_ids():
            other = held.get((entry.resource, device))
            # Within a pod an init container's devices are used again by the containers after it.
            if other is not None and other != entry.pod:
                yield StateFinding("error", "owned-twice", path, f"device {device} belongs to pod {other} as well")
            held[entry.resource, device] = entry.pod
            if device not in (registered.get(entry.resource) or ()):
                yield StateFinding("warning", "unregistered", path, f"device {device} is not among the healthy ones")


# dra_manager_state


def _check_claims(claims: Iterable[PreparedClaim]) -> Iterator[StateFinding]:
    seen: set[str] = set()
    for claim in claims:
        path = f"ClaimInfoStateList.{claim.namespace}/{claim.name}"
        if not claim.uid or not claim.name:
            yield StateFinding("error", "unnamed", path, "a claim has no UID or no name")
        if claim.uid in seen:
            yield StateFinding("error", "claim-twice", path, f"the claim {claim.uid} is in the file more than once")
        seen.add(claim.uid)
        if not claim.pods:
            yield StateFinding("note", "unused-claim", path, "no pod uses the claim, which is still prepared")


# allocated_pods_state, actuated_pods_state, pod_status_manager_state


def _check_allocations(allocations: Mapping[str, PodAllocation], above: str) -> Iterator[StateFinding]:
    for uid, pod in allocations.items():
        path = f"{above}.{uid}"
        for name, resources in pod.containers.items():
            yield from _check_limits(resources, f"{path}.ContainerResources.{name}")
        if pod.pod_level is not None:
            yield from _check_limits(pod.pod_level, f"{path}.PodLevelResources")


def _check_limits(resources: ResourceRequirements, path: str) -> Iterator[StateFinding]:
    limits = resources.limits or {}
    for name, request in (resources.requests or {}).items():
        if request > limits.get(name, request):
            yield StateFinding(
                "error", "over-limit", path, f"requests {request} {name}, more than the limit {limits[name]}"
            )
