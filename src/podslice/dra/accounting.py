"""Accounting of claims among a node's allocatable resources: the slices say what a device takes of them, so that the
scheduler counts it with the requests of pods (KEP-5517, cluster-integration A.7).

The field has changed its name and form with every release so far; the server's schema says which of them it knows.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from podslice.dra.names import DRIVER, capacity_resource

Json = dict[str, Any]
MAPPINGS = "nodeAllocatableResourceMappings"
"""The field in v1.36."""
RESOURCES = "nodeAllocatableResources"
"""The field in v1.37."""


def accounting_field(fields: Container[str]) -> str:
    """Return the field of a Device, among `fields` of the server's schema, that takes the accounting; empty where it
    has none."""
    return next((name for name in (RESOURCES, MAPPINGS) if name in fields), "")


def add_accounting(spec: Json, field: str) -> Json:
    """Return the spec of a slice in which every device says what its capacities count for; unchanged without
    `field`."""
    if not field or "devices" not in spec:
        return spec
    # A server with the gate off drops the field without an error.
    return spec | {"devices": [one | {field: _accounting_entries(one, field)} for one in spec["devices"]]}


def _accounting_entries(device: Json, field: str) -> Json:
    """Return the accounting of a device by resource.

    A device that claims share refers to its capacity by the device's name for it, or the server does not find it. Of
    any other device nothing is consumed, so it counts as a whole.
    """
    # The scheduler multiplies `consumedCapacity`, which it writes only for devices that serve many.
    form = _account_amount if device.get("allowMultipleAllocations") else _account_whole
    return {
        capacity_resource(name.removeprefix(f"{DRIVER}/")): form(name, str(capacity["value"]), field)
        for name, capacity in device["capacity"].items()
    }


def _account_amount(name: str, value: str, field: str) -> Json:
    if field == MAPPINGS:
        return {"capacityKey": name, "allocationMultiplier": "1"}
    return {"mapping": {"capacityKey": name, "capacityMultiplier": "1"}}


def _account_whole(name: str, value: str, field: str) -> Json:
    return {"allocationMultiplier": value} if field == MAPPINGS else {"mapping": {"deviceMultiplier": value}}
