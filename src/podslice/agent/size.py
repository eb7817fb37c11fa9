"""How large a pod may be, so that deciding about it takes a small part of the time a runtime waits.

Kubernetes bounds a pod only by the size of its object. What costs us is what the managers look at: containers and
resources. No pod of a real node comes near these bounds.
"""

from __future__ import annotations

import msgspec

from podslice.core.pod.spec import Pod
from podslice.core.values.quantity import Quantity

MOST_BITS = 256
MOST_CONTAINERS = 200
MOST_RESOURCES = 32
MOST_AMOUNTS = 2000
LARGEST_SPECIFICATION = 256 << 10


def too_large(pod: Pod) -> str:
    """Why nothing is decided about a pod; empty for one that is small enough."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if len(containers) > MOST_CONTAINERS:
        return f"it has {len(containers)} containers, at most {MOST_CONTAINERS} are decided about"
    listed = [one.resources for one in containers]
    listed += [pod.spec.resources] if pod.spec.resources is not None else []
    names: set[str] = set()
    amounts = 0
    for resources in listed:
        for quantities in (resources.requests or {}, resources.limits or {}):
            names.update(quantities)
            amounts += len(quantities)
            odd = next((name for name, amount in quantities.items() if _is_odd(amount)), None)
            if odd is not None:
                return f"the amount of {odd[:80]} is not an amount of anything"
    if len(names) > MOST_RESOURCES:
        return f"it names {len(names)} resources, at most {MOST_RESOURCES} are decided about"
    if amounts > MOST_AMOUNTS:
        return f"it has {amounts} requests and limits, at most {MOST_AMOUNTS} are decided about"
    size = len(msgspec.json.encode(pod, enc_hook=str))
    if size > LARGEST_SPECIFICATION:
        return f"what the managers read of it is {size} bytes, at most {LARGEST_SPECIFICATION} are decided about"
    return ""


def _is_odd(amount: Quantity) -> bool:
    """A number whose sums would take long: far beyond what fits into 64 bits."""
    return amount.nano.bit_length() > MOST_BITS
