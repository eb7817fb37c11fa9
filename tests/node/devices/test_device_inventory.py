"""Devices listed in a file (`inventory_from_data`)."""

from __future__ import annotations

import pytest

from podslice.machine.devices import (
    Device,
    DeviceInventory,
    DeviceResource,
    inventory_from_data,
    is_extended_resource_name,
)
from podslice.values.errors import InputError


def test_recorded_form():
    """The list form gives ids, NUMA nodes and health; missing or empty `numa` is not a topology."""
    data = [
        {
            "resource": "example.com/nic",
            "devices": [{"id": "d0", "numa": [0]}, {"id": "d1", "numa": [], "health": "Bad"}, {"id": "d2", "numa": 1}],
            "preferredAllocation": False,
        }
    ]
    devices = (Device("d0", (0,)), Device("d1", None, "Bad"), Device("d2", (1,)))
    assert inventory_from_data(data) == DeviceInventory((DeviceResource("example.com/nic", devices, False),))


def test_short_forms():
    """Devices can be counted per NUMA node or without topology; ids follow the resource's name."""
    data = {
        "devices": [
            {"resource": "nvidia.com/gpu", "perNUMANode": {0: 2, "1": 1}},
            {"resource": "x.io/fpga", "count": 1},
        ]
    }
    gpu, fpga = inventory_from_data(data).resources
    assert gpu.devices == (Device("gpu-0", (0,)), Device("gpu-1", (0,)), Device("gpu-2", (1,)))
    assert fpga.devices == (Device("fpga-0"),)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param({"device": []}, "devices", id="no list"),
        pytest.param("x", "devices", id="not a list"),
        pytest.param([3], "devices[0]", id="not a resource"),
        pytest.param([{"resource": "gpu", "count": 1}], "devices[0].resource", id="not an extended resource"),
        pytest.param([{"resource": "a.b/c"}], "devices[0]", id="no devices"),
        pytest.param([{"resource": "a.b/c", "count": 1, "devices": []}], "devices[0]", id="two forms"),
        pytest.param([{"resource": "a.b/c", "cuont": 1}], "devices[0]", id="unknown field"),
        pytest.param([{"resource": "a.b/c", "count": -1}], "devices[0].count", id="negative"),
        pytest.param([{"resource": "a.b/c", "count": True}], "devices[0].count", id="not a number"),
        pytest.param([{"resource": "a.b/c", "perNUMANode": {64: 1}}], "devices[0].perNUMANode", id="node too large"),
        pytest.param([{"resource": "a.b/c", "perNUMANode": [1]}], "devices[0].perNUMANode", id="not a mapping"),
        pytest.param([{"resource": "a.b/c", "devices": {}}], "devices[0].devices", id="devices not a list"),
        pytest.param([{"resource": "a.b/c", "devices": [{"numa": 0}]}], "devices[0].devices[0]", id="no id"),
        pytest.param(
            [{"resource": "a.b/c", "devices": [{"id": "x"}, {"id": "x"}]}], "devices[0].devices[1]", id="id twice"
        ),
        pytest.param(
            [{"resource": "a.b/c", "devices": [{"id": "x", "numa": "0"}]}], "devices[0].devices[0].numa", id="bad node"
        ),
        pytest.param(
            [{"resource": "a.b/c", "devices": [{"id": "x", "nmua": 0}]}], "devices[0].devices[0]", id="unknown key"
        ),
        pytest.param([{"resource": "a.b/c", "count": 1}] * 2, "devices[1]", id="resource twice"),
        pytest.param(
            [{"resource": "a.b/c", "count": 1, "preferredAllocation": 1}],
            "devices[0].preferredAllocation",
            id="not a truth value",
        ),
    ],
)
def test_unusable_data(data, place):
    """Every mistake is one error with its place and a remedy."""
    with pytest.raises(InputError) as caught:
        inventory_from_data(data, source="devices.yaml")
    error = caught.value
    assert error.source == "devices.yaml"
    assert place in ("devices", error.path)
    assert error.remedy


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("example.com/gpu", True),
        ("a/B_c.d", True),
        ("cpu", False),
        ("kubernetes.io/x", False),
        ("requests.example.com/x", False),
        ("Example.com/x", False),
        ("example.com/", False),
        ("example.com/" + "x" * 64, False),
        ("a/b/c", False),
    ],
)
def test_extended_resource_names(name, valid):
    """Only names a plugin may register count as extended resources."""
    assert is_extended_resource_name(name) is valid
