"""Kubernetes Events on pods: disputes with their node, and preemptions. Limited to a few a second, because a storm of
disputes is in the metrics and the log as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from podslice.cluster.placements import NodeReport
from podslice.node.answers import PodHolding
from podslice.service.apievents import ApiEvents, EventTaker
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.identity import Identity
from podslice.service.pacing import RateLimit
from podslice.values.cpuset import format_bits

DISPUTED, REFUSED, EVICTED = "PodsliceDisputed", "PodsliceRefused", "PodslicePreempted"
PER_SECOND, BURST = 2.0, 20.0


class PodEvents:
    """Events on `pods`, which are there by UID. `run` sends what `emit` was given; `dropped` counts events beyond the
    limit."""

    def __init__(
        self, api: EventTaker, pods: Mapping[str, ScheduledPod], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._events = ApiEvents(api, "podslice-cluster")
        self._limit = RateLimit(clock, per_second=PER_SECOND, burst=BURST)
        self._pods = pods
        self._over = 0
        self.run = self._events.run

    @property
    def dropped(self) -> int:
        return self._over + self._events.dropped

    def emit(self, pod: ScheduledPod, kind: str, reason: str, message: str) -> None:
        """Queue a Normal or Warning event on a pod, unless there are too many."""
        if self._limit.take():
            self._events.emit(Identity(pod.uid, pod.namespace, pod.name, {}), kind, reason, message)
        else:
            self._over += 1

    def emit_dispute(self, report: NodeReport) -> None:
        """Emit an event on a pod for which its node did otherwise than expected, and which is still there."""
        outcome, pod = report.outcome, self._pods.get(report.uid) if report.is_dispute else None
        if pod is None:
            return
        if outcome.kind == "refused":
            self.emit(pod, "Warning", REFUSED, f"{report.node} refused the pod, which its model would have taken")
        else:
            found, expected = _describe(outcome.found), _describe(outcome.expected)
            text = f"{report.node} gave the pod {found}, its model would have given {expected}"
            self.emit(pod, "Warning", DISPUTED, text)

    def emit_preemption(self, outcome: str, victim: ScheduledPod, pod: ScheduledPod) -> None:
        """Emit an event on a victim that leaves for a pod of higher priority (`outcome` is `evicted`)."""
        if outcome != "evicted":
            return
        text = f"Preempted by pod {pod.uid} on node {victim.node}: topology leaves no other room for it"
        self.emit(victim, "Normal", EVICTED, text)


def _describe(holding: PodHolding | None) -> str:
    return "nothing" if holding is None else f"CPUs {format_bits(holding.cpus) or 'none'}"
