"""What is written into the status of a pod that the node rejects, so that API server and kubelet take it for rejected.

A kubelet that rejects a pod writes phase, reason and message. Here the kubelet has taken the pod, and its own status
counts for it until something else of the pod changes: hence the annotation, which has our explanation and is another
one with every patch. What the kubelet then does not know of containers that never were, it takes from here, unless it
has written a status already. The rest (`startTime`, its conditions, `observedGeneration`) it adds. Whatever it writes
over, it leaves our own condition alone. Seen with v1.36.2 (tests/prediction).
"""

from __future__ import annotations

from typing import Any

from podslice.agent.api_server.moments import rfc3339
from podslice.agent.records import ReportedRefusal
from podslice.api.pod.spec import Container
from podslice.config.annotations import REFUSED, REFUSED_CONDITION
from podslice.values.reasons import REJECTED

_LONGEST_MESSAGE = 1000
_MOST_CONTAINERS = 100
_KILLED = 137


def status_patch(uid: str, refusal: ReportedRefusal, now: float) -> dict[str, Any]:
    """A strategic merge patch of `pods/status`. The UID makes sure that it is this pod and not its successor; `now` is
    Unix time."""
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
    """The message is the kubelet's: our explanation is in the annotation."""
    message = refusal.message[:_LONGEST_MESSAGE]
    told = {"reason": refusal.reason, "message": message, "lastTransitionTime": when}
    return {"type": REFUSED_CONDITION, "status": "True", **told}


def _container_statuses(refusal: ReportedRefusal) -> dict[str, list[dict[str, Any]]]:
    if refusal.spec is None:
        return {}
    spec = refusal.spec.spec
    if len(spec.init_containers) + len(spec.containers) > _MOST_CONTAINERS:
        return {}
    fields = {"initContainerStatuses": spec.init_containers, "containerStatuses": spec.containers}
    return {name: [_never_was(one, refusal) for one in containers] for name, containers in fields.items() if containers}


def _never_was(container: Container, refusal: ReportedRefusal) -> dict[str, Any]:
    """The exit code is that of a kubelet for containers it never saw."""
    ended = {"exitCode": _KILLED, "reason": refusal.reason, "message": refusal.message[:_LONGEST_MESSAGE]}
    counts = {"image": "", "imageID": "", "ready": False, "started": False, "restartCount": 0}
    return {"name": container.name, "state": {"terminated": ended}, "lastState": {}, **counts}
