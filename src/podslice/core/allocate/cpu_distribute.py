"""Distributing CPUs evenly over NUMA nodes (option `distribute-cpus-across-numa`; cpu-topology 4.7, 4.8).

For k = the fewest nodes that could do, upward: among all k-node combinations take the one whose left-overs are
balanced best, give every node of it the same share, and hand the remainder out group by group.
"""

from __future__ import annotations

from podslice.core.allocate.cpu_combinations import Choice, Combinations
from podslice.core.allocate.cpu_packed import Accumulator, not_enough, take_packed
from podslice.core.errors import AdmissionError, UpstreamDefectError
from podslice.core.hints.search import Effort
from podslice.core.machine.topology import CPUTopology
from podslice.core.quirks import Quirks
from podslice.core.values.cpuset import Bits

_DEFECT = "endless_distribution"


def take_distributed(
    topology: CPUTopology,
    available: Bits,
    count: int,
    group: int,
    spread: bool,
    quirks: Quirks,
    effort: Effort | None = None,
) -> Bits:
    """Pick `count` CPUs in multiples of `group`, evenly from as few NUMA nodes as possible (cpu-topology 4.7).

    `effort` (by default `Effort.over` the NUMA nodes) limits the search for the best combination of nodes. Raises
    `AdmissionError`; `UpstreamDefectError` where upstream never ends (quirk `endless_distribution`).
    """
    if count % group:
        return take_packed(topology, available, count, quirks, spread=spread)
    if count < 1:
        return 0
    work = Accumulator(topology, available, count, quirks)
    if count > work.free.bit_count():
        raise not_enough(count, available)
    numas = work.numas()
    machine_groups = (topology.all_cpus.bit_count() - 1) // group + 1
    groups_per_node = (machine_groups - 1) // len(topology.numa_nodes) + 1
    groups = (count - 1) // group + 1
    fewest = (groups - 1) // groups_per_node + 1
    search = Combinations(work, numas, count, group, quirks, effort or Effort.over(topology.numa_mask))
    for size in range(fewest, min(groups, len(set(numas))) + 1):
        choice = search.best(size)
        if choice is not None:
            return _hand_out(work, choice, count, group, spread, quirks)
    return take_packed(topology, available, count, quirks, spread=spread)


def _hand_out(work: Accumulator, choice: Choice, count: int, group: int, spread: bool, quirks: Quirks) -> Bits:
    nodes = work.topology.numa_nodes
    share = count // len(choice.nodes) // group * group
    for node in choice.nodes:
        _take_from(work, nodes[node], share, spread, quirks)
    remainder = count - share * len(choice.nodes)
    while remainder > 0:
        before = remainder
        for node in choice.remainder:
            if remainder == 0:
                break
            if (work.free & nodes[node]).bit_count() >= group:
                _take_from(work, nodes[node], group, spread, quirks)
                remainder -= group
        if remainder == before:
            if quirks.endless_distribution:
                raise UpstreamDefectError(
                    _DEFECT, "the nodes chosen for the remainder have no whole group left", hangs=True
                )
            break
    if work.need > 0:
        raise AdmissionError(f"accounting error, not enough CPUs allocated, remaining: {work.need}")
    if work.need < 0:
        raise AdmissionError(f"accounting error, too many CPUs allocated, remaining: {work.need}")
    return work.result


def _take_from(work: Accumulator, node: Bits, count: int, spread: bool, quirks: Quirks) -> None:
    try:
        work.take(take_packed(work.topology, work.free & node, count, quirks, spread=spread))
    except AdmissionError:
        return
