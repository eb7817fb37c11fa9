"""Claims of CPUs among the holders of a node: their UIDs and containers, and the classes of their CPUs (docs/dra.md).

A prepared claim holds CPUs as a pod does, in the same ledgers: its holder is a pod with one container for each device
of the allocation. The holder's UID is that of the claim with a prefix that no pod's UID has; its containers name the
part of the CPUs for claims that the device stands for: a NUMA node, or a part of `podslice.node.plugins.claim_parts`.
"""

from __future__ import annotations

import re
from typing import Final

HOLDER_NAMESPACE: Final = "(claims)"
"""Namespace of holders; its parentheses are invalid in a cluster's namespace."""
CLAIMED: Final = "podslice.io/claimed"
"""Annotation with the containers of a pod, separated by commas, that have CPUs by claims: they own none by their
requests, which repeat the claims for the scheduler. An agent sets it; a user who sets it only gives up the pod's own
CPUs."""
HOLDER_PREFIX: Final = "claim/"
_CONTAINER = re.compile(r"device-[0-9]+-(?:numa-([0-9]{1,4})|([a-z0-9-]+))\Z")


def holder_uid(claim: str) -> str:
    """Return the UID under which the claim of this UID holds CPUs."""
    return f"{HOLDER_PREFIX}{claim}"


def is_holder(uid: str) -> bool:
    """Whether the UID is that of a claim's holder; no Kubernetes UID contains a slash."""
    return uid.startswith(HOLDER_PREFIX)


def claim_uid_of_holder(uid: str) -> str:
    """Return the UID of a holder's claim."""
    return uid.removeprefix(HOLDER_PREFIX)


def holder_container(index: int, part: str) -> str:
    """Return the name of the container that holds the CPUs of one device of the claim, which stands for this part."""
    return f"device-{index}-{part}"


def claims_cpu_class(part: int | str) -> str:
    """Return the CPU class of a NUMA node's CPUs for claims, or of the part of them with this name. Users cannot write
    such a name, as a class name has no slash."""
    return f"claims/{part}"


def holder_cpu_class(container: str) -> str:
    """Return the class whose CPUs this container of a holder gets; empty for a name that no holder's container has."""
    match = _CONTAINER.match(container)
    return claims_cpu_class(match[2] or int(match[1])) if match else ""
