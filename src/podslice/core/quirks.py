"""Upstream's named defects, and the two profiles that switch them on or off.

A quirk is a behaviour of Kubernetes v1.36.2 that the specification lists as a defect. Profile `kubelet-1.36` has all
of them, because predicting a kubelet means predicting its mistakes; profile `podslice` has none. Every field here is
a row of docs/deviations.md (a test compares them). Code asks `quirks.<name>`; nothing else knows about profiles.
"""

from __future__ import annotations

import msgspec

from podslice.core.errors import InputError


class Quirks(msgspec.Struct, frozen=True):
    """One flag per defect; True reproduces upstream."""

    combination_aliasing: bool = False
    """cpu-topology 4.8, 11.7: a remembered combination of NUMA nodes is overwritten by later ones."""
    endless_distribution: bool = False
    """11.3: distributing CPUs over NUMA nodes never ends; True raises `UpstreamDefectError`, False skips or reports."""
    average_sizes: bool = False
    """11.11: "free" socket and core tests use machine averages, so CPUs in use can be handed out."""
    straddling_objects: bool = False
    """11.10: an object with two parents is taken twice and too few CPUs are returned."""
    partial_uncore_by_core_id: bool = False
    """11.9: a partial pick from an uncore cache looks at core ids instead of free CPUs."""
    smt_check_before_state: bool = False
    """11.4: full-pcpus-only refuses containers that already run."""
    smt_check_ignores_reusable: bool = False
    """11.5: full-pcpus-only does not count CPUs reusable from init containers."""
    pod_allocation_repeats: bool = False
    """11.1, memory 4.3: admitting a running pod-level pod again allocates or refuses it again."""
    strict_reservation_empties_pool: bool = False
    """findings 14.8: with strict-cpu-reservation the last shared CPU of the node can be given away."""
    refused_pods_leave_state: bool = False
    """9.2, 11.2: what a refused pod was given stays until a later clean-up, a pod-level bubble for ever."""
    numa_node_limit: bool = False
    """9.1.4, 11.14: machines with more than max-allowable-numa-nodes (8) are refused, because the merge explodes."""
    distances_by_node_id: bool = False
    """11.12: distance lists are indexed by node id, which crashes with gaps in the ids."""


KUBELET_1_36 = Quirks(**dict.fromkeys(Quirks.__struct_fields__, True))
PODSLICE = Quirks()

PROFILES = {"podslice": PODSLICE, "kubelet-1.36": KUBELET_1_36}


def profile(name: str) -> Quirks:
    """The quirks of a profile by name. Raises `InputError`."""
    try:
        return PROFILES[name]
    except KeyError:
        raise InputError(f"unknown profile {name!r}", remedy=f"use one of: {', '.join(PROFILES)}") from None
