"""State files as tables: owners, and what they own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.api.pod.spec import PodAllocation, ResourceList
from podslice.node.checkpoints.claims import ClaimCheckpoint, PreparedClaim
from podslice.node.checkpoints.content import AllocationCheckpoint, Content
from podslice.node.checkpoints.guard_state import GuardContent
from podslice.node.checkpoints.pod_status import StatusCheckpoint
from podslice.node.checkpoints.policy_state import PodCPUTexts, PolicyContent
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory.checkpoint import Block, MemoryCheckpoint
from podslice.render.table import format_bytes, format_table
from podslice.values.cpuset import CPUSetError, format_bits, parse_bits
from podslice.values.golang import quote

_MEMO_SHOWN = 60


def content_text(content: Content, cpus: CPUCheckpoint | None = None) -> str:
    """Return a file's content as tables; `cpus` is the CPU Manager's file beside it."""
    match content.checkpoint:
        case CPUCheckpoint() as cpu:
            return _cpu_text(cpu)
        case MemoryCheckpoint() as memory:
            return _memory_text(memory)
        case DeviceCheckpoint() as device:
            return _device_text(device)
        case AllocationCheckpoint(pods):
            return _allocation_text(pods)
        case StatusCheckpoint(pods, resizes):
            return _allocation_text(pods) + _resize_text(resizes)
        case ClaimCheckpoint(claims):
            return _claim_text(claims)
        case PolicyContent() as policy:
            return _policy_text(policy, cpus)
        case GuardContent() as guards:
            return _guard_text(guards)


def identity_text(data: bytes, content: Content) -> str:
    """Return a file's size, version and checksum, with the checksums of the formats as which it can be read."""
    computed = ", ".join(f"{name} {value}" for name, value in sorted(content.identity.computed.items()))
    stated = "none" if content.identity.stated is None else str(content.identity.stated)
    rows = [(content.kind, content.version, str(len(data)), stated, computed or "-")]
    return format_table(("KIND", "VERSION", "BYTES", "CHECKSUM", "IT WOULD NEED"), rows, right=(2,)) + "\n"


def _guard_text(content: GuardContent) -> str:
    if not content.files:
        return "No file of the kernel is changed."
    rows = [(one.guard, f"/{one.path}", one.before, " or ".join(one.written)) for one in content.files]
    return format_table(("GUARD", "FILE", "BEFORE", "WRITTEN"), rows)


def _cpu_text(checkpoint: CPUCheckpoint) -> str:
    rows = [("(node's shared pool)", "", checkpoint.default_cpuset, _count(checkpoint.default_cpuset))]
    for pod in sorted({*(checkpoint.pod_entries or {}), *(checkpoint.entries or {})}):
        pod_cpus = (checkpoint.pod_entries or {}).get(pod)
        if pod_cpus is not None:
            rows.append((pod, "(whole pod)", format_bits(pod_cpus), str(pod_cpus.bit_count())))
        for name, text in sorted(((checkpoint.entries or {}).get(pod) or {}).items()):
            rows.append((pod, name, text, _count(text)))
    rows += [(name, "", text, _count(text)) for name, text in sorted((checkpoint.entries_v1 or {}).items())]
    return format_table(("POD", "CONTAINER", "CPUS", "COUNT"), rows, right=(3,))


def _count(text: str) -> str:
    try:
        return str(parse_bits(text).bit_count())
    except CPUSetError:
        return "?"


def _memory_text(checkpoint: MemoryCheckpoint) -> str:
    nodes = [
        (str(node), ",".join(map(str, state.cells or ())), name, *map(format_bytes, (t.total, t.reserved, t.free)))
        for node, state in sorted((checkpoint.machine_state or {}).items())
        for name, t in sorted((state.memory_map or {}).items())
    ]
    owners = [
        (pod, "(whole pod)", *_block(block))
        for pod, blocks in sorted((checkpoint.pod_entries or {}).items())
        for block in blocks or ()
    ]
    owners += [
        (pod, name, *_block(block))
        for pod, named in sorted((checkpoint.entries or {}).items())
        for name, blocks in sorted((named or {}).items())
        for block in blocks or ()
    ]
    text = format_table(("NODE", "GROUP", "TYPE", "TOTAL", "RESERVED", "FREE"), nodes, right=(3, 4, 5))
    if not owners:
        return f"{text}\n\nNo memory is assigned."
    return f"{text}\n\n{format_table(('POD', 'CONTAINER', 'TYPE', 'NODES', 'SIZE'), owners, right=(4,))}"


def _block(block: Block) -> tuple[str, str, str]:
    return block.type, ",".join(map(str, block.numa_affinity or ())), format_bytes(block.size)


