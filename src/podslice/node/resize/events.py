"""Reports of a kubelet about resizes: pod conditions and events (pod-level-resources 15.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from podslice.api.pod.event import PodEvent
from podslice.api.pod.resizable import resizable_containers
from podslice.api.pod.spec import Container, Pod
from podslice.node.checkpoints.allocation import dump_requirements
from podslice.values.go.gojson import dump_string
from podslice.values.quirks import Quirks

PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"


class ResizeCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A pod condition about resizes; it exists only while it is true."""

    type: Literal["PodResizePending", "PodResizeInProgress"]
    reason: str
    message: str
    observed_generation: int
    status: Literal["True"] = "True"


def pending_condition(reason: str, message: str, generation: int) -> ResizeCondition:
    """Return the condition of a resize that is not granted; `reason` is Deferred or Infeasible, and anything else
    counts as Deferred."""
    return ResizeCondition(PENDING, reason if reason == "Infeasible" else "Deferred", message, generation)


def in_progress_condition(generation: int, error: str = "") -> ResizeCondition:
    """Return the condition of a granted resize whose values are not all written yet; `error`: what failed while
    writing."""
    return ResizeCondition(IN_PROGRESS, "Error" if error else "", error, generation)


def is_new_condition(condition: ResizeCondition, previous: ResizeCondition | None) -> bool:
    """Whether a pending condition deserves an event: its reason or generation is new; a new message alone is not."""
    if previous is None:
        return True
    return (condition.reason, condition.observed_generation) != (previous.reason, previous.observed_generation)


ResizeStep: TypeAlias = Literal["Started", "Completed", "Deferred", "Infeasible", "Error"]
_EVENTS: dict[ResizeStep, tuple[Literal["Normal", "Warning"], str]] = {
    "Started": ("Normal", "Pod resize started"),
    "Completed": ("Normal", "Pod resize completed"),
    "Deferred": ("Warning", "Pod resize Deferred"),
    "Infeasible": ("Warning", "Pod resize Infeasible"),
    "Error": ("Warning", "Pod resize error"),
}


def resize_event(
    kind: ResizeStep,
    pod: Pod,
    gates: Mapping[str, bool],
    quirks: Quirks,
    *,
    error: str = "",
    reason: str = "",
) -> PodEvent:
    """Return the event of one step of a resize. `pod` carries the resources in question and the generation; `error` is
    reported with them. A deferred resize names the `reason` of its refusal in place of Deferred."""
    severity, words = _EVENTS[kind]
    if kind == "Deferred" and reason:
        words = f"Pod resize {reason}"
    return PodEvent(severity, f"Resize{kind}", f"{words}: {_detail(pod, gates, quirks, error)}")


def _detail(pod: Pod, gates: Mapping[str, bool], quirks: Quirks, error: str) -> str:
    """Return the JSON in an event's message; empty members are left out."""
    resizable = {container.name for container in resizable_containers(pod, gates)}
    members = {
        "initContainers": _containers(c for c in pod.spec.init_containers if c.name in resizable),
        "containers": _containers(pod.spec.containers),
        "resources": "",
        "generation": str(pod.metadata.generation or ""),
        "error": dump_string(error) if error else "",
    }
    if pod.spec.resources is not None and not quirks.resize_events_omit_pod_level:
        members["resources"] = dump_requirements(pod.spec.resources)
    listed = ",".join(f'"{name}":{text}' for name, text in members.items() if text)
    return f"{{{listed}}}"


def _containers(containers: Iterable[Container]) -> str:
    listed = [
        f'{{"name":{dump_string(container.name)},"resources":{dump_requirements(container.resources)}}}'
        for container in containers
    ]
    return f"[{','.join(listed)}]" if listed else ""


def restart_note(containers: Sequence[str]) -> str:
    """Return, as a predicate, how a granted resize affects containers with resizePolicy RestartContainer."""
    many = len(containers) > 1
    return f"restarts container{'s' * many} {', '.join(containers)}, as {'their' if many else 'its'} resizePolicy says."
