"""Rewrite a state file for another kubelet, without draining the node (cpu-topology 8.3, 8.7; memory-device
1.13).

Older formats know no pods with pod-level resources. What they cannot hold is listed in the remarks. What is left is
made consistent for the older kubelet: CPUs that no container would own go back to the node's shared pool, and memory is
charged once. No running container is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple

from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints.claims import ClaimCheckpoint
from podslice.node.checkpoints.content import AllocationCheckpoint, Content
from podslice.node.checkpoints.guard_state import GuardContent
from podslice.node.checkpoints.pod_status import StatusCheckpoint
from podslice.node.checkpoints.policy_state import PolicyContent
from podslice.node.checkpoints.releases import Release
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import Block, MemoryCheckpoint
from podslice.node.memory.ledger import rebuild_from_blocks
from podslice.values.cpuset import CPUSetError, format_bits, parse_bits
from podslice.values.errors import InputError
from podslice.values.quantity import bytes_text

Containers = Mapping[str, tuple[str, str]]
"""The runtime's container ids, each with (pod UID, container name)."""


class Rewritten(NamedTuple):
    """A rewritten file. `remarks` are sentences: what the new format cannot hold, or what a repair did."""

    data: bytes
    version: str
    remarks: list[str]


def rewrite(kind: str, data: bytes, version: str, containers: Containers) -> bytes:
    """Re-encode a file of a kind (`cpu`, `memory`) as `version`, without repairing it. Drops what that version cannot
    hold.

    V1 CPU entries are named by container id; a container without one is named after pod, container and restart 0.
    Raises `CheckpointError`.
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


def convert(content: Content, target: Release, containers: Containers) -> Rewritten:
    """Convert a file that is intact, or that kubelets accept unchecked, to the version that `target` writes.
    `containers` is needed only from or to CPU V1. Raises `InputError`."""
    checkpoint = content.checkpoint
    if isinstance(checkpoint, ClaimCheckpoint | StatusCheckpoint):
        what = "claims" if content.kind == "dra" else "granted resources of a kubelet before 1.33"
        raise InputError(f"holds {what}, which are not converted", remedy="leave the file as it is")
    if not (content.intact or content.is_unchecked):
        raise InputError("the checksum does not fit the content", remedy="run podslice state verify, then repair")
    if isinstance(checkpoint, AllocationCheckpoint | PolicyContent | GuardContent):
        what = {"allocation": "granted resources", "policy": "promises"}.get(content.kind, "files of the kernel")
        raise InputError(f"holds {what}, which have one format only", remedy="leave the file as it is")
    version = target.writes(content.kind)
    if isinstance(checkpoint, CPUCheckpoint):
        return _add_remark(content, _convert_cpu(content, checkpoint, target, version, containers))
    if isinstance(checkpoint, MemoryCheckpoint):
        return _add_remark(content, _convert_memory(content, checkpoint, target, version))
    if version == "v1" or content.version == "v1":
        raise InputError("device files from before 1.20 cannot be converted", remedy="let the kubelet write a new one")
    return Rewritten(checkpoint_devices.encode(checkpoint.entries, checkpoint.registered), version, [])


def _add_remark(content: Content, rewritten: Rewritten) -> Rewritten:
    """Return the file with a remark where nothing vouches for what was converted."""
    if not content.is_unchecked:
        return rewritten
    remark = "the checksum was 0, so nothing has checked the content; the new file has a checksum"
    return rewritten._replace(remarks=[remark, *rewritten.remarks])


# cpu_manager_state


def _convert_cpu(
    content: Content, source: CPUCheckpoint, target: Release, version: str, containers: Containers
) -> Rewritten:
    checkpoint = _entries_by_pod(source, containers) if content.by_container_id else source
    # V4 keeps members that it does not know (KEP-5554's `originals` among them); older versions have no place for them.
    lost = [] if version == "v4" else _describe_lost_members(content)
    if not target.pod_level:
        checkpoint, more = _drop_pod_cpus(checkpoint)
        lost += more
    if version == "v4":
        return Rewritten(checkpoint_data.CPU_V4.encode(checkpoint, content.unknown), version, lost)
    if version == "v1":
        checkpoint.entries_v1 = _entries_by_id(checkpoint, containers)
    return Rewritten(checkpoint_cpu.encode(checkpoint, version), version, lost)


def _describe_lost_members(content: Content) -> list[str]:
    """Return a remark on members of V4 that older versions do not have, if there are any."""
    return [f"members of the newer format that the older one does not have: {content.unknown[1:]}"] * bool(
        content.unknown
    )


def _entries_by_pod(checkpoint: CPUCheckpoint, containers: Containers) -> CPUCheckpoint:
    """Migrate V1 entries, by container id, to entries by pod and name. Raises `InputError` for unknown ids."""
    missing = sorted(set(checkpoint.entries_v1 or {}) - set(containers))
    if missing:
        raise InputError(
            f"the file names container ids, and these are not known: {', '.join(missing)}",
            remedy="give their pod UIDs and names with --containers",
        )
    return checkpoint_cpu.migrate_v1(checkpoint, containers)


def _entries_by_id(checkpoint: CPUCheckpoint, containers: Containers) -> dict[str, str]:
    """Return the entries by container id, as V1 has them. Raises `InputError` for containers without a known id."""
    ids = {reference: container_id for container_id, reference in containers.items()}
    entries = {}
    for pod, named in (checkpoint.entries or {}).items():
        for name, cpus in (named or {}).items():
            if (pod, name) not in ids:
                raise InputError(
                    f"the older format names container ids, and that of {name} in pod {pod} is not known",
                    remedy="give it with --containers",
                )
            entries[ids[pod, name]] = cpus
    return entries


def _drop_pod_cpus(source: CPUCheckpoint) -> tuple[CPUCheckpoint, list[str]]:
    """Return a copy without pod entries, and remarks; CPUs of a pod that none of its containers uses go to the default
    set."""
    lost = []
    default = _parse(source.default_cpuset, "defaultCpuSet")
    for pod, pod_cpus in sorted((source.pod_entries or {}).items()):
        named = {
            name: _parse(text, f"entries.{pod}.{name}")
            for name, text in ((source.entries or {}).get(pod) or {}).items()
        }
        # What containers do not use was the pod's shared pool; in the older format nothing says whose it is.
        used = reduce(or_, named.values(), 0)
        idle = pod_cpus & ~used
        default |= idle
        text = f"pod {pod}: that CPUs {format_bits(pod_cpus)} belong to the pod as a whole; its containers keep theirs"
        lost.append(f"{text}, CPUs {format_bits(idle)} go back to the node's shared pool" if idle else text)
        lost.append(
            f"pod {pod}: which containers share; a kubelet takes all their CPUs for exclusive{_limits_text(named)}"
        )
    checkpoint = CPUCheckpoint(source.policy_name, format_bits(default), dict(source.entries or {}))
    return (checkpoint, lost) if lost else (source, lost)


def _limits_text(named: Mapping[str, int]) -> str:
    """Say what a kubelet does to CPU limits of containers whose CPUs it takes for exclusive."""
    twins = same_cpus(named)
    return f" and lifts the CPU limits, also of {', '.join(twins)}" if twins else " and lifts the CPU limits"


def same_cpus(named: Mapping[str, int]) -> list[str]:
    """Return the containers that have the same CPUs as another container of the pod: they share, or one is an init
    container."""
    return [name for name, cpus in named.items() if cpus and list(named.values()).count(cpus) > 1]


def _parse(text: str, path: str) -> int:
    try:
        return parse_bits(text)
    except CPUSetError as error:
        raise InputError(str(error), path=path) from None


# memory_manager_state


def _convert_memory(content: Content, source: MemoryCheckpoint, target: Release, version: str) -> Rewritten:
    lost = [] if version == "v3" else _describe_lost_members(content)
    checkpoint = source
    if not target.pod_level:
        checkpoint, more = _drop_pod_entries(source)
        lost += more
    if version == "v3":
        return Rewritten(checkpoint_data.MEMORY_V3.encode(checkpoint, content.unknown), version, lost)
    return Rewritten(checkpoint_memory.encode(checkpoint, version), version, lost)


def _drop_pod_entries(source: MemoryCheckpoint) -> tuple[MemoryCheckpoint, list[str]]:
    """Return a copy without pod entries, and remarks; each byte of a pod is charged to one of its containers."""
    lost = []
    entries = dict(source.entries or {})
    for pod, blocks in sorted((source.pod_entries or {}).items()):
        named = {name: list(own or ()) for name, own in (entries.get(pod) or {}).items()}
        entries[pod] = _divide(named, blocks or []) if named else None
        if entries[pod] is None:
            del entries[pod]
        sizes = ", ".join(f"{bytes_text(block.size)} of {block.type}" for block in blocks or ())
        lost.append(f"pod {pod}: that {sizes or 'nothing'} belongs to the pod as a whole; now its containers hold it")
    checkpoint = MemoryCheckpoint(source.policy_name, source.machine_state, entries)
    if not lost:
        return source, lost
    # The pods' blocks are gone from the checkpoint, so the ledger of the NUMA nodes must be charged again.
    checkpoint.machine_state = rebuild_from_blocks(source.machine_state or {}, checkpoint, pod_level=False)
    return checkpoint, lost


def _divide(named: dict[str, list[Block]], total: list[Block]) -> dict[str, list[Block] | None]:
    """Divide a pod's blocks among its containers: each gets at most what it has, smallest first; the last gets the
    rest."""
    # Together the containers may hold more than the pod: memory of init containers is used again by later ones.
    out: dict[str, list[Block] | None] = {name: [] for name in named}
    for whole in total:
        holders = sorted((block.size, name) for name, own in named.items() for block in own if block.type == whole.type)
        left = whole.size
        for place, (size, name) in enumerate(holders):
            part = left if place == len(holders) - 1 else min(size, left)
            left -= part
            blocks = out[name]
            assert blocks is not None
            blocks.append(Block(whole.numa_affinity, whole.type, part))
    return out
