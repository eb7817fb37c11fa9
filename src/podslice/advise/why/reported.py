"""Reads what the API server has of a pod and its events, leniently: a pod is explained also where a field is odd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from podslice.api.manifests.fields import part_of
from podslice.values.reasons import REJECTED


class PodEventLine(msgspec.Struct, frozen=True, rename="camel"):
    """An Event about the pod, `last_seen` in RFC 3339 or empty."""

    type: str
    reason: str
    message: str
    count: int
    last_seen: str
    source: str


class ReportedContainer(NamedTuple):
    """A container's state: `waiting`, `running`, `terminated` or empty, with its reason and message, how it ended
    before (`last`, `exit_code`), and how often it was restarted."""

    name: str
    state: str
    reason: str
    message: str
    last: str
    exit_code: int | None
    restarts: int


class ReportedPod(NamedTuple):
    """A pod as the API server has it. `reason` and `message` are those of the status; `unscheduled` is the scheduler's
    message; `started` is when the kubelet took it, or refused it. `owner` is the kind of its controller, empty for
    none."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    reason: str
    message: str
    unscheduled: str
    started: str
    ended: str
    owner: str
    containers: tuple[ReportedContainer, ...]

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


def _items(data: Any) -> Iterator[Mapping[str, Any]]:
    return map(part_of, data if isinstance(data, list) else ())


def _text(data: Any) -> str:
    return " ".join(data.split()) if isinstance(data, str) else ""


def _number(data: Any) -> int | None:
    return data if isinstance(data, int) and not isinstance(data, bool) else None


def read_reported(data: Mapping[str, Any]) -> ReportedPod:
    """Read a v1 Pod."""
    metadata, spec, status = (part_of(data, name) for name in ("metadata", "spec", "status"))
    owners = [one for one in _items(metadata.get("ownerReferences")) if one.get("controller")]
    states = [*_items(status.get("initContainerStatuses")), *_items(status.get("containerStatuses"))]
    return ReportedPod(
        namespace=_text(metadata.get("namespace")) or "default",
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        node=_text(spec.get("nodeName")),
        phase=_text(status.get("phase")),
        reason=_text(status.get("reason")),
        message=_text(status.get("message")).removeprefix(REJECTED),
        unscheduled=_unscheduled(status),
        started=_text(status.get("startTime")),
        ended=max((_text(part_of(one, "state", "terminated").get("finishedAt")) for one in states),
                  default=""),
        owner=_text(owners[0].get("kind")) if owners else "",
        containers=tuple(map(_container, states)),
    )  # fmt: skip


def _unscheduled(status: Mapping[str, Any]) -> str:
    for condition in _items(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (_text(condition.get("reason")), _text(condition.get("message")))))
    return ""


def _container(data: Mapping[str, Any]) -> ReportedContainer:
    state = part_of(data, "state")
    kind = next((one for one in ("waiting", "terminated", "running") if one in state), "")
    now, last = part_of(state, kind), part_of(data, "lastState", "terminated")
    ended = now if kind == "terminated" else last
    return ReportedContainer(
        _text(data.get("name")), kind, _text(now.get("reason")), _text(now.get("message")), _text(last.get("reason")),
        _number(ended.get("exitCode")), _number(data.get("restartCount")) or 0,
    )  # fmt: skip


def read_events(events: Iterable[Any]) -> tuple[PodEventLine, ...]:
    """Return Events as lines, oldest first."""
    return tuple(sorted(map(_event, filter(None, map(part_of, events))), key=lambda line: line.last_seen))


def _event(event: Mapping[str, Any]) -> PodEventLine:
    series, source = part_of(event, "series"), part_of(event, "source")
    # Events of events.k8s.io count in `series`, those of core/v1 beside it.
    count = series.get("count") or event.get("count")
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return PodEventLine(
        type=str(event.get("type") or ""),
        reason=str(event.get("reason") or ""),
        message=" ".join(str(event.get("message") or event.get("note") or "").split()),
        count=count if isinstance(count, int) and count > 0 else 1,
        last_seen=str(seen),
        source=str(event.get("reportingComponent") or source.get("component") or ""),
    )
