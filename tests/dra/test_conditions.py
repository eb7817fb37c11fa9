"""Conditions in a claim's status, beside those that it has already."""

from __future__ import annotations

from typing import Any

from podslice.api.pod.spec import from_dict
from podslice.dra.conditions import status_patch
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import ImpossibleClaimError

POOL, NOW, BEFORE = "n/podslice.io", "2026-11-23T16:00:00Z", "2026-11-23T15:00:00Z"
PROBLEM = ImpossibleClaimError("NothingRequested", "claim default/c asks for nothing")


def result(device: str, share: str | None = None, **more: str) -> dict[str, Any]:
    whole = {"request": "r", "driver": "podslice.io", "pool": POOL, "device": device, **more}
    return whole if share is None else {**whole, "shareID": share}


def claim(*results: dict[str, Any], devices: list[dict[str, Any]] | None = None) -> ResourceClaim:
    status = {"allocation": {"devices": {"results": list(results)}}, "devices": devices or []}
    metadata = {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    return from_dict({"metadata": metadata, "status": status}, ResourceClaim)


def condition(status: str, reason: str, message: str, since: str = BEFORE) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def device_status(*conditions: dict[str, Any], share: str = "s") -> dict[str, Any]:
    return {"driver": "podslice.io", "pool": POOL, "device": "a", "shareID": share, "conditions": list(conditions)}


def make_patch(
    one: ResourceClaim, problem: ImpossibleClaimError | None, *, before: bool = False
) -> list[tuple[str, Any]]:
    """Places and values of what is changed."""
    patch = status_patch(one, problem, pool=POOL, now=NOW, reported=before)
    tests = [{"op": "test", "path": "/metadata/uid", "value": "u"},
             {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]  # fmt: skip
    assert patch[:2] == (tests if patch else [])
    assert all(change["op"] == "add" for change in patch[2:])
    return [(change["path"], change["value"]) for change in patch[2:]]


def test_own_devices_only() -> None:
    """Each device of this node's pool says why; those of other drivers and other nodes are left alone."""
    one = claim(result("a", "s"), result("b"), result("a", pool="m/podslice.io"), result("g", driver="gpu.example.com"))
    why = condition("False", "NothingRequested", str(PROBLEM), NOW)
    assert make_patch(one, PROBLEM) == [
        ("/status/devices", []),
        ("/status/devices/-", {**device_status(why), "device": "a"}),
        ("/status/devices/-", {"driver": "podslice.io", "pool": POOL, "device": "b", "conditions": [why]}),
    ]
    assert make_patch(claim(result("a", pool="m/podslice.io")), PROBLEM) == []
    assert make_patch(claim(), PROBLEM) == []


def test_written_once() -> None:
    """An existing condition is not written again; another reason keeps the time of the last transition."""
    theirs = {"driver": "gpu.example.com", "pool": "n", "device": "g"}
    old = device_status(condition("False", PROBLEM.reason, str(PROBLEM)))
    assert make_patch(claim(result("a", "s"), devices=[old]), PROBLEM) == []
    other = make_patch(claim(result("a", "s"), devices=[theirs, old]), ImpossibleClaimError("AdminAccess", "no"))
    assert other == [("/status/devices/1/conditions", [condition("False", "AdminAccess", "no")])]
    another = make_patch(claim(result("a", "s"), devices=[device_status(share="other")]), PROBLEM)
    assert [path for path, _ in another] == ["/status/devices/-"]


def test_ready_only_after_a_problem() -> None:
    """A claim that is prepared at once is not written; one that had a problem says that it has none, once."""
    assert make_patch(claim(result("a", "s")), None) == []
    old = device_status(condition("False", PROBLEM.reason, str(PROBLEM)))
    better = [("/status/devices/0/conditions", [condition("True", "Prepared", "", NOW)])]
    assert make_patch(claim(result("a", "s"), devices=[old]), None) == better
    now_ready = device_status(condition("True", "Prepared", ""))
    assert make_patch(claim(result("a", "s"), devices=[now_ready]), None) == []
    assert make_patch(claim(result("a", "s")), None, before=True) != []
    assert make_patch(claim(result("a", "s"), devices=[now_ready]), None, before=True) == []
