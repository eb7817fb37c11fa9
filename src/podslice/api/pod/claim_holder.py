"""Claims of CPUs among the holders of a node: their UIDs and containers, and the classes of their CPUs (docs/dra.md).

A claim that is prepared holds CPUs as a pod does, in the same ledgers: its holder is a pod of one container for each
device of the allocation. Its UID is that of the claim with a prefix that no pod's has, its containers name the part of
the CPUs for claims that the devices stand for: a NUMA node, or a part of `podslice.node.plugins.claim_parts`.
"""

from __future__ import annotations

import re
from typing import Final

HOLDER_NAMESPACE: Final = "(claims)"
"""No namespace of a cluster is called so."""
CLAIMED: Final = "podslice.io/claimed"
"""Annotation with the containers of a pod, with commas, that have CPUs by claims: none are theirs by requests, which
repeat the claims for the scheduler. An agent sets it; whoever else does gives up CPUs of their own."""
HOLDER_PREFIX: Final = "claim/"
_CONTAINER = re.compile(r"device-[0-9]+-(?:numa-([0-9]{1,4})|([a-z0-9-]+))\Z")


def holder_uid(claim: str) -> str:
    """The UID under which the claim of this UID holds CPUs."""
    return f"{HOLDER_PREFIX}{claim}"


def is_holder(uid: str) -> bool:
    """True for the UID of a claim's holder; no Kubernetes UID contains a slash."""
    return uid.startswith(HOLDER_PREFIX)


def claim_of_holder(uid: str) -> str:
    """The claim's own UID."""
    return uid.removeprefix(HOLDER_PREFIX)


def holder_container(index: int, part: str) -> str:
    """The container that holds the CPUs of one device of the claim, which stands for this part."""
    return f"device-{index}-{part}"


def claim_class(part: int | str) -> str:
    """The class of the CPUs of a NUMA node that only claims own, or what of them is in a part; nobody can write such a
    name."""
    return f"claims/{part}"


def class_of_holder(container: str) -> str:
    """The class whose CPUs this container of a holder gets; empty for a name that no holder's container has."""
    match = _CONTAINER.match(container)
    return claim_class(match[2] or int(match[1])) if match else ""
