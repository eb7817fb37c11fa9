"""Amounts that the claims of a pod count for beside its requests, as the scheduler of v1.36 computes them with the gate
DRANodeAllocatableResources (KEP-5517, cluster-integration A.7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podslice.api.pod.demand import (
    CountedClaim,
    add_into,
    containers_in_order,
    is_pod_level_requests_set,
    pod_requests,
    requests_of,
)
from podslice.api.pod.spec import Pod, ResourceList
from podslice.dra.allocation.pools import full_name, quantity_of
from podslice.dra.allocation.usage import DeviceGrant
from podslice.values.quantity import ZERO, Quantity

_NANO = 10**9
_ONE = Quantity.parse("1")
_WITHOUT_USER = "claim {}: node-allocatable resource claim not referenced by any container within the pod"
_TOO_SMALL = (
    "pod level request for {} is insufficient to cover the aggregated container and node-allocatable DRA requests"
)


class PodClaim(NamedTuple):
    """A claim by its name in the API and those by which containers of the pod refer to it, and the devices that it
    gets."""

    name: str
    aliases: frozenset[str]
    grants: tuple[DeviceGrant, ...]


def count_claims(pod: Pod, claims: Iterable[PodClaim]) -> tuple[CountedClaim, ...]:
    """Return the entries that the scheduler writes into the pod's status, by name; claims that count for nothing are
    left out."""
    found = []
    # Upstream writes the list sorted by claim name (cluster-integration A.7, step 2).
    for claim in sorted(claims):
        resources = _sum_amounts(claim.grants)
        if resources:
            users = tuple(
                container.name
                for container in containers_in_order(pod)
                if any(one.get("name") in claim.aliases for one in container.resources.claims or ())
            )
            found.append(CountedClaim(claim.name, users, resources))
    return tuple(found)


class Uncounted(NamedTuple):
    """Why no node takes a pod with its claims, in the scheduler's words, and a remedy."""

    message: str
    remedy: str


def claim_in_use(claim: str) -> Uncounted:
    """Return the refusal of a claim that counts for another pod already."""
    message = f"node allocatable resource claim {claim} is already used by another pod"
    return Uncounted(message, "a claim counts for one pod: have each pod make its own from a ResourceClaimTemplate")


def find_problem(pod: Pod, claims: Sequence[CountedClaim]) -> Uncounted | None:
    """Return the scheduler's refusal of a pod with these counted claims; None where it has none."""
    for claim in claims:
        if not claim.containers:
            message = _WITHOUT_USER.format(claim.resource_claim_name)
            return Uncounted(message, "name the claim in resources.claims of the container that uses it")
    if pod.spec.resources is None or not is_pod_level_requests_set(pod):
        return None
    # Overhead is on both sides of upstream's comparison, so it is left out of both (cluster-integration A.7, step 4).
    parts = pod_requests(pod, pod_level=False, overhead=False)
    for claim in claims:
        add_into(parts, claim.resources)
    for name, whole in requests_of(pod.spec.resources).items():
        if whole < parts.get(name, ZERO):
            return Uncounted(_TOO_SMALL.format(name), f"ask for {parts[name]} in spec.resources.requests[{name}]")
    return None


def _sum_amounts(grants: Iterable[DeviceGrant]) -> ResourceList:
    """Return the amounts of the grants by resource; a device without mappings counts for nothing."""
    total: ResourceList = {}
    for grant in grants:
        for resource, mapping in grant.offered.device.node_allocatable_resource_mappings.items():
            factor = mapping.allocation_multiplier or _ONE
            if not mapping.capacity_key:
                add_into(total, {resource: factor})
                continue
            # A capacity that the allocation did not consume contributes nothing.
            consumed = (grant.consumed or {}).get(full_name(grant.offered.driver, mapping.capacity_key))
            if consumed is not None:
                add_into(total, {resource: quantity_of(consumed * factor.nano // _NANO)})
    return total
