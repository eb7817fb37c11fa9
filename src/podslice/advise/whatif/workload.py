"""A sequence of admissions, in-place resizes and departures, carried out on a node, with the outcome of each resize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from podslice.advise.explain.fixes.edits import with_amounts
from podslice.api.pod.spec import Pod
from podslice.node.decision import Decision, ResizeDecision
from podslice.node.node import Node, with_default_uid
from podslice.node.resize.allocation import DEFERRED
from podslice.values.errors import InputError, UpstreamDefectError
from podslice.values.quantity import Quantity

REFUSED = "Refused"
NOT_THERE = "NotThere"
"""Outcomes of a resize that the API server would not store, and of one of a pod that is not on the node."""


class Admit(NamedTuple):
    """A pod arrives."""

    pod: Pod


class Resize(NamedTuple):
    """A pod of the node (UID, name or namespace/name) requests other amounts: by container, or for the pod as a whole
    (an empty name), and by resource. With `wanted` it requests the amounts of that pod."""

    pod: str
    amounts: Mapping[tuple[str, str], Quantity] = {}
    wanted: Pod | None = None


class Leave(NamedTuple):
    """A pod of the node leaves; deferred resizes are tried again."""

    pod: str


Step: TypeAlias = Admit | Resize | Leave


def resize_to(pod: Pod) -> Resize:
    """Return the step in which a pod of the node requests the resources of this one."""
    pod = with_default_uid(pod)
    return Resize(pod.metadata.uid, wanted=pod)


class ResizeAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of one resize by the end: `Allocated` (also `late`, after it had to wait), `Unchanged`, `Deferred`
    (still waits, or was replaced by another), `Infeasible`, `Refused` by the API server, or `NotThere`."""

    pod: str
    outcome: str
    message: str
    late: bool = False


class WorkloadResult(NamedTuple):
    """The admissions of a sequence, each with its pod, and its resizes, both in order."""

    admissions: tuple[tuple[Pod, Decision | str], ...]
    resizes: tuple[ResizeAnswer, ...]


def carry_out(node: Node, steps: Iterable[Step]) -> WorkloadResult:
    """Carry out the steps on the node. An admission that would crash a kubelet has the name of the defect as its
    result."""
    run = _Run(node)
    for step in steps:
        run.step(step)
    return WorkloadResult(tuple(run.admissions), tuple(run.resizes))


class _Run:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[str, int] = {}
        self.admissions: list[tuple[Pod, Decision | str]] = []
        self.resizes: list[ResizeAnswer] = []

    def step(self, step: Step) -> None:
        """Carry out the next step."""
        if isinstance(step, Admit):
            try:
                self.admissions.append((step.pod, self._node.admit(step.pod)))
            except UpstreamDefectError as defect:
                self.admissions.append((step.pod, defect.name))
        elif isinstance(step, Leave):
            uid = self._uid(step.pod)
            if uid is not None:
                self._node.remove(uid)
                self._settle(self._node.retry_resizes("pods_removed"))
        else:
            self._resize(step)

    def _resize(self, step: Resize) -> None:
        uid = self._uid(step.pod)
        if uid is None:
            self.resizes.append(ResizeAnswer(step.pod, NOT_THERE, "is not on the node"))
            return
        now = self._node.view.pods[uid].spec
        name = now.metadata.full_name
        try:
            answer = self._node.resize(step.wanted or with_amounts(now, step.amounts))
        except InputError as error:
            self.resizes.append(ResizeAnswer(name, REFUSED, error.problem))
            return
        # A resize that gives resources back may let in others that waited.
        self._settle(answer.others)
        self._waiting[uid] = len(self.resizes)
        self.resizes.append(ResizeAnswer(name, answer.outcome, answer.message))

    def _settle(self, tried: Iterable[ResizeDecision]) -> None:
        """Record the new outcomes of deferred resizes that were tried again."""
        for one in tried:
            place = self._waiting.get(one.uid)
            if place is not None and self.resizes[place].outcome == DEFERRED != one.outcome:
                self.resizes[place] = ResizeAnswer(self.resizes[place].pod, one.outcome, one.message, late=True)

    def _uid(self, name: str) -> str | None:
        for uid, pod in self._node.view.pods.items():
            metadata = pod.spec.metadata
            if name in (uid, metadata.name, metadata.full_name):
                return uid
        return None


class Counts(NamedTuple):
    """Numbers of resizes that were granted in the end, still wait, and can never be granted."""

    granted: int
    deferred: int
    infeasible: int


def count_outcomes(resizes: Iterable[ResizeAnswer]) -> Counts:
    """Count the outcomes of a sequence; a resize that the API server refuses counts as infeasible."""
    outcomes = [one.outcome for one in resizes]
    granted = sum(outcome in ("Allocated", "Unchanged") for outcome in outcomes)
    deferred = outcomes.count(DEFERRED)
    return Counts(granted, deferred, len(outcomes) - granted - deferred)
