"""`pod_status_manager_state`: the resources that kubelets before 1.33 granted to their pods, with the gate
InPlacePodVerticalScaling on. Kubelets since then keep them in `allocated_pods_state`, and do not read this file.

Up to 1.30 the members stood in the file itself, under a checksum of Go structs, which cannot be recomputed; then as a
JSON string under a checksum of that string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from podslice.api.pod.spec import PodAllocation, ResourceRequirements
from podslice.values.go.godump import decode_data
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import Quantity, QuantityError

FIRST_WITHOUT = 33
"""The minor version of the first kubelet that has other files instead."""


class StatusCheckpoint(NamedTuple):
    """Granted resources by pod UID, and by pod UID the resize that waits (`Proposed`, `Deferred` …)."""

    pods: Mapping[str, PodAllocation]
    resizes: Mapping[str, str]


class _Content(msgspec.Struct):
    allocated: dict[str, dict[str, dict[str, Any] | None] | None] | None = msgspec.field(
        default=None, name="allocationEntries"
    )
    resizes: dict[str, str] | None = msgspec.field(default=None, name="resizeStatusEntries")


def decode(data: bytes) -> StatusCheckpoint:
    """Read the form with a JSON string. Raises `CheckpointError`."""
    return _decode(decode_data(data).data.encode())


def decode_old(data: bytes) -> StatusCheckpoint:
    """Read the form up to 1.30. Raises `CheckpointError`."""
    return _decode(data)


def _decode(data: bytes) -> StatusCheckpoint:
    try:
        content = msgspec.json.decode(data, type=_Content)
    except msgspec.DecodeError as error:
        raise CheckpointError(str(error)) from None
    pods = {
        uid: PodAllocation({name: _requirements(own or {}) for name, own in (named or {}).items()}, None)
        for uid, named in (content.allocated or {}).items()
    }
    return StatusCheckpoint(pods, content.resizes or {})


def _requirements(amounts: Mapping[str, Any]) -> ResourceRequirements:
    """Return what a container was granted: requests and limits, or in older files the requests alone."""
    if not {"requests", "limits"} & set(amounts):
        return ResourceRequirements(requests=_amounts(amounts))
    return ResourceRequirements(limits=_amounts(amounts.get("limits")), requests=_amounts(amounts.get("requests")))


def _amounts(amounts: Any) -> dict[str, Quantity] | None:
    if amounts is None:
        return None
    if not isinstance(amounts, dict):
        raise CheckpointError("granted resources are not an object of quantities")
    try:
        return {name: Quantity.parse(str(text)) for name, text in amounts.items()}
    except QuantityError as error:
        raise CheckpointError(str(error)) from None
