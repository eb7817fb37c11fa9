"""CPU hints: which sets of NUMA nodes could give a container its exclusive CPUs (cpu-topology 7.3)."""

from __future__ import annotations

from podslice.machine.cores import whole_core_sums
from podslice.machine.model import CPUTopology, bisect_sums
from podslice.node.topology.hint import Hint, enumerate_masks
from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import Need
from podslice.node.topology.search import Span
from podslice.values.cpuset import Bits, iter_bits
from podslice.values.errors import UpstreamDefectError


def cpu_topology_hints(
    topology: CPUTopology,
    available: Bits,
    reusable: Bits,
    count: int,
    *,
    align_by_socket: bool,
    sockets_first: bool = False,
    smallest: int | None = None,
) -> HintSet | None:
    """Return the hints for `count` CPUs out of `available` and `reusable`; None when no set of NUMA nodes has as many.

    A mask is preferred when it has `smallest` NUMA nodes, by default as many as have that many CPUs, free or not. With
    `align_by_socket` it is also preferred when it spans as few sockets as that size needs; `sockets_first` asks the
    merge for one of these.
    """
    nodes = topology.numa_nodes
    # By all CPUs, not by free ones: where no free mask is this small, no hint is preferred (cpu-topology 7.3).
    if smallest is None:
        smallest = bisect_sums(topology.all_sums, count)
    alignment = _alignment(topology, smallest) if align_by_socket else None
    missing = count - reusable.bit_count()
    # A mask's CPUs are the sum over its nodes, so one count per node replaces upstream's count per mask.
    total = singles = 0
    free = {}
    for node, cpus in nodes.items():
        there = free[node] = (available & cpus).bit_count()
        total += there
        if there >= missing:
            singles |= 1 << node
    if total < missing:
        return None
    needs: tuple[Need, ...] = (Need(free, missing),)
    if reusable:
        required = topology.numa_nodes_of(reusable)
        # Reusable CPUs on two NUMA nodes cannot all be on one.
        if required & (required - 1):
            singles = 0
        else:
            singles &= required
        needs += (Need.nodes(required, required.bit_count()),)
    if len(nodes) == 1:
        return HintSet(tuple(nodes), smallest, singles, alignment=alignment)
    return HintSet(
        tuple(nodes),
        smallest,
        singles,
        open_nodes=topology.numa_mask,
        needs=needs,
        alignment=alignment,
        sockets_first=sockets_first,
    )


def _alignment(topology: CPUTopology, smallest: int) -> Span | None:
    """Return the condition of `align-by-socket` for sets of `smallest` NUMA nodes, None where a node spans several
    sockets. Raises `UpstreamDefectError` for a machine without sockets, on which upstream divides by zero."""
    if topology.num_sockets == 0:
        raise UpstreamDefectError("align_by_socket_without_sockets", "the machine reports no sockets")
    nodes_per_socket = len(topology.numa_nodes) // topology.num_sockets
    if not nodes_per_socket:
        return None
    return Span(topology.sockets_of_numa_nodes, -(-smallest // nodes_per_socket))


# Machines whose cores differ in size


def cpu_hints_of_cores(topology: CPUTopology, available: Bits, reusable: Bits, count: int, empty: Bits) -> list[Hint]:
    """Return hints for `count` CPUs, `reusable` ones included, under `full-pcpus-only` where cores differ in size. A
    set of NUMA nodes qualifies if whole free cores on it make up the rest exactly; it is preferred if no smaller set
    would qualify on an empty machine, on which the CPUs `empty` are free."""
    nodes, required = tuple(iter_bits(topology.numa_mask)), topology.numa_nodes_of(reusable)
    missing = count - reusable.bit_count()
    # Every set is tried: how many CPUs whole cores can make up does not follow from how many are free.
    masks = [mask for mask in enumerate_masks(nodes) if not required & ~mask]
    smallest = next((mask.bit_count() for mask in enumerate_masks(nodes) if _make_up(topology, mask, empty, count)), 0)
    if missing <= 0:
        return [Hint(mask, mask.bit_count() == smallest) for mask in masks]
    return [
        Hint(mask, mask.bit_count() == smallest)
        for mask in masks
        if _make_up(topology, mask, available & ~reusable, missing)
    ]


def _make_up(topology: CPUTopology, mask: Bits, free: Bits, count: int) -> bool:
    """Whether whole cores of `free` on these NUMA nodes make up `count` CPUs."""
    there = free & topology.cpus_in_numa_nodes(mask)
    return there.bit_count() >= count and whole_core_sums(topology, there, count) >> count & 1 == 1
