"""The documents of `podslice state`: files of every version in one form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from podslice.api.pod.spec import PodAllocation, ResourceList, ResourceRequirements
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import Provenance
from podslice.node.checkpoints.claims import ClaimCheckpoint, PreparedClaim
from podslice.node.checkpoints.content import AllocationCheckpoint, Content
from podslice.node.checkpoints.guard_state import GuardContent
from podslice.node.checkpoints.pod_status import StatusCheckpoint
from podslice.node.checkpoints.policy_state import MixedTexts, PodCPUTexts, PolicyContent
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.cpu.ended import IdleCPUs
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory.checkpoint import Block, MemoryCheckpoint, NUMANodeState
from podslice.state_files.idle import IdleState
from podslice.values.cpuset import format_bits

FileKind: TypeAlias = Literal["cpu", "memory", "device", "allocation", "policy", "guard", "dra", "pod-status"]
Level: TypeAlias = Literal["error", "warning", "note"]


class FileIdentity(msgspec.Struct, frozen=True):
    """A file and its format. `intact`: the checksum in the file is that of its content."""

    file: str
    version: str
    intact: bool
    checksum: int | None


class IdleOwner(msgspec.Struct, frozen=True):
    """CPUs of a pod (a UID) that is gone, or of an init container that has ended, and when they become free."""

    pod: str
    container: str
    cpus: str
    until: Literal["next-admission", "pod-end"]


class CPUStateFile(FileIdentity, frozen=True, rename="camel", kw_only=True, tag_field="kind", tag="cpu"):
    """cpu_manager_state. `entries` are CPU lists by pod UID and container; of version V1 by container id alone, and
    then under `containerIDs`. `idle` are CPUs that are held for pods and init containers that have ended;
    `nextSharedPool` is the shared pool after the next admission, empty where it stays as it is."""

    policy_name: str
    default_cpuset: str = msgspec.field(name="defaultCpuSet")
    entries: dict[str, dict[str, str]]
    idle: tuple[IdleOwner, ...] = ()
    container_ids: dict[str, str] = msgspec.field(name="containerIDs")
    pod_entries: dict[str, str]
    next_shared_pool: str = ""


class MemoryAmounts(msgspec.Struct, frozen=True):
    """Bytes of one kind of memory on one NUMA node."""

    total: int
    allocatable: int
    reserved: int
    free: int


class MemoryNode(msgspec.Struct, frozen=True):
    """A NUMA node in the Memory Manager's ledger. `cells`: the ids of the nodes in its group."""

    cells: tuple[int, ...]
    assignments: int
    memory: dict[str, MemoryAmounts]


