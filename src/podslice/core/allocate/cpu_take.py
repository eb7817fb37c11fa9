"""Picking CPUs on a machine: the one function everybody calls, and which algorithm the options choose
(cpu-topology 4.1)."""

from __future__ import annotations

from functools import reduce
from operator import or_

from podslice.core.allocate.cpu_distribute import take_distributed
from podslice.core.allocate.cpu_packed import take_packed
from podslice.core.errors import AdmissionError
from podslice.core.hints.search import Effort
from podslice.core.machine.topology import CPUTopology
from podslice.core.quirks import Quirks
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits


def take_by_topology(
    topology: CPUTopology,
    available: Bits,
    count: int,
    options: CPUPolicyOptions,
    quirks: Quirks,
    effort: Effort | None = None,
) -> Bits:
    """Pick `count` of the `available` CPUs as the policy options say; `align-by-socket`: on as few sockets as possible.

    `effort` limits how long the best NUMA nodes to distribute CPUs over are searched for; afterwards it tells whether
    that ended early. Raises `AdmissionError` with upstream's text when there are not enough, and
    `UpstreamDefectError` where upstream never ends and the quirk is on.
    """
    picked = _take(topology, available, count, options, quirks, effort)
    if not options.align_by_socket or quirks.socket_alignment_lost:
        return picked
    sockets = fewest_sockets(topology, available, count)
    if _touched(topology, picked) <= len(sockets):
        return picked
    try:
        return _take(topology, available & reduce(or_, sockets, 0), count, options, quirks, effort)
    except AdmissionError:
        return picked


def fewest_sockets(topology: CPUTopology, available: Bits, count: int) -> list[Bits]:
    """The fewest sockets that have `count` of the available CPUs: those with most of them, the last one with no more
    than needed."""
    rooms = [cpus for cpus in topology.sockets.values() if cpus & available]
    rooms.sort(key=lambda cpus: (cpus & available).bit_count(), reverse=True)
    chosen: list[Bits] = []
    while rooms and count > 0:
        enough = [cpus for cpus in rooms if (cpus & available).bit_count() >= count]
        best = min(enough, key=lambda cpus: (cpus & available).bit_count()) if enough else rooms[0]
        rooms.remove(best)
        chosen.append(best)
        count -= (best & available).bit_count()
    return chosen


def _touched(topology: CPUTopology, cpus: Bits) -> int:
    return sum([socket & cpus != 0 for socket in topology.sockets.values()])


def _take(
    topology: CPUTopology,
    available: Bits,
    count: int,
    options: CPUPolicyOptions,
    quirks: Quirks,
    effort: Effort | None,
) -> Bits:
    if options.distribute_cpus_across_numa:
        group = topology.cpus_per_core if options.full_pcpus_only else 1
        return take_distributed(topology, available, count, group, options.distribute_cpus_across_cores, quirks, effort)
    return take_packed(
        topology,
        available,
        count,
        quirks,
        spread=options.distribute_cpus_across_cores,
        uncore=options.prefer_align_cpus_by_uncorecache,
    )
