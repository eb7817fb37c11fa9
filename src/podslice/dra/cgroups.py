"""Cgroup settings that a container's claims add to those of its specification (cluster-integration A.8).

A kubelet of v1.36 writes cgroups by the specification alone, one of v1.37 adds the claims that the scheduler has
counted. Claims that are not counted are repeated in the specification, so their memory is in it already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from podslice.api.pod.demand import container_limits, counted_claims
from podslice.api.pod.spec import Pod
from podslice.dra.prepared import PreparedClaim, PreparedDevice
from podslice.node.effects.cpu_weight import milli_cpu_to_shares
from podslice.values.quantity import ZERO

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.|\Z)")
_ADDS = (1, 37)
ClaimedPart = tuple[PreparedClaim, PreparedDevice]
"""A claim, and one of its devices."""


class ClaimedLimits(NamedTuple):
    """`shares`: the least weight, as cgroup v1 counts it. `memory`: the limit including the claims, in bytes; None
    where they add nothing, or nothing is limited."""

    shares: int = 0
    memory: int | None = None


NOTHING = ClaimedLimits()


def kubelet_adds(version: str) -> bool | None:
    """Whether a kubelet of this version counts claims in its cgroups itself; None for text that is not a version."""
    match = _VERSION.match(version)
    return None if match is None else (int(match[1]), int(match[2])) >= _ADDS


def claimed_limits(pod: Pod | None, container: str, parts: Iterable[ClaimedPart]) -> ClaimedLimits:
    """Return the limits of a container that has these parts of claims; `pod` is None where it is unknown. The memory
    limit starts from the specification: what a runtime reports may contain the claims already."""
    listed = list(parts)
    cpus = sum(device.cpus for _, device in listed)
    # A pod with claims alone is BestEffort to the kubelet of v1.36, with the least weight there is (cluster-integration
    # A.8).
    shares = milli_cpu_to_shares(cpus * 1000) if cpus else 0
    if pod is None:
        return ClaimedLimits(shares)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    own = next((container_limits(one).get("memory", ZERO).value() for one in containers if one.name == container), 0)
    added = counted_memory(pod, listed)
    # Without a limit of its own the container is unlimited, with or without claims.
    return ClaimedLimits(shares, own + added if own and added else None)


def counted_memory(pod: Pod, parts: Iterable[ClaimedPart]) -> int:
    """Return the bytes in these parts of claims that the scheduler has counted for the pod."""
    counted = {one.resource_claim_name for one in counted_claims(pod)}
    return sum(device.memory.get("memory", 0) for claim, device in parts if claim.name in counted)
