"""Compare a resize with the prediction: the answer, the order of messages to the runtime, the pod's cgroup, the records
of granted and written resources, and the events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from podslice.node.checkpoints.allocation import load
from podslice.node.checkpoints.names import ACTUATED_STATE_FILE
from podslice.node.decision import ResizeDecision
from podslice.node.effects.cpu_weight import MIN_SHARES
from podslice.node.effects.resize_actions import Actuation
from podslice.node.effects.resize_plan import ContainerResize, LinuxValues, NotifyRuntime, UpdateContainer
from podslice.node.effects.tree import PodEffects
from tools.prediction import compare
from tools.prediction.model import Model
from tools.prediction.node import OneNode, soon
from tools.prediction.notes import Notes
from tools.prediction.runtime import RUNNING

Json = dict[str, Any]
_PATIENCE = 12.0
_END = "ResizeCompleted"
_MANY_EVENTS = 18
"""A kubelet sends 25 events about a pod at once, then one in five minutes."""
_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class Resizing:
    """Resizes one pod after the other on both sides."""

    def __init__(self, notes: Notes, node: OneNode, model: Model) -> None:
        self._notes, self._node, self._model = notes, node, model
        self.updated: dict[str, Json] = {}
        """The last message to each container in the last resize, by name."""

    def resize(self, pod: Json, wanted: Json) -> tuple[ResizeDecision, Json]:
        """Give a running pod another `spec`. Returns podslice's answer, and the pod as the API server has it then.
        Raises `StatusError` where the API server refuses."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        updates_before = len(self._node.runtime.updates)
        reports_events = sum(event.get("count") or 1 for event in self._node.events(uid)) < _MANY_EVENTS
        observed = self._cgroup(uid)
        running = {own.name for own in self._node.runtime.of_pod(uid) if own.state == RUNNING}
        found = self._node.resize(name, wanted)
        actuated = self._model.actuated.get(uid)
        decision = self._model.resize(found)
        self._notes.counts["resizes"] += 1
        self._compare_conditions(name, decision)
        if reports_events and found["metadata"]["generation"] != pod["metadata"]["generation"]:
            self._compare_events(found, decision)
        if decision.outcome == "Allocated":
            self._notes.counts["resizes carried out"] += 1
            actuation = self._model.actuation(uid, actuated, observed, running)
            self._compare_messages(uid, actuation, updates_before)
            self._model.record_write(uid, actuation)
        self._compare_record()
        return decision, found

    def _cgroup(self, uid: str) -> LinuxValues:
        return compare.linux_values(self._node.kubelet.cgroup_files(self._model.cgroup_path(uid)))

    def _compare_conditions(self, name: str, decision: ResizeDecision) -> None:
        """Compare the pod's conditions; a granted resize is in progress for a moment only."""
        condition = decision.condition
        refused = condition is not None and condition.type == _PENDING
        predicted = [(condition.type, condition.reason, condition.message)] if condition is not None and refused else []

        def real() -> list[tuple[str, str, str]]:
            listed = self._node.get(name)["status"]["conditions"]
            return [
                (own["type"], own.get("reason", ""), own.get("message", ""))
                for own in listed
                if own["type"] in (_PENDING, _IN_PROGRESS)
            ]

        soon(lambda: real() == predicted, _PATIENCE)
        self._notes.same("conditions about the resize", real(), predicted)

    def _compare_events(self, pod: Json, decision: ResizeDecision) -> None:
        generation = f'"generation":{pod["metadata"]["generation"]}'
        predicted = sorted((event.type, event.reason, event.message) for event in self._model.events(decision))

        def real() -> list[tuple[str, str, str]]:
            return sorted(
                (event["type"], event["reason"], event["message"])
                for event in self._node.events(pod["metadata"]["uid"])
                if event["reason"].startswith("Resize") and generation in event["message"]
            )

        soon(lambda: _without_ends(real()) == _without_ends(predicted), _PATIENCE)
        wrong = sum(event not in predicted for event in real() if event[1] == _END)
        self._notes.counts["completions reported with the old resources"] += wrong
        self._notes.counts["events about resizes"] += len(predicted)
        self._notes.same("events about the resize", _without_ends(real()), _without_ends(predicted))

    def _compare_messages(self, uid: str, actuation: Actuation, updates_before: int) -> None:
        predicted = list(_messages(actuation, self._model.effects(uid)))
        self.updated = {whom: values for whom, values in predicted if whom}

        def real() -> list[tuple[str, Json]]:
            updates = [own for own in self._node.runtime.updates[updates_before:] if own.uid == uid]
            return [(own.container, compare.normalise_update(own)) for own in updates if not compare.pins_only(own)]

        soon(lambda: real() == predicted, _PATIENCE)
        self._notes.counts["messages about resizes"] += len(predicted)
        for (who, own), (whom, expected) in zip(real(), predicted, strict=False):
            self._notes.same(f"message to the runtime about {who or 'the sandbox'}", (who, own), (whom, expected))
        self._notes.same("whom the messages are about", [who for who, _ in real()], [whom for whom, _ in predicted])
        values = actuation.resize().target
        soon(lambda: _covers(self._cgroup(uid), values), _PATIENCE)
        self._notes.same(
            "cgroup of the resized pod", _values_to_write(self._cgroup(uid), values), _values_to_write(values, values)
        )

    def _compare_record(self) -> None:
        def pair() -> tuple[bytes, bytes]:
            real = self._node.kubelet.file(ACTUATED_STATE_FILE)
            return real, self._model.make_actuated_file(load(real) if real else ())

        soon(lambda: len(set(pair())) == 1, _PATIENCE)
        real, predicted = pair()
        self._notes.counts["records of what was written"] += 1
        self._notes.same(ACTUATED_STATE_FILE, real.decode(), predicted.decode())


def _without_ends(events: Sequence[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], bool]:
    """Return the other events, and whether the completion was reported: a kubelet may report it with the old resources,
    or twice."""
    others = [event for event in events if event[1] != _END]
    return others, len(others) < len(events)


def _messages(actuation: Actuation, effects: PodEffects) -> Iterator[tuple[str, Json]]:
    """Yield the messages to the runtime step by step. An update of a container always has all values, even if only one
    resource is new."""
    resizes = {one.name: one for one in actuation.resize().containers}
    full = {own.name: compare.resources(own.resources) for own in effects.containers}
    for step in actuation.plan().steps:
        if isinstance(step, NotifyRuntime):
            yield "", compare.sandbox_values(step.sandbox)
        elif isinstance(step, UpdateContainer):
            one = resizes[step.container]
            yield step.container, {**full[step.container], **_values(step, one)}


def _values(step: UpdateContainer, one: ContainerResize) -> Json:
    """Memory comes first, with the CPUs as they are; then both are as they should be. A container without a request has
    the least weight from its first update on."""
    cpu = one.current if step.resource == "memory" else one.target
    weightless = one.target.cpu_shares == MIN_SHARES
    return {
        "cpu_shares": MIN_SHARES if weightless else cpu.cpu_shares or 0,
        "cpu_quota": cpu.cpu_quota or 0,
    }


def _values_to_write(values: LinuxValues, wanted: LinuxValues) -> Json:
    """Return the values that are to be written, memory in whole pages."""
    names = ("cpu_shares", "cpu_quota", "cpu_period", "memory")
    known = {name: getattr(values, name) for name in names if getattr(wanted, name) is not None}
    return {name: compare.whole_pages(own) if name == "memory" else own for name, own in known.items()}


def _covers(values: LinuxValues, wanted: LinuxValues) -> bool:
    return _values_to_write(values, wanted) == _values_to_write(wanted, wanted)
