"""CPU hints: which sets of NUMA nodes could give a container its exclusive CPUs (spec cpu-topology 7.3)."""

from __future__ import annotations

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.hint import Hint
from podslice.core.hints.masks import enumerate_masks, smallest_size, sums
from podslice.core.machine.topology import CPUTopology
from podslice.core.values.cpuset import Bits


def cpu_topology_hints(
    topology: CPUTopology, available: Bits, reusable: Bits, count: int, align_by_socket: bool
) -> list[Hint]:
    """Hints for `count` CPUs out of `available` and `reusable`, in upstream's order; empty when none fits.

    A mask is preferred when it is as small as the machine (free or not) allows, or with `align_by_socket` when it
    spans as few sockets as that size needs.
    """
    nodes = topology.numa_nodes
    smallest = max(1, smallest_size({node: cpus.bit_count() for node, cpus in nodes.items()}, count))
    aligned = _socket_alignment(topology, smallest) if align_by_socket else None
    required = topology.numa_nodes_of(reusable) if reusable else 0
    missing = count - reusable.bit_count()
    free = sums([(available & cpus).bit_count() for cpus in nodes.values()])
    return [
        Hint(mask, index.bit_count() == smallest or (aligned is not None and _sockets(topology, mask) == aligned))
        for index, mask in enumerate_masks(tuple(nodes))
        if free[index] >= missing and mask & required == required
    ]


def _socket_alignment(topology: CPUTopology, smallest: int) -> int | None:
    if topology.num_sockets == 0:
        raise UpstreamDefectError("align_by_socket_without_sockets", "the machine reports no sockets")
    nodes_per_socket = len(topology.numa_nodes) // topology.num_sockets
    return -(-smallest // nodes_per_socket) if nodes_per_socket else None


def _sockets(topology: CPUTopology, mask: Bits) -> int:
    cpus = topology.cpus_in_numa_nodes(mask)
    return sum(1 for socket in topology.sockets.values() if socket & cpus)
