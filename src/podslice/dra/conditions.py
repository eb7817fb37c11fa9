"""Conditions in a claim's status on its devices of this node (cluster-integration A.4, A.12).

A pod whose claim cannot be prepared waits, and its event expires after an hour; a claim that can never be served gets a
condition that says so. A claim that can be served gets none, unless it had such a condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podslice.dra.names import DRIVER
from podslice.dra.objects import AllocatedDeviceStatus, AllocationResult, DeviceCondition, ResourceClaim
from podslice.dra.prepared import ImpossibleClaimError

READY = "Ready"
FALSE, TRUE = "False", "True"
PREPARED = "Prepared"
Patch = list[dict[str, Any]]


def status_patch(
    claim: ResourceClaim, problem: ImpossibleClaimError | None, *, pool: str, now: str, reported: bool = False
) -> Patch:
    """Return a JSON patch of the claim's status for conditions on its devices of this node's `pool`: why it can never
    be prepared, or that it is after all. Empty where nothing is to change. The patch applies only to the claim as it
    was read.

    - `now`: RFC 3339
    - `reported`: a problem was reported before, which the claim as read may be too old to show

    Server-side apply is not used: it would write the conditions of other drivers anew, and v1.36.2 takes keys in
    another order for a change that only those drivers may make.
    """
    allocation = claim.status.allocation
    results = () if allocation is None else allocation.devices.results
    own = [one for one in results if (one.driver, one.pool) == (DRIVER, pool)]
    known = {(one.driver, one.pool, one.device, one.share_id): place for place, one in enumerate(claim.status.devices)}
    places = [known.get((one.driver, one.pool, one.device, one.share_id)) for one in own]
    before = [None if place is None else _ready_condition(claim.status.devices[place]) for place in places]
    # A claim that was never refused needs no condition, which saves a write for each.
    if problem is None and not reported and all(one is None or one.status != FALSE for one in before):
        return []
    wanted = (TRUE, PREPARED, "") if problem is None else (FALSE, problem.reason, str(problem))
    if all(one is not None and (one.status, one.reason, one.message) == wanted for one in before):
        return []
    patch: Patch = [
        # A claim deleted and made again under its name has another UID; a changed one another resourceVersion.
        {"op": "test", "path": "/metadata/uid", "value": claim.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": claim.metadata.resource_version},
    ]
    if not claim.status.devices:
        # JSON Patch adds to a list only if the list exists.
        patch.append({"op": "add", "path": "/status/devices", "value": []})
    conditions = [[_make_condition(wanted, old, now)] for old in before]
    return patch + list(_device_changes(own, places, conditions))


def _device_changes(
    own: list[AllocationResult], places: list[int | None], conditions: list[list[dict[str, str]]]
) -> Iterator[dict[str, Any]]:
    for one, place, wanted in zip(own, places, conditions, strict=True):
        if place is not None:
            yield {"op": "add", "path": f"/status/devices/{place}/conditions", "value": wanted}
        else:
            device = {"driver": one.driver, "pool": one.pool, "device": one.device, "conditions": wanted}
            if one.share_id is not None:
                device["shareID"] = one.share_id
            yield {"op": "add", "path": "/status/devices/-", "value": device}


def _ready_condition(device: AllocatedDeviceStatus) -> DeviceCondition | None:
    return next((one for one in device.conditions if one.type == READY), None)


def _make_condition(wanted: tuple[str, str, str], old: DeviceCondition | None, now: str) -> dict[str, str]:
    status, reason, message = wanted
    # The time of the last change of `status`, as for all conditions: another message keeps it.
    since = old.last_transition_time if old is not None and old.status == status else now
    return {"type": READY, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