def _device_text(checkpoint: DeviceCheckpoint) -> str:
    rows = [
        (entry.pod, entry.container, entry.resource, ", ".join(entry.device_ids()))
        for entry in checkpoint.entries or []
    ]
    healthy = [(name, str(len(ids or ()))) for name, ids in sorted((checkpoint.registered or {}).items())]
    text = format_table(("RESOURCE", "HEALTHY"), healthy, right=(1,))
    if not rows:
        return f"{text}\n\nNo device is assigned."
    return f"{text}\n\n{format_table(('POD', 'CONTAINER', 'RESOURCE', 'DEVICES'), rows)}"


def _allocation_text(allocations: Mapping[str, PodAllocation]) -> str:
    rows = []
    for uid, pod in sorted(allocations.items()):
        whole = [("(whole pod)", pod.pod_level)] if pod.pod_level is not None else []
        for name, resources in [*whole, *sorted(pod.containers.items())]:
            rows.append((uid, name, _amounts(resources.requests), _amounts(resources.limits)))
    return format_table(("POD", "CONTAINER", "REQUESTS", "LIMITS"), rows) if rows else "No pod has granted resources."


def _resize_text(resizes: Mapping[str, str]) -> str:
    rows = sorted(resizes.items())
    return "\n\nResizes that wait:\n" + format_table(("POD", "STATUS"), rows) if rows else ""


def _claim_text(claims: Iterable[PreparedClaim]) -> str:
    rows = [
        (
            f"{claim.namespace}/{claim.name}",
            ", ".join("/".join(filter(None, (one.driver, one.pool, one.device))) for one in claim.devices) or "-",
            ", ".join(claim.pods) or "-",
        )
        for claim in claims
    ]
    return format_table(("CLAIM", "DEVICES", "PODS"), rows) if rows else "No claim is prepared."


def _amounts(amounts: ResourceList | None) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted((amounts or {}).items())) or "-"


def _policy_text(policy: PolicyContent, cpus: CPUCheckpoint | None) -> str:
    growth = policy.growth({} if cpus is None else cpus.entries or {})
    rows = [(uid, "(whole pod)", text, "", "") for uid, text in sorted(policy.pod_originals.items())]
    for uid, named in sorted(policy.originals.items()):
        for name, text in sorted(named.items()):
            order = ",".join(map(str, policy.order.get(uid, {}).get(name, ()))) or "ascending"
            rows.append((uid, name, text, growth.get(uid, {}).get(name, "-"), order))
    headings = ("POD", "CONTAINER", "PROMISED", "BEYOND IT", "ORDER")
    parts = [format_table(headings, sorted(rows)) if rows else "No container has more CPUs than were promised."]
    classes = [
        (uid, name or "(whole pod)", ", ".join(words))
        for uid, named in sorted(policy.classes.items())
        for name, words in sorted(named.items())
    ]
    if classes:
        parts.append("Grow in their classes:\n" + format_table(("POD", "CONTAINER", "CLASSES"), classes))
    mixed = [
        (uid, name, str(one.exclusive), f"{one.shared}m")
        for uid, named in sorted(policy.mixed.items())
        for name, one in sorted(named.items())
    ]
    if mixed:
        parts.append("Own and shared CPUs:\n" + format_table(("POD", "CONTAINER", "OWN", "SHARED"), mixed))
    # Quoted and cut: a plugin may write any text, and this one goes to a terminal.
    memos = [
        (uid, name, plugin, quote(memo if len(memo) <= _MEMO_SHOWN else f"{memo[:_MEMO_SHOWN]}…"))
        for uid, named in sorted(policy.plugins.items())
        for name, kept in sorted(named.items())
        for plugin, memo in sorted(kept.items())
    ]
    if memos:
        parts.append("Remembered by plugins:\n" + format_table(("POD", "CONTAINER", "PLUGIN", "MEMO"), memos))
    moves = [
        (uid, name, before.get(name, "-"), after.get(name, "-"))
        for uid, intent in sorted(policy.intents.items())
        for before, after in [(_holding_texts(intent.before), _holding_texts(intent.after))]
        for name in sorted({*before, *after})
    ]
    if moves:
        parts.append("Being written:\n" + format_table(("POD", "CONTAINER", "FROM", "TO"), moves))
    return "\n\n".join(parts)


def _holding_texts(had: PodCPUTexts) -> dict[str, str]:
    """Return the CPUs and memory blocks of a pod as texts, by container."""
    whole = {"(whole pod)": _holding_text(had.pod_cpus, had.pod_memory)} if had.pod_cpus or had.pod_memory else {}
    names = sorted({*had.containers, *had.memory})
    return {**whole, **{name: _holding_text(had.containers.get(name, ""), had.memory.get(name, ())) for name in names}}


def _holding_text(cpus: str, blocks: Iterable[Block]) -> str:
    parts = [cpus] if cpus else []
    for kind, nodes, size in map(_block, blocks):
        parts.append(f"{size}{'' if kind == 'memory' else f' of {kind}'} on {nodes}")
    return ", ".join(parts) or "-"
