"""What claims take of a node's allocatable resources, said in slices so that the scheduler counts it with the requests
of pods (KEP-5517, cluster-integration A.7).

The field has changed its name and form with every release so far: which of them a server knows, its schema says.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from podslice.dra.names import DRIVER, capacity_resource

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
    if not field or "devices" not in spec:
        return spec
    return spec | {"devices": [one | {field: _counting(one, field)} for one in spec["devices"]]}


def _counting(device: Json, field: str) -> Json:
    """By resource. Of a device that claims share the capacity is named as the device names it, or the server does not
    find it; of any other nothing is consumed, so it counts as a whole."""
    form = _of_amounts if device.get("allowMultipleAllocations") else _of_whole
    return {
        capacity_resource(name.removeprefix(f"{DRIVER}/")): form(name, str(capacity["value"]), field)
        for name, capacity in device["capacity"].items()
    }


def _of_amounts(name: str, value: str, field: str) -> Json:
    if field == MAPPINGS:
        return {"capacityKey": name, "allocationMultiplier": "1"}
    return {"mapping": {"capacityKey": name, "capacityMultiplier": "1"}}


def _of_whole(name: str, value: str, field: str) -> Json:
    return {"allocationMultiplier": value} if field == MAPPINGS else {"mapping": {"deviceMultiplier": value}}
