"""Names of podslice's DRA driver, its pools, devices and capacities (cluster-integration E.5)."""

from __future__ import annotations

import re

from podslice.api.pod.demand import HUGEPAGES_PREFIX

DRIVER = "podslice.io"
NUMA_NODE = "resource.kubernetes.io/numaNode"
_PAGES = re.compile(r"hugepages([0-9]+[KMG]i)\Z")
_DEVICE = "podslice-"


def device_name(part: str) -> str:
    """Return the name of the device that stands for a part of the node's CPUs for claims. It has a prefix because the
    scheduler of v1.36.2 looks devices up without their driver."""
    return f"{_DEVICE}{part}"


def part_of(device: str) -> str:
    """Return the part that a device of ours stands for; empty for another driver's device."""
    return device.removeprefix(_DEVICE) if device.startswith(_DEVICE) else ""


def numa_part(numa: int) -> str:
    """Return the part that claims share of a NUMA node."""
    return f"numa-{numa}"


def pool_name(node: str) -> str:
    """Return the pool of a node."""
    # The name holds the driver's: v1.36 keeps counters by pool name alone (cluster-integration A.6).
    return f"{node}/{DRIVER}"


def capacity_resource(capacity: str) -> str:
    """Return the resource that a capacity of our devices, named without its domain, is an amount of. A capacity's name
    is a C identifier, so huge pages lose their hyphen."""
    pages = _PAGES.match(capacity)
    return capacity if pages is None else f"{HUGEPAGES_PREFIX}{pages[1]}"
