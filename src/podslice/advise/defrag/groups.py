"""Groups of containers that can move on a node: containers that own CPUs or memory, joined where they cannot move
alone.

Containers of one pod move together in three cases: they share CPUs (an init container and those that took over from
it), they divide the CPUs of a pod with pod-level resources, or the Topology Manager aligns the pod as a whole.
Everything else moves container by container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.advise.trial.trial import Standing
from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.annotations import container_movability
from podslice.config.policy import Defragmentation
from podslice.machine.memory import Block
from podslice.machine.model import CPUTopology
from podslice.node.cpu import state as model
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, bits_of, iter_bits, union

Counts = tuple[int, ...]
"""CPUs on each NUMA node, in the order of the topology."""


class Group(NamedTuple):
    """Containers of one pod that move together.

    `weight`: how many running containers move. `sets`: CPUs of each container that owns some. `pod_cpus`: the CPUs of a
    pod with pod-level resources, None for other pods. `cpus`: all of them. `blocks`: memory in the ledger; `nodes`: the
    mask of the NUMA nodes it is on.
    """

    uid: str
    names: tuple[str, ...]
    weight: int
    sets: Mapping[str, Bits]
    pod_cpus: Bits | None
    cpus: Bits
    blocks: tuple[Block, ...]
    nodes: Bits


def find_movable_groups(node: NodeView, besides: str = "") -> list[Group]:
    """Return the groups that can move on this node, leaving out the pod with UID `besides`.

    Containers with devices cannot move, nor can memory of one group on several sets of NUMA nodes. A PodslicePolicy
    with a section `defrag` may exclude more.
    """
    return [
        group
        for pod in node.pods.values()
        if pod.uid != besides
        for group in groups_of(node, pod)
        if _can_move(node, group) and _may_move(node, pod, group)
    ]


def _may_move(node: NodeView, pod: AdmissionPod, group: Group) -> bool:
    # Without the section a policy restricts no plan; only an agent needs it, to carry plans out.
    """Whether the node's policy lets all containers of the group move."""
    if node.policy.defrag == Defragmentation():
        return True
    allowed = container_movability(node.policy, pod.spec)
    return all(allowed.get(name) in ("true", "pinned-too") for name in group.names)


def groups_of(node: NodeView, pod: AdmissionPod) -> Iterator[Group]:
    """Yield the containers of a pod that own CPUs or memory, grouped as they move together."""
    sets = {name: bits for name, bits in node.owners.get(pod.uid, {}).items() if bits}
    holders = [c.name for c in pod.containers if c.name in sets or node.blocks_of(pod.uid, c.name)]
    pod_cpus = node.pod_cpus.get(pod.uid)
    if pod_cpus is not None or node.pod_blocks.get(pod.uid) or node.aligns_pods:
        parts = [tuple(holders)] if holders else []
    else:
        parts = _join_sharing(holders, sets)
    running = {container.name for container in pod.containers if not container.plain_init}
    for names in parts:
        own = {name: sets[name] for name in names if name in sets}
        cpus = (pod_cpus or 0) | union(own.values())
        blocks = node.booked(pod.uid, names) if node.binds_memory else ()
        nodes = model.numa_nodes(blocks)
        yield Group(pod.uid, names, max(1, len(running & {*names})), own, pod_cpus, cpus, blocks, nodes)


def _join_sharing(names: list[str], sets: Mapping[str, Bits]) -> list[tuple[str, ...]]:
    """Join containers that share CPUs, directly or through others; leave the rest alone."""
    parts: list[tuple[Bits, tuple[str, ...]]] = []
    for name in names:
        cpus = sets.get(name, 0)
        members: tuple[str, ...] = (name,)
        # A container may share CPUs with several parts, which then become one.
        for part in [part for part in parts if part[0] & cpus]:
            parts.remove(part)
            cpus, members = cpus | part[0], (*part[1], *members)
        parts.append((cpus, members))
    return [members for _, members in parts]


def _can_move(node: NodeView, group: Group) -> bool:
    """Whether the group owns something, holds no devices, and has its memory on one set of NUMA nodes."""
    if any(node.devices_of(group.uid, name) for name in group.names):
        return False
    masks = {block.numa_affinity for block in group.blocks}
    return len(masks) <= 1 and bool(group.cpus or group.blocks)


def counts_of(topology: CPUTopology, cpus: Bits) -> Counts:
    """Return how many of the CPUs are on each NUMA node."""
    return tuple((cpus & there).bit_count() for there in topology.numa_nodes.values())


def is_no_worse(before: Standing, after: Standing) -> bool:
    """Whether everything that was admitted or preferred before still is."""
    return all(now >= was for old, new in zip(before, after, strict=True) for was, now in zip(old, new, strict=True))


class RelocatedSets(NamedTuple):
    """CPUs of a group's containers, and those of its pod, at a new place."""

    sets: dict[str, Bits]
    pod_cpus: Bits | None


def relocate_sets(topology: CPUTopology, sets: Mapping[str, Bits], pod_cpus: Bits | None, to: Bits) -> RelocatedSets:
    """Return the sets of a group's containers when its CPUs become `to`: CPUs in both stay, the rest moves core by
    core."""
    held = (pod_cpus or 0) | union(sets.values())
    # Both sides are in core order, so hyperthreads that shared a core share one again where they can.
    target = dict(zip(_by_core(topology, held & ~to), _by_core(topology, to & ~held), strict=True))

    def there(bits: Bits) -> Bits:
        return bits & to | bits_of(target[cpu] for cpu in iter_bits(bits & ~to))

    return RelocatedSets(
        {name: there(bits) for name, bits in sets.items()}, None if pod_cpus is None else there(pod_cpus)
    )


def _by_core(topology: CPUTopology, cpus: Bits) -> list[int]:
    """Return the CPUs in the order of NUMA node, core and thread."""
    return sorted(iter_bits(cpus), key=lambda cpu: (topology.numa_of[cpu], topology.core_of[cpu], cpu))
