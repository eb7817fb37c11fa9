"""Picking CPUs on a machine: the one function everybody calls, and which algorithm the options choose
(spec cpu-topology 4.1)."""

from __future__ import annotations

from podslice.core.allocate.cpu_distribute import take_distributed
from podslice.core.allocate.cpu_packed import take_packed
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
    """Pick `count` of the `available` CPUs as the policy options say (spec 4.1).

    `effort` limits how long the best NUMA nodes to distribute CPUs over are searched for; afterwards it tells whether
    that ended early. Raises `AdmissionError` with upstream's text when there are not enough, and
    `UpstreamDefectError` where upstream never ends and the quirk is on.
    """
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
