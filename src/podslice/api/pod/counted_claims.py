"""Claims that the scheduler counts with a pod's requests, as the pod's status names them (cluster-integration A.7)."""

from __future__ import annotations

import msgspec

from podslice.api.pod.spec import Pod, ResourceList, from_dict
from podslice.values.errors import InputError


class CountedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A claim, the containers that have it, and what it counts for."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}


def counted_claims(pod: Pod) -> tuple[CountedClaim, ...]:
    """Those of v1.36; later servers say it in other forms, which are left out."""
    found = []
    for entry in pod.status.node_allocatable_resource_claim_statuses:
        try:
            found.append(from_dict(entry, CountedClaim))
        except InputError:
            continue
    return tuple(found)
