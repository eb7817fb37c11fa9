"""Waiting resizes: their order, and when they are retried (pod-level-resources 15.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from podslice.api.pod.demand import GUARANTEED, pod_qos
from podslice.api.pod.resizable import containers_to_restart
from podslice.api.pod.spec import Pod
from podslice.node.resize.allocation import DEFERRED, INFEASIBLE, ResizeVerdict, grows, shrinks
from podslice.values.series import Series, series
from podslice.values.tables import drop, put

RetryTrigger = Literal["pod_updated", "pods_added", "pods_removed", "pod_terminated", "pod_resized", "periodic_retry"]
"""The reason for which a kubelet retries; `periodic_retry` comes every 30 s while sources are not ready and once at the
start, then every 180 s."""


SortKey: TypeAlias = Callable[[Pod], tuple[tuple[int, ...], ...]]
"""Key by which plugins order a pod among those that wait with it."""


class PendingResize(NamedTuple):
    """One waiting pod: as allocated, as desired, and since when its PodResizePending condition stands (seconds of any
    clock; None before there is one)."""

    allocated: Pod
    desired: Pod
    since: float | None = None


class Attempt(NamedTuple):
    """One attempt to resize a pod, its trigger, and the containers that it restarts; `pod` is as desired."""

    pod: Pod
    verdict: ResizeVerdict
    trigger: RetryTrigger
    restarts: tuple[str, ...] = ()

    @property
    def uid(self) -> str:
        """UID of the pod."""
        return self.pod.metadata.uid


def sort_pending(
    pending: Iterable[PendingResize], gates: Mapping[str, bool], sort_key: SortKey | None = None
) -> list[PendingResize]:
    """Return resizes in the order they are tried: those that raise neither cpu nor memory request first, then higher
    priority, Guaranteed pods, the plugins' order (`sort_key`), and those that have waited longest. Equals keep the
    given order."""

    def key(resize: PendingResize) -> tuple[bool, int, bool, tuple[tuple[int, ...], ...], float]:
        return (
            grows(resize.desired, resize.allocated, gates),
            -(resize.desired.spec.priority or 0),
            pod_qos(resize.desired, gates) != GUARANTEED,
            () if sort_key is None else sort_key(resize.desired),
            float("inf") if resize.since is None else resize.since,
        )

    return sorted(pending, key=key)


class Waiting(msgspec.Struct, frozen=True):
    """Content of a queue: waiting pods in the order they are tried, and those of them that were deferred."""

    pending: dict[str, PendingResize] = {}
    deferred: frozenset[str] = frozenset()

    def drop(self, uid: str) -> Waiting:
        """Return the content without a pod."""
        return Waiting(drop(self.pending, uid), self.deferred - {uid})


class ResizeQueue:
    """The pending resizes of one kubelet. A pod that joins has the list sorted; one that is in it keeps its place."""

    __slots__ = ("gates", "metrics", "state")

    def __init__(self, gates: Mapping[str, bool], state: Waiting | None = None) -> None:
        self.gates = gates
        self.state = state or Waiting()
        self.metrics: defaultdict[Series, int] = defaultdict(int)

    def copy(self) -> ResizeQueue:
        """Return a queue in the same state with its own counters."""
        other = ResizeQueue(self.gates, self.state)
        other.metrics = self.metrics.copy()
        return other

    @property
    def uids(self) -> list[str]:
        """UIDs of waiting pods in the order they are tried."""
        return list(self.state.pending)

    def submit(self, resize: PendingResize, sort_key: SortKey | None = None) -> None:
        """Add a pod whose specification changed."""
        uid, pending = resize.desired.metadata.uid, self.state.pending
        known = pending.get(uid)
        # A pod that asks again keeps its place and its time of waiting.
        if known is not None:
            pending = put(pending, uid, resize if known.since is None else resize._replace(since=known.since))
        elif not pending:
            pending = {uid: resize}
        else:
            waiting = sort_pending([*pending.values(), resize], self.gates, sort_key)
            pending = {one.desired.metadata.uid: one for one in waiting}
        self.state = replace(self.state, pending=pending)

    def drop(self, uid: str) -> None:
        """Remove a pod that is gone."""
        if uid in self.state.pending:
            self.state = self.state.drop(uid)

    def retry(self, trigger: RetryTrigger, attempt: Callable[[PendingResize], ResizeVerdict]) -> list[Attempt]:
        """Try all waiting resizes in order; when a granted one freed something, try the rest once more."""
        attempts: list[Attempt] = []
        again: RetryTrigger | None = trigger
        while again is not None:
            trigger, again = again, None
            # The table is replaced when a resize leaves the queue, never changed, so this loop sees all of them.
            for uid, resize in self.state.pending.items():
                verdict = attempt(resize)
                restarts = (
                    containers_to_restart(resize.allocated, resize.desired) if verdict.outcome == "Allocated" else ()
                )
                attempts.append(Attempt(resize.desired, verdict, trigger, restarts))
                self._settle(uid, verdict, trigger)
                granted = verdict.outcome == "Allocated" and self.state.pending
                if granted and shrinks(resize.desired, resize.allocated, self.gates):
                    again = "pod_resized"
        return attempts

    def _settle(self, uid: str, verdict: ResizeVerdict, trigger: RetryTrigger) -> None:
        """Count a verdict, and take the resize off the queue unless it is deferred."""
        if verdict.outcome == DEFERRED:
            self.state = replace(self.state, deferred=self.state.deferred | {uid})
            return
        if verdict.outcome == INFEASIBLE:
            self._count(series("pod_infeasible_resizes_total", reason_detail=verdict.detail))
        elif verdict.outcome == "Allocated" and uid in self.state.deferred:
            self._count(series("pod_deferred_accepted_resizes_total", retry_trigger=trigger))
        self.drop(uid)

    def _count(self, metric: Series) -> None:
        self.metrics[metric] += 1
