"""What claims take of a node's allocatable resources, said in slices so that the scheduler counts it with the requests
of pods (KEP-5517, cluster-integration A.7).

The field has changed its name and form with every release so far: which of them a server knows, its schema says.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from podslice.core.dra.numa_devices import DRIVER, capacity_resource

Json = dict[str, Any]
MAPPINGS = "nodeAllocatableResourceMappings"
"""The field of v1.36."""
RESOURCES = "nodeAllocatableResources"
"""The field of v1.37."""


def accounting_field(fields: Container[str]) -> str:
    """The field in which a server takes what devices count for, by the names of a Device's fields; empty for one that
    has none that is known."""
    return next((name for name in (RESOURCES, MAPPINGS) if name in fields), "")


def accounted(spec: Json, field: str) -> Json:
    """The spec of a slice, in which every device says what its capacities count for; without `field` as it was."""
    if not field:
        return spec
    return spec | {"devices": [one | {field: _counting(one, field)} for one in spec["devices"]]}


def _counting(device: Json, field: str) -> Json:
    """By resource. The capacity is named as the device names it, or the server does not find it."""
    return {
        capacity_resource(name.removeprefix(f"{DRIVER}/")): (
            {"capacityKey": name, "allocationMultiplier": "1"}
            if field == MAPPINGS
            else {"mapping": {"capacityKey": name, "capacityMultiplier": "1"}}
        )
        for name in device["capacity"]
    }
