"""What is wrong with a CPU state file, what a kubelet would do with it, and how to make a sound one out of it.

`podslice state` is these functions with files around them. Nothing here trusts its input; damage is reported, never
raised.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from podslice.core.errors import StartError
from podslice.core.machine.memory import Block
from podslice.core.machine.topology import CPUTopology
from podslice.core.state import checkpoint_devices, checkpoint_memory
from podslice.core.state.checkpoint_cpu import CPUCheckpoint, decode, decode_v4, encode, encode_v4, is_v4
from podslice.core.state.gojson import CheckpointError
from podslice.core.state.restore import restore_cpu_state, validate_cpu_state
from podslice.core.values.cpuset import Bits, CPUSetError, bits_of, format_bits, parse_bits

VERSIONS = ("v2", "v3", "v4")


class Owner(NamedTuple):
    """Who owns which CPUs: a container, or with an empty container the bubble of a pod."""

    pod: str
    container: str
    cpus: Bits


class Content(NamedTuple):
    """What could be read of a file, whatever its checksum says; `unreadable` names what could not."""

    policy: str
    default: Bits
    owners: tuple[Owner, ...]
    unreadable: tuple[str, ...] = ()


def read_content(data: bytes) -> Content:
    """Everything readable in a CPU state file. Raises `CheckpointError` when it is not even JSON of that shape."""
    checkpoint = CPUCheckpoint()
    unreadable: list[str] = []
    if is_v4(data):
        checkpoint = decode_v4(data)
    else:
        try:
            decode(data, "v3", checkpoint)
        except CheckpointError as error:
            unreadable.append(str(error))
            if not (checkpoint.entries or checkpoint.default_cpuset):
                raise
    owners = []
    for pod, cpus in (checkpoint.pod_entries or {}).items():
        owners.append(Owner(pod, "", cpus))
    for pod, named in (checkpoint.entries or {}).items():
        for name, text in (named or {}).items():
            try:
                owners.append(Owner(pod, name, parse_bits(text)))
            except CPUSetError as error:
                unreadable.append(f"entries[{pod}][{name}]: {error}")
    try:
        default = parse_bits(checkpoint.default_cpuset)
    except CPUSetError as error:
        default = 0
        unreadable.append(f"defaultCpuSet: {error}")
    return Content(checkpoint.policy_name, default, tuple(owners), tuple(unreadable))


def memory_owners(data: bytes) -> list[tuple[str, Block]]:
    """(pod/container or pod, block) of a memory state file. Raises `CheckpointError`."""
    checkpoint = checkpoint_memory.decode(data)
    owners = [(f"{pod} (pod)", block) for pod, own in (checkpoint.pod_entries or {}).items() for block in own or ()]
    for pod, named in (checkpoint.entries or {}).items():
        for name, blocks in (named or {}).items():
            owners += [(f"{pod}/{name}", block) for block in blocks or ()]
    return owners


def device_owners(data: bytes) -> list[tuple[str, str]]:
    """(pod/container, devices) of a device checkpoint. Raises `CheckpointError`."""
    content, _ = checkpoint_devices.decode(data)
    owners = []
    for entry in content.get("PodDeviceEntries") or ():
        devices = entry.get("DeviceIDs") or {}
        ids = devices if isinstance(devices, list) else sorted({i for own in devices.values() for i in own or ()})
        who = f"{entry.get('PodUID')}/{entry.get('ContainerName')}"
        owners.append((who, f"{entry.get('ResourceName')} {','.join(map(str, ids))}"))
    return owners


def problems(content: Content, topology: CPUTopology | None) -> list[str]:
    """Contradictions in a file: overlaps, CPUs that nobody has or that do not exist."""
    found = list(content.unreadable)
    pods: dict[str, Bits] = {}
    for owner in content.owners:
        if owner.cpus & content.default:
            who = f"{owner.pod}/{owner.container}".rstrip("/")
            found.append(f"{who} overlaps with the shared pool: {format_bits(owner.cpus & content.default)}")
        pods[owner.pod] = pods.get(owner.pod, 0) | owner.cpus
    for owner in content.owners:
        bubble = next((o.cpus for o in content.owners if o.pod == owner.pod and not o.container), None)
        if bubble is not None and owner.cpus & ~bubble:
            found.append(f"{owner.pod}/{owner.container} leaves its pod's CPUs: {format_bits(owner.cpus & ~bubble)}")
    seen: Bits = 0
    for pod, cpus in pods.items():
        if cpus & seen:
            found.append(f"CPUs {format_bits(cpus & seen)} of pod {pod} belong to another pod as well")
        seen |= cpus
    if topology is not None:
        union = seen | content.default
        if union & ~topology.all_cpus:
            found.append(f"CPUs {format_bits(union & ~topology.all_cpus)} do not exist on the machine")
        if topology.all_cpus & ~union:
            found.append(f"CPUs {format_bits(topology.all_cpus & ~union)} of the machine belong to nobody")
    return found


class Reading(NamedTuple):
    """What a kubelet of one configuration would do with the file at start."""

    kubelet: str
    verdict: str


def kubelet_readings(data: bytes, policy: str, topology: CPUTopology | None) -> list[Reading]:
    """The start of kubelets that read V2 (all up to 1.36), V3 (1.36 with PodLevelResourceManagers) and V4 (1.37)."""
    readings = []
    for kubelet, pod_level, trust_zero in (
        ("1.35 and older, or PodLevelResourceManagers off", False, True),
        ("1.36 with PodLevelResourceManagers on", True, True),
        ("1.37", True, False),
    ):
        if kubelet == "1.37" and not is_v4(data):
            continue
        try:
            state = restore_cpu_state(
                data,
                policy_name=policy,
                pod_level=pod_level,
                containers={},
                path="/var/lib/kubelet/cpu_manager_state",
                trust_zero=trust_zero,
            )
            if topology is not None and policy == "static":
                validate_cpu_state(state, topology, reserved=0, strict=False, pod_level=pod_level)
            lost = sum(1 for owner in read_content(data).owners if not owner.container) - len(state.bubbles)
            verdict = "starts" if not lost else f"starts, but forgets the CPUs of {lost} pods with pod-level resources"
        except StartError as error:
            verdict = f"does not start: {error.message}"
        readings.append(Reading(kubelet, verdict))
    return readings


class Converted(NamedTuple):
    """A rewritten file and what its version cannot hold."""

    data: bytes
    lost: tuple[str, ...]


def convert(data: bytes, version: str) -> Converted:
    """Rewrite a file as `version` with a valid checksum (spec 8.3, 8.7). Raises `CheckpointError` for damaged files.

    V2 has no room for the CPUs of pods with pod-level resources. They are kept away from the shared pool all the same,
    as CPUs of the pod's containers where those cover them; the rest goes back to the node.
    """
    checkpoint = decode_v4(data) if is_v4(data) else decode(data, "v3")
    lost: list[str] = []
    if version == "v2":
        default = parse_bits(checkpoint.default_cpuset)
        for pod, bubble in (checkpoint.pod_entries or {}).items():
            named = (checkpoint.entries or {}).get(pod) or {}
            held = 0
            for text in named.values():
                held |= parse_bits(text)
            lost.append(f"pod {pod}: that CPUs {format_bits(bubble)} are one budget of the pod")
            if bubble & ~held:
                lost.append(f"pod {pod}: CPUs {format_bits(bubble & ~held)}, which go back to the shared pool")
                default |= bubble & ~held
        checkpoint.default_cpuset = format_bits(default)
        checkpoint.pod_entries = {}
        return Converted(encode(checkpoint, "v2"), tuple(lost))
    return Converted(encode_v4(checkpoint) if version == "v4" else encode(checkpoint, version), ())


def repair(data: bytes, everything: Bits, running: Collection[str] | None) -> Converted:
    """A consistent V2 or V3 file from whatever can be read (bubbles make it V3).

    `everything` are the machine's CPUs; `running` the UIDs of the pods that run, None to believe the file. Owners that
    contradict each other keep the CPUs of the first. Raises `CheckpointError` when nothing can be read.
    """
    content = read_content(data)
    changes: list[str] = list(content.unreadable)
    entries: dict[str, dict[str, str] | None] = {}
    bubbles: dict[str, Bits] = {}
    taken: dict[str, Bits] = {}
    for owner in content.owners:
        who = f"{owner.pod}/{owner.container}".rstrip("/")
        if running is not None and owner.pod not in running:
            changes.append(f"{who}: does not run, {format_bits(owner.cpus)} freed")
            continue
        foreign = 0
        for pod, cpus in taken.items():
            foreign |= cpus if pod != owner.pod else 0
        cpus = owner.cpus & everything & ~foreign
        if owner.pod in bubbles and owner.container:
            cpus &= bubbles[owner.pod]
        if cpus != owner.cpus:
            changes.append(f"{who}: {format_bits(owner.cpus)} becomes {format_bits(cpus) or 'nothing'}")
        if not cpus:
            continue
        taken[owner.pod] = taken.get(owner.pod, 0) | cpus
        if owner.container:
            named = entries.setdefault(owner.pod, {})
            assert named is not None
            named[owner.container] = format_bits(cpus)
        else:
            bubbles[owner.pod] = cpus
    held = 0
    for cpus in taken.values():
        held |= cpus
    default = everything & ~held
    if default != content.default:
        changes.append(f"shared pool: {format_bits(content.default) or 'nothing'} becomes {format_bits(default)}")
    fixed = CPUCheckpoint(content.policy or "static", format_bits(default), entries, bubbles)
    return Converted(encode(fixed, "v3" if bubbles else "v2"), tuple(changes))


def all_cpus_of(content: Content) -> Bits:
    """The CPUs a file speaks of, in place of a machine; gaps below the highest are counted in."""
    union = content.default
    for owner in content.owners:
        union |= owner.cpus
    return bits_of(range(union.bit_length()))
