"""What can move on a node: containers that own CPUs or memory, bound together where they cannot move alone.

Containers of one pod move together when they share CPUs (an init container and those that took over from it), when
they live in the bubble of a pod with pod-level resources, and when the Topology Manager aligns the pod as a whole.
Everything else moves container by container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.core.kubelet import Kubelet
from podslice.core.machine.memory import Block
from podslice.core.machine.topology import CPUTopology
from podslice.core.managers.topology import TopologyManager
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.values.cpuset import Bits, CPUSet, bits_of, iter_bits

Counts = tuple[int, ...]
"""CPUs on each NUMA node, in the order of the topology."""
Standing = tuple[tuple[bool, bool], ...]


class Group(NamedTuple):
    """Containers of one pod that move together.

    `weight`: how many containers that run move. `sets`: CPUs of each container that owns some. `bubble`: the pod's
    CPUs, None for a pod without. `cpus`: all of them. `blocks`: booked memory; `nodes`: the NUMA nodes it is on.
    """

    uid: str
    names: tuple[str, ...]
    weight: int
    sets: Mapping[str, Bits]
    bubble: Bits | None
    cpus: Bits
    blocks: tuple[Block, ...]
    nodes: Bits


def movable_groups(kubelet: Kubelet) -> list[Group]:
    """What can move on this node. Devices cannot, nor can what holds some, nor memory of one group on several sets of
    NUMA nodes."""
    return [group for pod in kubelet.active.values() for group in _groups(kubelet, pod) if _can_move(kubelet, group)]


def _groups(kubelet: Kubelet, pod: AdmissionPod) -> Iterator[Group]:
    cpu, memory, topology = kubelet.manager.cpu, kubelet.manager.memory, kubelet.manager.topology
    sets = {name: bits for name, bits in cpu.state.assignments.get(pod.uid, {}).items() if bits}
    holders = [c.name for c in pod.containers if c.name in sets or memory.blocks(pod.uid, c.name)]
    bubble = cpu.state.bubbles.get(pod.uid)
    aligned = topology.merger is not None and topology.scope == "pod"
    if bubble is not None or memory.pod_blocks(pod.uid) or aligned:
        parts = [tuple(holders)] if holders else []
    else:
        parts = _sharing(holders, sets)
    running = {container.name for container in pod.containers if not container.plain_init}
    for names in parts:
        own = {name: sets[name] for name in names if name in sets}
        cpus = bubble or 0
        for bits in own.values():
            cpus |= bits
        blocks = memory.booked(pod.uid, names) if memory.static else ()
        nodes = bits_of(node for block in blocks for node in block.numa_affinity or ())
        yield Group(pod.uid, names, max(1, len(running & {*names})), own, bubble, cpus, blocks, nodes)


def _sharing(names: list[str], sets: Mapping[str, Bits]) -> list[tuple[str, ...]]:
    """Containers that share CPUs, directly or over others, together; the rest alone."""
    parts: list[tuple[Bits, tuple[str, ...]]] = []
    for name in names:
        cpus = sets.get(name, 0)
        members: tuple[str, ...] = (name,)
        for part in [part for part in parts if part[0] & cpus]:
            parts.remove(part)
            cpus, members = cpus | part[0], (*part[1], *members)
        parts.append((cpus, members))
    return [members for _, members in parts]


def _can_move(kubelet: Kubelet, group: Group) -> bool:
    device = kubelet.manager.device
    if any(device.devices_of(group.uid, name) for name in group.names):
        return False
    masks = {block.numa_affinity for block in group.blocks}
    return len(masks) <= 1 and bool(group.cpus or group.blocks)


def owned(kubelet: Kubelet, uid: str) -> CPUSet:
    """All CPUs that belong to a pod alone."""
    state = kubelet.manager.cpu.state
    cpus = state.bubbles.get(uid, 0)
    for own in state.assignments.get(uid, {}).values():
        cpus |= own
    return CPUSet.from_bits(cpus)


def counts_of(topology: CPUTopology, cpus: Bits) -> Counts:
    """How many of the CPUs are on each NUMA node."""
    return tuple((cpus & there).bit_count() for there in topology.numa_nodes.values())


def standing(topology: TopologyManager, pod: AdmissionPod) -> Standing:
    """How the Topology Manager judges what a pod holds: (would be admitted, is preferred), by container or once."""
    if topology.merger is None:
        return ()
    if topology.scope == "pod":
        asked = [[provider.pod_hints(pod) for provider in topology.providers]]
    else:
        asked = [[p.container_hints(pod, container) for p in topology.providers] for container in pod.containers]
    judged = [topology.merger.merge(hints) for hints in asked]
    return tuple((merged.admitted, merged.hint.preferred) for merged in judged)


def no_worse(before: Standing, after: Standing) -> bool:
    """True when nothing that was admitted or preferred no longer is."""
    return all(now >= was for old, new in zip(before, after, strict=True) for was, now in zip(old, new, strict=True))


class Relocated(NamedTuple):
    """CPUs of a group's containers and its bubble at a new place."""

    sets: dict[str, Bits]
    bubble: Bits | None


def carried(topology: CPUTopology, sets: Mapping[str, Bits], bubble: Bits | None, to: Bits) -> Relocated:
    """The sets of a group's containers when its CPUs become `to`: what stays stays, the rest moves core by core."""
    held = bubble or 0
    for bits in sets.values():
        held |= bits
    target = dict(zip(_by_core(topology, held & ~to), _by_core(topology, to & ~held), strict=True))

    def there(bits: Bits) -> Bits:
        return bits & to | bits_of(target[cpu] for cpu in iter_bits(bits & ~to))

    return Relocated({name: there(bits) for name, bits in sets.items()}, None if bubble is None else there(bubble))


def _by_core(topology: CPUTopology, cpus: Bits) -> list[int]:
    """CPUs in the order of NUMA node, core and thread."""
    return sorted(iter_bits(cpus), key=lambda cpu: (topology.numa_of[cpu], topology.core_of[cpu], cpu))