class MemoryBlock(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes of one kind of memory on one or more NUMA nodes."""

    numa_affinity: tuple[int, ...]
    type: str
    size: int


class MemoryStateFile(FileIdentity, frozen=True, rename="camel", kw_only=True, tag_field="kind", tag="memory"):
    """memory_manager_state: NUMA nodes by id, blocks by pod UID and container."""

    policy_name: str
    nodes: dict[str, MemoryNode]
    entries: dict[str, dict[str, tuple[MemoryBlock, ...]]]
    pod_entries: dict[str, tuple[MemoryBlock, ...]]


class DeviceEntry(msgspec.Struct, frozen=True):
    """Devices of one resource that a container (`pod` is a UID) holds."""

    pod: str
    container: str
    resource: str
    devices: tuple[str, ...]


class DeviceStateFile(FileIdentity, frozen=True, kw_only=True, tag_field="kind", tag="device"):
    """kubelet_internal_checkpoint: the devices of each container; `registered` are the healthy devices by resource."""

    entries: tuple[DeviceEntry, ...]
    registered: dict[str, tuple[str, ...]]


class GrantedResources(msgspec.Struct, frozen=True):
    """Amounts as the kubelet granted them."""

    requests: dict[str, str]
    limits: dict[str, str]


class GrantedPod(msgspec.Struct, frozen=True):
    """Resources that a pod's containers were granted, and the pod itself where it has pod-level resources."""

    containers: dict[str, GrantedResources]
    pod: GrantedResources | None


class AllocationStateFile(FileIdentity, frozen=True, kw_only=True, tag_field="kind", tag="allocation"):
    """allocated_pods_state or actuated_pods_state: granted resources by pod UID."""

    entries: dict[str, GrantedPod]


class StatusStateFile(FileIdentity, frozen=True, kw_only=True, tag_field="kind", tag="pod-status"):
    """pod_status_manager_state of kubelets before 1.33: granted resources, and the resizes that wait, by pod UID."""

    entries: dict[str, GrantedPod]
    resizes: dict[str, str]


class ClaimStateFile(FileIdentity, frozen=True, kw_only=True, tag_field="kind", tag="dra"):
    """dra_manager_state: the claims that the kubelet has prepared."""

    claims: tuple[PreparedClaim, ...]


class CPUsUnderResize(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs and memory of a pod before or after a resize that is being written: CPU lists and memory blocks of its
    containers, and of the pod as a whole."""

    containers: dict[str, str]
    pod: str
    memory: dict[str, tuple[MemoryBlock, ...]] = {}
    pod_memory: tuple[MemoryBlock, ...] = ()


class ResizeUnderWay(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A resize that was being written when the process ended."""

    before: CPUsUnderResize
    after: CPUsUnderResize


class PolicyStateFile(FileIdentity, frozen=True, rename="camel", kw_only=True, tag_field="kind", tag="policy"):
    """podslice_policy_state. For containers that have more CPUs than were promised at their admission: `originals` are
    the promised CPUs, by pod UID and container, `podOriginals` those of whole pods; `order` lists the CPUs where they
    were not added in ascending order; `growth` are the CPUs beyond the promised ones, from cpu_manager_state where that
    file is given too. `classes` are the CPU classes under which containers got their CPUs, best first (an empty name
    stands for the pod as a whole; `NAME!`: no other class was accepted); `mixed` the containers that have shared CPUs
    besides exclusive ones; `plugins` the memos of plugins, by pod UID, container and plugin."""

    originals: dict[str, dict[str, str]]
    pod_originals: dict[str, str]
    growth: dict[str, dict[str, str]]
    order: dict[str, dict[str, tuple[int, ...]]]
    intents: dict[str, ResizeUnderWay]
    classes: dict[str, dict[str, tuple[str, ...]]] = {}
    mixed: dict[str, dict[str, MixedTexts]] = {}
    plugins: dict[str, dict[str, dict[str, str]]] = {}


class GuardedKernelFile(msgspec.Struct, frozen=True):
    """A file of the kernel: its content `before`, and the values that the `guard` may have written since."""

    path: str
    guard: str
    before: str
    written: tuple[str, ...]


class GuardStateFile(FileIdentity, frozen=True, rename="camel", kw_only=True, tag_field="kind", tag="guard"):
    """podslice_guard_state: files of the kernel that the agent's guards have changed since the boot with this id."""

    boot_id: str
    files: tuple[GuardedKernelFile, ...]


StateFile: TypeAlias = (
    CPUStateFile
    | MemoryStateFile
    | DeviceStateFile
    | AllocationStateFile
    | PolicyStateFile
    | GuardStateFile
    | ClaimStateFile
    | StatusStateFile
)


class StateFileList(msgspec.Struct, frozen=True):
    """The content of the files of a directory."""

    items: tuple[StateFile, ...]


class StateFinding(msgspec.Struct, frozen=True):
    """A remark on a file. `code` is stable, `path` names the member, `text` describes it."""

    level: Level
    code: str
    path: str
    text: str


class StateVerification(msgspec.Struct, frozen=True, rename="camel"):
    """The findings on a file, and what a kubelet does with it (`start`, empty where that is not known). `kind` to
    `format` are null for a file that cannot be read; `format` names the formats whose checksum fits."""

    file: str
    kind: FileKind | None
    version: str | None
    intact: bool | None
    checksum: int | None
    format: str | None
    findings: tuple[StateFinding, ...]
    start: str


class OtherFile(msgspec.Struct, frozen=True):
    """An entry of the folder that is not a state file and is not checked; `what` is empty where it is not known."""

    name: str
    what: str


class StateVerificationList(msgspec.Struct, frozen=True, rename="camel"):
    """A verification for each file, the other entries of the folder, what in the files contradicts the machine and the
    configuration, and what the answer rests on."""

    items: tuple[StateVerification, ...]
    not_checked: tuple[OtherFile, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    provenance: Provenance = Provenance()


class StateChange(msgspec.Struct, frozen=True):
    """A file rewritten as `version` with `content`; `backup` is the path of the old one if it was replaced."""

    file: str
    version: str
    changed: bool
    backup: str | None
    content: str


class StateConversion(StateChange, frozen=True, kw_only=True):
    """A converted file; `lost` is what its new format cannot hold."""

    lost: tuple[str, ...]


class StateConversionList(msgspec.Struct, frozen=True):
    """A conversion for each file."""

    items: tuple[StateConversion, ...]


class StateRepair(StateChange, frozen=True, kw_only=True):
    """A repaired file; `actions` are the changes."""

    actions: tuple[str, ...]


class StateRepairList(msgspec.Struct, frozen=True):
    """A repair for each file, and what it rests on."""

    items: tuple[StateRepair, ...]
    provenance: Provenance = Provenance()


class StateMigration(msgspec.Struct, frozen=True):
    """The files of a directory for a machine that changed over a reboot. `outcome`: `unchanged`, the files fit;
    `renumbered`, `files` replace those of the same name; `rebuilt`, they do not fit for the `reason` given, and the
    node starts without them. `changes` lists the new CPUs of each owner, `lost` the CPUs and memory that owners lose.
    `aside` are the names under which old files stay; `written`: the files were written."""

    directory: str
    outcome: Literal["unchanged", "renumbered", "rebuilt"]
    reason: str
    changes: tuple[str, ...]
    lost: tuple[str, ...]
    files: dict[str, str]
    aside: tuple[str, ...]
    written: bool


def state_file(
    path: str, content: Content, cpus: CPUCheckpoint | None = None, idle: IdleState | None = None
) -> StateFile:
    """Return the document of a file; it is the same for every version. `cpus` is the CPU Manager's file beside it, and
    `idle` what is idle in that."""
    identity = FileIdentity(path, content.version, content.intact, content.identity.stated)
    facts = msgspec.structs.asdict(identity)
    match content.checkpoint:
        case CPUCheckpoint() as cpu:
            return _cpu(facts, cpu, dict(cpu.entries_v1 or {}) if content.by_container_id else {}, idle)
        case MemoryCheckpoint() as memory:
            return _memory(facts, memory)
        case DeviceCheckpoint() as device:
            return _device(facts, device)
        case AllocationCheckpoint(pods):
            entries = {uid: _pod_grant(pod) for uid, pod in sorted(pods.items())}
            return AllocationStateFile(**facts, entries=entries)
        case StatusCheckpoint(pods, resizes):
            entries = {uid: _pod_grant(pod) for uid, pod in sorted(pods.items())}
            return StatusStateFile(**facts, entries=entries, resizes=dict(resizes))
        case ClaimCheckpoint(claims):
            return ClaimStateFile(**facts, claims=claims)
        case PolicyContent() as policy:
            return _policy(facts, policy, cpus)
        case GuardContent(_, boot, files):
            changed = (GuardedKernelFile(one.path, one.guard, one.before, one.written) for one in files)
            return GuardStateFile(**facts, boot_id=boot, files=tuple(changed))


def _cpu(
    facts: dict[str, Any], cpu: CPUCheckpoint, container_ids: dict[str, str], idle: IdleState | None
) -> CPUStateFile:
    return CPUStateFile(
        **facts,
        policy_name=cpu.policy_name,
        default_cpuset=cpu.default_cpuset,
        entries={pod: dict(named or {}) for pod, named in (cpu.entries or {}).items()},
        container_ids=container_ids,
        pod_entries={pod: format_bits(cpus) for pod, cpus in (cpu.pod_entries or {}).items()},
        idle=tuple(map(_idle_owner, () if idle is None else idle.idle)),
        next_shared_pool="" if idle is None or idle.now == idle.then else format_bits(idle.then),
    )


def _idle_owner(one: IdleCPUs) -> IdleOwner:
    return IdleOwner(one.pod, one.container, format_bits(one.cpus), "pod-end" if one.container else "next-admission")


def _device(facts: dict[str, Any], device: DeviceCheckpoint) -> DeviceStateFile:
    return DeviceStateFile(
        **facts,
        entries=tuple(
            DeviceEntry(entry.pod, entry.container, entry.resource, tuple(entry.device_ids()))
            for entry in device.entries or ()
        ),
        registered={name: tuple(ids or ()) for name, ids in (device.registered or {}).items()},
    )


def _policy(facts: dict[str, Any], policy: PolicyContent, cpus: CPUCheckpoint | None) -> PolicyStateFile:
    return PolicyStateFile(
        **facts,
        originals=policy.originals,
        pod_originals=policy.pod_originals,
        growth=policy.growth({} if cpus is None else cpus.entries or {}),
        order={uid: {name: tuple(cpus) for name, cpus in named.items()} for uid, named in policy.order.items()},
        intents={
            uid: ResizeUnderWay(_under_resize(intent.before), _under_resize(intent.after))
            for uid, intent in policy.intents.items()
        },
        classes={uid: {name: tuple(words) for name, words in own.items()} for uid, own in policy.classes.items()},
        plugins=policy.plugins,
        mixed=policy.mixed,
    )


def _under_resize(had: PodCPUTexts) -> CPUsUnderResize:
    memory = {name: _blocks(blocks) for name, blocks in had.memory.items()}
    return CPUsUnderResize(dict(had.containers), had.pod_cpus, memory, _blocks(had.pod_memory))


def _memory(facts: dict[str, Any], memory: MemoryCheckpoint) -> MemoryStateFile:
    return MemoryStateFile(
        **facts,
        policy_name=memory.policy_name,
        nodes={str(node): _node(state) for node, state in sorted((memory.machine_state or {}).items())},
        entries={
            pod: {name: _blocks(blocks) for name, blocks in (named or {}).items()}
            for pod, named in (memory.entries or {}).items()
        },
        pod_entries={pod: _blocks(blocks) for pod, blocks in (memory.pod_entries or {}).items()},
    )


def _node(state: NUMANodeState) -> MemoryNode:
    tables = {
        name: MemoryAmounts(table.total, table.allocatable, table.reserved, table.free)
        for name, table in sorted((state.memory_map or {}).items())
    }
    return MemoryNode(tuple(state.cells or ()), state.number_of_assignments, tables)


def _blocks(blocks: Iterable[Block] | None) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(tuple(block.numa_affinity or ()), block.type, block.size) for block in blocks or ())


def _pod_grant(pod: PodAllocation) -> GrantedPod:
    containers = {name: _grant(resources) for name, resources in sorted(pod.containers.items())}
    return GrantedPod(containers, None if pod.pod_level is None else _grant(pod.pod_level))


def _grant(resources: ResourceRequirements) -> GrantedResources:
    def texts(amounts: ResourceList | None) -> dict[str, str]:
        return {name: str(amount) for name, amount in sorted((amounts or {}).items())}

    return GrantedResources(texts(resources.requests), texts(resources.limits))
