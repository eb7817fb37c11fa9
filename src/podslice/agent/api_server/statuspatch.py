"""The status patch for a pod that the node rejects, so that API server and kubelet treat it as rejected.

A kubelet that rejects a pod writes phase, reason and message. Here the kubelet has admitted the pod, and keeps to its
own status until something else of the pod changes: hence the annotation, which has our explanation and differs in every
patch. The kubelet then takes the statuses of containers that never existed from here, unless it has written some
already. It adds the rest (`startTime`, its conditions, `observedGeneration`), and never overwrites our own condition.
Observed with v1.36.2 (tests/prediction).
"""

from __future__ import annotations

from typing import Any

from podslice.agent.api_server.timestamps import rfc3339
from podslice.agent.records import ReportedRefusal
from podslice.api.pod.spec import Container
from podslice.config.annotations import REFUSED, REFUSED_CONDITION
from podslice.values.reasons import REJECTED

_LONGEST_MESSAGE = 1000
_MOST_CONTAINERS = 100
_KILLED = 137


def status_patch(uid: str, refusal: ReportedRefusal, now: float) -> dict[str, Any]:
    """Return a strategic merge patch of `pods/status`. `now`: Unix time. The UID makes the server refuse it for the
    pod's successor."""
    when = rfc3339(now)
    note = f"{when} {refusal.reason}: {refusal.why or refusal.message}"[:_LONGEST_MESSAGE]
    return {
        "metadata": {"uid": uid, "annotations": {REFUSED: note}},
        "status": {
            "phase": "Failed",
            "reason": refusal.reason,
            "message": (REJECTED + refusal.message)[:_LONGEST_MESSAGE],
            "conditions": [_condition(refusal, when)],
            **_container_statuses(refusal),
        },
    }


def _condition(refusal: ReportedRefusal, when: str) -> dict[str, str]:
    """Return our condition, with the kubelet's message: our explanation is in the annotation."""
    message = refusal.message[:_LONGEST_MESSAGE]
    fields = {"reason": refusal.reason, "message": message, "lastTransitionTime": when}
    return {"type": REFUSED_CONDITION, "status": "True", **fields}


def _container_statuses(refusal: ReportedRefusal) -> dict[str, list[dict[str, Any]]]:
    if refusal.spec is None:
        return {}
    spec = refusal.spec.spec
    if len(spec.init_containers) + len(spec.containers) > _MOST_CONTAINERS:
        return {}
    fields = {"initContainerStatuses": spec.init_containers, "containerStatuses": spec.containers}
    return {
        name: [_terminated_status(one, refusal) for one in containers]
        for name, containers in fields.items()
        if containers
    }


def _terminated_status(container: Container, refusal: ReportedRefusal) -> dict[str, Any]:
    """Return the status of a container that never ran, with the exit code that a kubelet writes for it."""
    ended = {"exitCode": _KILLED, "reason": refusal.reason, "message": refusal.message[:_LONGEST_MESSAGE]}
    counts = {"image": "", "imageID": "", "ready": False, "started": False, "restartCount": 0}
    return {"name": container.name, "state": {"terminated": ended}, "lastState": {}, **counts}
