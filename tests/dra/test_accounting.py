"""Accounting in slices: in the form that the server knows, and in none where it knows none."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.dra.accounting import MAPPINGS, RESOURCES, accounting_field, add_accounting


def test_which_form() -> None:
    """The newest that the server has."""
    assert accounting_field({"name", MAPPINGS}) == MAPPINGS
    assert accounting_field({MAPPINGS, RESOURCES}) == RESOURCES
    assert accounting_field({"name", "capacity"}) == ""


@pytest.mark.parametrize(
    ("field", "one"),
    [
        (MAPPINGS, lambda key: {"capacityKey": key, "allocationMultiplier": "1"}),
        (RESOURCES, lambda key: {"mapping": {"capacityKey": key, "capacityMultiplier": "1"}}),
    ],
)
def test_all_capacities(field: str, one: Any) -> None:
    """CPUs, memory and huge pages under the resources' names; nothing else is another."""
    keys = {"cpu": "podslice.io/cpu", "memory": "podslice.io/memory", "hugepages-2Mi": "podslice.io/hugepages2Mi"}
    before = {
        "name": "podslice-numa-0",
        "allowMultipleAllocations": True,
        "capacity": {key: {"value": "8"} for key in keys.values()},
    }
    spec = {"driver": "podslice.io", "devices": [before]}
    counts = {resource: one(key) for resource, key in keys.items()}
    assert add_accounting(spec, field) == {"driver": "podslice.io", "devices": [before | {field: counts}]}
    assert add_accounting(spec, "") is spec


@pytest.mark.parametrize(
    ("field", "counts"),
    [(MAPPINGS, {"allocationMultiplier": "2"}), (RESOURCES, {"mapping": {"deviceMultiplier": "2"}})],
)
def test_whole_devices(field: str, counts: dict[str, Any]) -> None:
    """A device of its own consumes nothing, so it counts as a whole; counters count for nothing."""
    core = {"name": "podslice-core-4", "capacity": {"podslice.io/cpu": {"value": "2"}}}
    assert add_accounting({"devices": [core]}, field) == {"devices": [core | {field: {"cpu": counts}}]}
    assert add_accounting({"sharedCounters": []}, field) == {"sharedCounters": []}
