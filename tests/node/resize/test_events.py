"""Conditions and events of resizes."""

from __future__ import annotations

import pytest

from podslice.node.resize.events import (
    in_progress_condition,
    is_new_condition,
    pending_condition,
    resize_event,
)
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.resize.helpers import GATES, burstable, pod, resources

SIDECAR = {"name": "s", "image": "busybox", "restartPolicy": "Always", **burstable("100m", "1Mi")}


@pytest.mark.parametrize(
    ("kind", "severity", "reason", "words"),
    [
        ("Started", "Normal", "ResizeStarted", "Pod resize started: "),
        ("Completed", "Normal", "ResizeCompleted", "Pod resize completed: "),
        ("Deferred", "Warning", "ResizeDeferred", "Pod resize Deferred: "),
        ("Infeasible", "Warning", "ResizeInfeasible", "Pod resize Infeasible: "),
        ("Error", "Warning", "ResizeError", "Pod resize error: "),
    ],
)
def test_events(kind: str, severity: str, reason: str, words: str) -> None:
    """Each step has its event, whose message ends in JSON."""
    one = pod(burstable("1"), init=[SIDECAR], generation=3)
    event = resize_event(kind, one, GATES, PODSLICE, error='no "room"')  # type: ignore[arg-type]
    assert (event.type, event.reason) == (severity, reason)
    assert event.message == (
        f'{words}{{"initContainers":[{{"name":"s","resources":{{"requests":{{"cpu":"100m","memory":"1Mi"}}}}}}],'
        '"containers":[{"name":"c0","resources":{"requests":{"cpu":"1","memory":"64Mi"}}}],"generation":3,'
        '"error":"no \\"room\\""}'
    )


def test_pod_level_resources_in_events() -> None:
    """The pod's own resources are part of the message; v1.36.2 leaves them out."""
    one = pod({}, pod_level=resources({"cpu": "1"}, {"cpu": "2"}), generation=3)
    assert '"resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}},"generation"' in (
        resize_event("Started", one, GATES, PODSLICE).message
    )
    assert resize_event("Started", one, GATES, KUBELET_1_36).message == (
        'Pod resize started: {"containers":[{"name":"c0","resources":{}}],"generation":3}'
    )


def test_conditions() -> None:
    """Pending resizes say why, those in progress only when something went wrong."""
    pending = pending_condition("OutOfcpu", "no room", 2)
    assert (pending.type, pending.status, pending.reason) == ("PodResizePending", "True", "Deferred")
    assert pending_condition("Infeasible", "never", 2).reason == "Infeasible"
    assert in_progress_condition(2).reason == ""
    broken = in_progress_condition(2, "disk on fire")
    assert (broken.type, broken.reason, broken.message) == ("PodResizeInProgress", "Error", "disk on fire")


def test_pending_events_do_not_repeat() -> None:
    """Only a new reason or generation is worth another event."""
    known = pending_condition("Deferred", "no room", 2)
    assert is_new_condition(known, None)
    assert not is_new_condition(pending_condition("Deferred", "still no room", 2), known)
    assert is_new_condition(pending_condition("Infeasible", "no room", 2), known)
    assert is_new_condition(pending_condition("Deferred", "no room", 3), known)


def test_a_resize_that_is_put_off_names_the_refusal() -> None:
    """The words of a real kubelet's event: the reason of the refusal, where there is one; its own reason stays."""
    event = resize_event("Deferred", pod(burstable("1")), GATES, PODSLICE, error="no room", reason="OutOfcpu")
    assert event.reason == "ResizeDeferred"
    assert event.message.startswith("Pod resize OutOfcpu: {")
