"""The kubelet's records of granted and written pod resources."""

from __future__ import annotations

import json

import pytest

from podslice.api.pod.spec import PodAllocation, ResourceRequirements
from podslice.node.checkpoints.allocation import dump_data, encode, load, restore_failure
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE
from podslice.values.go.godump import data_checksum
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import Quantity

TWO_PODS = {
    "u2": PodAllocation(),
    "u1": PodAllocation(
        {"c": ResourceRequirements(requests={"cpu": Quantity.parse("1")})},
        ResourceRequirements(limits={"memory": Quantity.parse("1Gi")}),
    ),
}
TWO_PODS_DATA = (
    '{"entries":{"u1":{"ContainerResources":{"c":{"requests":{"cpu":"1"}}},'
    '"PodLevelResources":{"limits":{"memory":"1Gi"}}},"u2":{"ContainerResources":{},"PodLevelResources":null}}}'
)


@pytest.mark.parametrize(
    ("allocations", "data", "checksum"),
    [pytest.param({}, "{}", 694314937, id="empty"), pytest.param(TWO_PODS, TWO_PODS_DATA, 2858198257, id="two pods")],
)
def test_written_as_the_kubelet_does(allocations: dict[str, PodAllocation], data: str, checksum: int) -> None:
    """Content and checksum are the kubelet's, byte for byte."""
    assert dump_data(allocations) == data
    assert data_checksum(data) == checksum
    assert encode(allocations) == f'{{"data":{json.dumps(data)},"checksum":{checksum}}}'.encode()


def test_read_back() -> None:
    """A written file reads back the same, missing requests and limits included."""
    assert load(encode(TWO_PODS)) == TWO_PODS
    assert load(encode({})) == {}


def test_a_changed_file_is_refused() -> None:
    """A file whose content does not fit its checksum stops the kubelet with advice."""
    broken = encode(TWO_PODS).replace(b"1Gi", b"2Gi")
    with pytest.raises(CheckpointError, match="corrupted") as error:
        load(broken)
    assert restore_failure(error.value, ALLOCATED_STATE_FILE) == (
        "could not restore state from checkpoint: checkpoint is corrupted, please drain this node and delete pod "
        'resource information checkpoint file "allocated_pods_state" before restarting Kubelet'
    )


def test_a_broken_quantity_is_refused() -> None:
    """Text that is not a quantity does not become a record."""
    data = dump_data(TWO_PODS).replace("1Gi", "1Gy")
    file = f'{{"data":{json.dumps(data)},"checksum":{data_checksum(data)}}}'.encode()
    with pytest.raises(CheckpointError, match="quantities must match"):
        load(file)
