"""Requeues of refused pods, for room that only journals show: an annotation of a Node is changed.

kube-scheduler parks a pod that the extender refused until an event of the cluster, at most five minutes, and sees
nothing of the nodes' journals. Pods that are nominated ahead need no requeue. For all others the nodes that refused
them are remembered. Once one of them takes such a pod again, its Node's annotation is changed: an event for which the
scheduler tries every refused pod again. Because that is expensive, few Nodes are changed in a turn, a turn takes a
second, and a kind of pods that it does not help waits longer each time.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from podslice.cluster.model.openings import Openings
from podslice.cluster.nominate.nominator import Nominator
from podslice.cluster.placements import Placements
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.http.apiconnection import AnswerError
from podslice.service.pacing import LoopTurn
from podslice.values.errors import PodsliceError

_GONE = 404
"""The Node is gone."""


class RequeueApi(Protocol):
    """The call that is made to the API server."""

    async def wake(self, node: str, value: str) -> None: ...


class RequeueLimits(NamedTuple):
    """Bounds of requeues. Times are in seconds.

    - `kinds`: most kinds of pods. In a turn, `looks`: most kinds that are checked; `nodes`: most Nodes that are
      changed.
    - `pause`: between turns, and for a kind after its requeue, doubled each time up to `longest`, and reset after a
      `calm` time without requeues.
    - `each`: the time that the scheduler gets for trying one waiting pod again.
    """

    kinds: int = 256
    looks: int = 16
    nodes: int = 2
    pause: float = 1.0
    longest: float = 300.0
    calm: float = 60.0
    each: float = 0.001


class RefusedKind:
    """Refused pods of one kind by UID. They are not requeued before `until`; `rest` is the length of that pause."""

    __slots__ = ("openings", "rest", "uids", "until")

    def __init__(self, openings: Openings) -> None:
        self.openings = openings
        self.uids: dict[str, None] = {}
        self.rest = self.until = 0.0

    def reset_pause(self) -> None:
        """Reset the pause, because a pod of this kind was bound."""
        self.rest = self.until = 0.0

    def lengthen_pause(self, now: float, limits: RequeueLimits) -> None:
        """Note a requeue; the pause after it doubles each time."""
        again = self.rest and now < self.until + limits.calm
        self.rest = min(2 * self.rest, limits.longest) if again else limits.pause
        self.until = now + self.rest


class Requeuer:
    """Requeues refused pods. The scheduler then tries those that wait for `nominator` as well. `failed` is called with
    errors of the API server."""

    def __init__(
        self,
        placing: Placements,
        nominator: Nominator,
        api: RequeueApi,
        *,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        limits: RequeueLimits | None = None,
    ) -> None:
        self.limits = limits or RequeueLimits()
        self._placing, self._nominator, self._api = placing, nominator, api
        self._failed, self._clock = failed, clock
        self._kinds: OrderedDict[Hashable, RefusedKind] = OrderedDict()
        """In the order of their latest check, the latest last."""
        self._kind_of: dict[str, Hashable] = {}
        self._quiet = 0.0
        """Time before which nothing is requeued, because the scheduler still tries the pods of the last time."""

    @property
    def waiting(self) -> int:
        """Number of pods that are remembered."""
        return len(self._kind_of)

    # Events

    def add_refused(self, pod: ScheduledPod, names: Sequence[str]) -> None:
        """Remember a pod with exclusive resources that these nodes refused and that is not nominated ahead."""
        key = self._kind_of.get(pod.uid) or self._enter(pod)
        if key is not None:
            self._kinds[key].openings.record_refusals(names)

    def _enter(self, pod: ScheduledPod) -> Hashable | None:
        """Remember a pod, and return its kind; None for one that cannot be read, or where there are too many kinds."""
        model = self._placing.model
        try:
            key = self._placing.kind_of(pod)
        except PodsliceError:
            return None
        if key not in self._kinds:
            if len(self._kinds) >= self.limits.kinds:
                return None
            self._kinds[key] = RefusedKind(Openings(model.verdicts, model.classes.signature(pod.pod)))
        self._kind_of[pod.uid] = key
        self._kinds[key].uids[pod.uid] = None
        return key

    def add_listed(self, pod: ScheduledPod) -> None:
        """Remember a pod that was refused before the service began. Which nodes refused it is unknown: all eligible
        ones are assumed."""
        places, known = self._placing.places, len(self._kinds)
        if self._placing.wants_exclusive(pod) and self._enter(pod) is not None and len(self._kinds) > known:
            names = places.among(pod.terms)
            self.add_refused(pod, list(places.nodes) if names is None else names)

    def drop(self, uid: str, *, placed: bool = False) -> None:
        """Forget a pod that waits no longer, or is nominated ahead."""
        key = self._kind_of.pop(uid, None)
        if key is None:
            return
        kind = self._kinds[key]
        del kind.uids[uid]
        if placed:
            kind.reset_pause()
        if not kind.uids:
            del self._kinds[key]

    # The loop

    async def run(self) -> None:
        """Take a turn each `pause`, for ever."""
        while True:
            await asyncio.sleep(self.limits.pause)
            await self._take_turn()

    async def _take_turn(self) -> None:
        now, turn, announced = self._clock(), LoopTurn(), list[str]()
        if now < self._quiet:
            return
        due = [key for key, kind in self._kinds.items() if kind.until <= now and kind.openings.has_changes]
        for key in due[: self.limits.looks]:
            # Other work ran since `due` was made: the kind may be gone.
            kind = self._kinds.get(key)
            if kind is not None and self._has_waiting_pod(kind):
                self._kinds.move_to_end(key)
                if not await self._announce_room(kind, announced, turn) or len(announced) == self.limits.nodes:
                    break
            await turn.give_way()
        if announced:
            self._quiet = now + self.limits.each * (self.waiting + self._nominator.waiting)

    def _has_waiting_pod(self, kind: RefusedKind) -> bool:
        """Whether a pod of this kind still waits without a hold; forgets those that wait no longer."""
        for uid in list(kind.uids):
            pod = self._placing.pods.get(uid)
            if pod is None or not self._placing.is_waiting(pod):
                self.drop(uid)
            elif self._placing.model.hold_of(uid) is None:
                return True
        return False

    async def _announce_room(self, kind: RefusedKind, announced: list[str], turn: LoopTurn) -> bool:
        """Change the annotation of a node that takes such pods and did not before; one that was changed in this turn is
        enough. Returns False where the API server failed."""
        openings = kind.openings
        # A Node that was annotated in this turn comes first: it needs no further write.
        names = sorted(openings.take_changed(), key=lambda name: name not in announced)
        for name, cause in self._placing.model.verdicts.ask_each(openings.signature, names):
            if not cause:
                break
            openings.record_refusals([name])
            await turn.give_way()
        else:
            return True
        kind.lengthen_pause(self._clock(), self.limits)
        try:
            if name not in announced:
                await self._api.wake(name, f"{time.time():.0f}")
                announced.append(name)
            return True
        except ApiError as error:
            openings.retry(names)
            if not (isinstance(error, AnswerError) and error.code == _GONE):
                self._failed(str(error))
            return False
