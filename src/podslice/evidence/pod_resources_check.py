"""Where a kubelet's PodResources answers contradict its state files or the machine."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.evidence.contradiction import Contradiction, StateFacts
from podslice.evidence.pod_resources import PodResources
from podslice.node.checkpoints.names import CPU_STATE_FILE
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits_or_empty

_MOST_NAMED = 3
_REMEDY = "Were files and answer taken at one time? The answer is what the kubelet runs with"


def check_pod_resources(facts: StateFacts) -> Iterator[Contradiction]:
    """Yield where the kubelet's answers contradict the state files or the machine."""
    if facts.answers is None:
        return
    own = bits_of(cpu for node in facts.machine.nodes for core in node.cores for cpu in core.threads)
    strange = facts.answers.cpus & ~own
    if strange:
        text = f"By PodResources the kubelet has CPUs that the machine lacks: {format_bits(strange)}"
        yield Contradiction("cpus-differ", facts.about, text, "Is it the machine of this kubelet?")
    differences = list(_differences(facts, facts.answers))
    if differences:
        some = "; ".join(text for _, text in differences[:_MOST_NAMED])
        uids = tuple(dict.fromkeys(uid for uid, _ in differences))
        text = f"The kubelet's PodResources and its state files have other owners: {some}"
        yield Contradiction("reported-differs", "state", text, _REMEDY, uids)


def _differences(facts: StateFacts, answers: PodResources) -> Iterator[tuple[str, str]]:
    """Yield the UIDs of running pods whose containers have other CPUs or devices in the files, and a text."""
    uids = {label: uid for uid, label in facts.labels.items()}
    files = [one.checkpoint for one in facts.contents.values() if not one.by_container_id]
    cpu = next((one for one in files if isinstance(one, CPUCheckpoint)), None)
    devices = next((one for one in files if isinstance(one, DeviceCheckpoint)), None)
    for container in answers.containers:
        uid = uids.get(container.pod)
        if uid is None:
            continue
        who = f"{container.pod} {container.name}"
        # A pod that owns CPUs as a whole divides them among its containers.
        if cpu is not None and uid not in (cpu.pod_entries or {}):
            named = (cpu.entries or {}).get(uid) or {}
            kept = parse_bits_or_empty(named.get(container.name, ""))
            if kept != container.cpus:
                yield uid, f"{who} has CPUs {_cpus(container.cpus)} by PodResources, {_cpus(kept)} in {CPU_STATE_FILE}"
        if devices is not None:
            held = _held(devices, uid, container.name)
            for resource in sorted({*held, *container.devices}):
                said, kept_ids = container.devices.get(resource, frozenset()), held.get(resource, frozenset())
                if said != kept_ids:
                    one, other = (", ".join(sorted(ids)) or "none" for ids in (said, kept_ids))
                    yield uid, f"{who} has {resource} {one} by PodResources, {other} in the Device Manager's file"


def _cpus(cpus: Bits) -> str:
    return format_bits(cpus) or "none"


def _held(file: DeviceCheckpoint, uid: str, container: str) -> dict[str, frozenset[str]]:
    """Return the devices of a container in the Device Manager's file."""
    found: dict[str, frozenset[str]] = {}
    for entry in file.entries or ():
        if (entry.pod, entry.container) == (uid, container):
            found[entry.resource] = frozenset(entry.device_ids())
    return found
