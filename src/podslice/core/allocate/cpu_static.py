"""Container-level decisions of the static policy (cpu-topology 6.2, 6.3): alignment checks and the
affinity-aware pick. Pure functions over sets; `managers.cpu` applies what they return."""

from __future__ import annotations

from podslice.core.allocate.cpu_take import take_by_topology
from podslice.core.errors import AdmissionError
from podslice.core.hints.search import Effort
from podslice.core.machine.topology import CPUTopology, whole_objects
from podslice.core.quirks import Quirks
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits

SMT_ALIGNMENT = "SMTAlignmentError"


def check_smt_alignment(count: int, free_physical: int, cpus_per_core: int) -> None:
    """The two checks of `full-pcpus-only` (cpu-topology 6.2, step 4): `count` must fill whole cores, and enough CPUs
    must be free on cores that hold no reserved CPU. Raises `AdmissionError` with reason `SMTAlignmentError`."""
    if count % cpus_per_core:
        raise AdmissionError(
            f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {cpus_per_core}", SMT_ALIGNMENT
        )
    if count > free_physical:
        raise AdmissionError(
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free_physical}, "
            f"requested CPUs = {count}, CPUs per core = {cpus_per_core}",
            SMT_ALIGNMENT,
        )


def pick_with_affinity(
    topology: CPUTopology,
    pool: Bits,
    count: int,
    affinity: Bits | None,
    options: CPUPolicyOptions,
    quirks: Quirks,
    effort: Effort,
) -> Bits:
    """Pick `count` CPUs from `pool`, first those on the NUMA nodes of `affinity` (None: no wish), then any.

    With `align-by-socket` the sockets of those nodes count instead of the nodes. Raises `AdmissionError`.
    """
    picked = 0
    if affinity is not None:
        near = topology.cpus_in_numa_nodes(affinity)
        if options.align_by_socket:
            near = whole_objects(topology.sockets, near)
        aligned = pool & near
        picked = take_by_topology(topology, aligned, min(aligned.bit_count(), count), options, quirks, effort)
    missing = count - picked.bit_count()
    if missing == 0:
        return picked
    return picked | take_by_topology(topology, pool & ~picked, missing, options, quirks, effort)
