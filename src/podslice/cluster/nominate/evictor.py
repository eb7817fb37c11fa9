"""Evictions for pods that only topology keeps out, through the Eviction API (off by default).

kube-scheduler preempts where sums are short. Where only topology is in the way it finds no victims, so a pod that it
refused everywhere, without a nomination of its own, is handled here. The model chooses the victims; a dry run checks
every one of them first, so that a PodDisruptionBudget that forbids one spares the others. The room is held before
victims leave, and for as long as they take.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from podslice.cluster.model.eviction import Evictable, Eviction
from podslice.cluster.nominate.nominator import Nominator
from podslice.cluster.placements import Placements
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.http.apiconnection import AnswerError
from podslice.values.errors import PodsliceError

_GONE = (404, 409)
"""The victim is gone already, or is another pod of its name."""
_FORBIDDEN = 429
"""A PodDisruptionBudget forbids the eviction now."""


class EvictionApi(Protocol):
    """The call that is made to the API server."""

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None: ...


class EvictionLimits(NamedTuple):
    """Bounds of evictions. Times are in seconds.

    - `open`: most pods whose victims are leaving. `waiting`: most refused pods that are remembered.
    - `pause`: between two steps. `rest`: before a pod is tried again for which there were no victims, or in vain.
    - `spared`: before a pod that a PodDisruptionBudget kept is a victim again.
    - `patience`: how long victims may take to leave.
    """

    open: int = 8
    waiting: int = 4096
    pause: float = 1.0
    rest: float = 30.0
    spared: float = 60.0
    patience: float = 3600.0


class Preemption(NamedTuple):
    """A pod that waits for its victims to leave, and since when."""

    pod: ScheduledPod
    node: str
    victims: tuple[ScheduledPod, ...]
    since: float


VictimListener = Callable[[str, ScheduledPod, ScheduledPod], object]
"""Called with the outcome of a victim (`evicted`, `spared` or `failed`), the victim, and the pod that it leaves for."""


class Evictor:
    """`on_victim` is called with the outcome of each victim, `failed` with errors of the API server."""

    def __init__(
        self,
        placing: Placements,
        nominator: Nominator,
        api: EvictionApi,
        *,
        on_victim: VictimListener,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        limits: EvictionLimits | None = None,
    ) -> None:
        self.limits = limits or EvictionLimits()
        self.open: dict[str, Preemption] = {}
        """Preemptions under way, by UID of the pod that waits."""
        self._placing, self._nominator, self._api = placing, nominator, api
        self._on_victim, self._failed, self._clock, self._sleep = on_victim, failed, clock, sleep
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._resting: dict[Hashable, float] = {}
        self._spared: dict[str, float] = {}

    def consider(self, pod: ScheduledPod) -> None:
        """Remember a pending pod, if its scheduler found no node for it and nominated none."""
        if pod.refused and not pod.nominated and pod.preempts and len(self._refused) < self.limits.waiting:
            self._refused[pod.uid] = None

    async def run(self) -> None:
        """Make room for one pod at a time, the highest priority first, for ever."""
        while True:
            await self._sleep(self.limits.pause)
            self._update_open()
            pod = self._next()
            if pod is not None:
                await self._make_room(pod)

    # Pods that wait

    def _update_open(self) -> None:
        """Keep the holds of pods whose victims are leaving; close the cases of pods that have a node or waited too
        long."""
        now = self._clock()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        self._spared = {uid: until for uid, until in self._spared.items() if until > now}
        for uid, case in list(self.open.items()):
            pod = self._waiting_pod(uid)
            leaving = [one for one in case.victims if one.uid in self._placing.pods]
            if pod is None:
                del self.open[uid]
            elif leaving and now - case.since < self.limits.patience:
                if not self._placing.model.keep_room(uid, now):
                    self._give_up(uid)
            elif self._placing.model.hold_of(uid) is None:
                self._give_up(uid)
            elif pod.nominated != case.node and self._nominator.ahead.get(uid) == case.node:
                self._nominator.nominate_soon(pod, case.node)

    def _give_up(self, uid: str) -> None:
        """Close the case of a pod, and let it rest."""
        del self.open[uid]
        self._resting[uid] = self._clock() + self.limits.rest

    def _waiting_pod(self, uid: str) -> ScheduledPod | None:
        pod = self._placing.pods.get(uid)
        return None if pod is None or pod.node or pod.deleting else pod

    def _next(self) -> ScheduledPod | None:
        """Return the refused pod with the highest priority, the earliest of equal ones."""
        if len(self.open) >= self.limits.open:
            return None
        best: ScheduledPod | None = None
        for uid in list(self._refused):
            pod = self._waiting_pod(uid)
            if pod is None:
                del self._refused[uid]
            elif self._can_preempt(pod) and (best is None or pod.priority > best.priority):
                best = pod
        return best

    def _can_preempt(self, pod: ScheduledPod) -> bool:
        if pod.uid in self.open or pod.uid in self._resting or pod.uid in self._nominator.ahead or pod.nominated:
            return False
        return self._placing.can_nominate(pod) and self._placing.kind_of(pod) not in self._resting

    # Victims

    async def _make_room(self, pod: ScheduledPod) -> None:
        choice = self._choose(pod)
        if choice is None:
            self._resting[self._placing.kind_of(pod)] = self._clock() + self.limits.rest
            return
        victims = tuple(self._placing.pods[uid] for uid in choice.victims)
        self.open[pod.uid] = Preemption(pod, choice.node, victims, self._clock())
        self._nominator.reserve(pod, choice.node)
        try:
            done = await self._evict(pod, victims, dry_run=True)
            # The dry run took time, in which the pod may have been bound or deleted.
            if done and self._waiting_pod(pod.uid) is not None:
                self._nominator.nominate_soon(pod, choice.node)
                done = await self._evict(pod, victims, dry_run=False)
        except ApiError as error:
            self._failed(str(error))
            self._resting[pod.uid], done = self._clock() + self.limits.rest, False
        if not done:
            self._give_back(pod)

    def _choose(self, pod: ScheduledPod) -> Eviction | None:
        placing = self._placing
        try:
            names = placing.places.among(pod.terms)
            return placing.model.preempt(
                pod.pod, self._clock(), names=names, running=self._running, below=pod.priority,
                states=placing.state_of,
            )  # fmt: skip
        except PodsliceError as error:
            self._failed(f"{pod.namespace}/{pod.name}: {error}")
            return None

    def _running(self, node: str) -> Sequence[Evictable]:
        """Return the pods of a node that can be evicted, or are leaving anyway; no static pods, and none that a budget
        keeps."""
        return [
            Evictable(pod.uid, pod.priority, pod.started, pod.deleting)
            for pod in self._placing.on_node(node)
            if not pod.mirror and (pod.deleting or pod.uid not in self._spared)
        ]

    async def _evict(self, pod: ScheduledPod, victims: Sequence[ScheduledPod], *, dry_run: bool) -> bool:
        """Evict all victims, or check it with a dry run; return False where one may not leave. Raises `ApiError`."""
        for one in victims:
            try:
                await self._api.evict(one.namespace, one.name, one.uid, dry_run=dry_run)
            except AnswerError as error:
                if error.code in _GONE:
                    continue
                if error.code != _FORBIDDEN:
                    self._on_victim("failed", one, pod)
                    raise
                self._spared[one.uid] = self._clock() + self.limits.spared
                self._on_victim("spared", one, pod)
                return False
            if not dry_run:
                self._on_victim("evicted", one, pod)
        return True

    def _give_back(self, pod: ScheduledPod) -> None:
        """Drop the hold of a pod, which waits in line again as any other."""
        self.open.pop(pod.uid, None)
        waiting = self._waiting_pod(pod.uid)
        if waiting is not None and self._placing.model.hold_of(pod.uid) is not None:
            self._placing.model.unbind(pod.uid)
            self._nominator.drop(pod.uid)
            self._placing.events.pending(waiting)
            self._placing.events.room_freed()
