"""Sentences about the NUMA nodes on which an admitted pod has its CPUs, memory and devices."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, bits_of, format_bits


def placement_sentences(view: NodeView, uid: str) -> Iterator[str]:
    """Yield a sentence for each container of a pod on the node whose CPUs, memory and devices are not on the same NUMA
    nodes. Shared CPUs and devices without a NUMA node lie nowhere in particular."""
    pod = view.pods.get(uid)
    for container in () if pod is None else pod.containers:
        nodes = _nodes(view, uid, container.name)
        if len(set(nodes.values())) > 1:
            parts = ", ".join(f"{what} on NUMA {format_bits(mask)}" for what, mask in nodes.items())
            yield f"Not all that container {container.name} has is on the same NUMA nodes: {parts}."


def _nodes(view: NodeView, uid: str, container: str) -> dict[str, Bits]:
    """Return the NUMA nodes of each kind of resource that a container holds."""
    found: dict[str, Bits] = {}
    if owned := view.assignment(uid, container):
        found["CPUs"] = view.topology.numa_nodes_of(owned)
    blocks = view.blocks_of(uid, container)
    if memory := bits_of(node for block in blocks for node in block.numa_affinity or ()):
        found["memory"] = memory
    places = {(own.resource, one.id): one.numa or () for own in view.devices.resources for one in own.devices}
    for resource, ids in view.devices_of(uid, container).items():
        if mask := bits_of(node for name in ids for node in places.get((resource, name), ())):
            found[resource] = mask
    return found
