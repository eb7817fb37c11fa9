"""Room that only journals show: a Node's annotation is changed, and schedulers look at refused pods again.

kube-scheduler puts away a pod that the extender refused until anything happens to the cluster, five minutes at most,
and sees nothing of what nodes tell the service. Who is nominated ahead needs no waking. Of all others the nodes that
refused them are remembered; once one takes such a pod again, that is said of this Node, an event for which every
refused pod is tried again. So little is said: few Nodes in a turn, a turn a second, and the less it helps a kind of
pods the more rarely.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from podslice.cluster.loop_turn import LoopTurn
from podslice.cluster.model.openings import Openings
from podslice.cluster.nominate.nominator import Nominator
from podslice.cluster.placements import Placements
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.http.apiconnection import AnswerError
from podslice.service.podlist import ApiError
from podslice.values.errors import PodsliceError

_GONE = 404
"""The node is not there any more."""


class RequeueAPI(Protocol):
    """What is asked of an API server."""

    async def wake(self, node: str, value: str) -> None: ...


class RequeueLimits(NamedTuple):
    """`kinds` of pods, at most; in a turn so many of them get `looks`, and so many `nodes` are said to have room.
    Seconds: `pause` between turns, and of a kind that was woken, which doubles up to `longest` and begins anew after a
    `calm` in which it had nothing to wake for; `each`: what the scheduler is given to try one waiting pod again."""

    kinds: int = 256
    looks: int = 16
    nodes: int = 2
    pause: float = 1.0
    longest: float = 300.0
    calm: float = 60.0
    each: float = 0.001


class RefusedKind:
    """Pods of one kind by UID. They are not woken before `until`; `rest` is how long that was from when they were."""

    __slots__ = ("openings", "rest", "uids", "until")

    def __init__(self, openings: Openings) -> None:
        self.openings = openings
        self.uids: dict[str, None] = {}
        self.rest = self.until = 0.0

    def reset_pause(self) -> None:
        """One of them has a node."""
        self.rest = self.until = 0.0

    def lengthen_pause(self, now: float, limits: RequeueLimits) -> None:
        """They rest longer each time."""
        again = self.rest and now < self.until + limits.calm
        self.rest = min(2 * self.rest, limits.longest) if again else limits.pause
        self.until = now + self.rest


class Requeuer:
    """The scheduler tries the pods that wait for `nominator` again with those here. `failed` is called with what an API
    server answers that does not do it."""

    def __init__(
        self,
        placing: Placements,
        nominator: Nominator,
        api: RequeueAPI,
        *,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        limits: RequeueLimits | None = None,
    ) -> None:
        self.limits = limits or RequeueLimits()
        self._placing, self._nominator, self._api = placing, nominator, api
        self._failed, self._clock = failed, clock
        self._kinds: OrderedDict[Hashable, RefusedKind] = OrderedDict()
        """Those that were looked at last come last."""
        self._kind_of: dict[str, Hashable] = {}
        self._quiet = 0.0
        """Until when nobody is woken: the scheduler still tries the pods that were."""

    @property
    def waiting(self) -> int:
        """Pods that are remembered."""
        return len(self._kind_of)

    # News

    def add_refused(self, pod: ScheduledPod, names: Sequence[str]) -> None:
        """None of these nodes takes the pod, which nobody nominates ahead and which wants something for itself."""
        key = self._kind_of.get(pod.uid) or self._enter(pod)
        if key is not None:
            self._kinds[key].openings.record_refusals(names)

    def _enter(self, pod: ScheduledPod) -> Hashable | None:
        """The pod's kind; None for one that cannot be read, or where there is no room for more kinds."""
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
        """The pod was refused before anybody asked here: by every node, as far as can be told."""
        places, known = self._placing.places, len(self._kinds)
        if self._placing.wants_exclusive(pod) and self._enter(pod) is not None and len(self._kinds) > known:
            names = places.among(pod.terms)
            self.add_refused(pod, list(places.nodes) if names is None else names)

    def drop(self, uid: str, *, placed: bool = False) -> None:
        """A pod waits no longer, or is nominated ahead."""
        key = self._kind_of.pop(uid, None)
        if key is None:
            return
        kind = self._kinds[key]
        del kind.uids[uid]
        if placed:
            kind.reset_pause()
        if not kind.uids:
            del self._kinds[key]

    # Work

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(self.limits.pause)
            await self._take_turn()

    async def _take_turn(self) -> None:
        now, turn, told = self._clock(), LoopTurn(), list[str]()
        if now < self._quiet:
            return
        due = [key for key, kind in self._kinds.items() if kind.until <= now and kind.openings.has_changes]
        for key in due[: self.limits.looks]:
            kind = self._kinds.get(key)
            if kind is not None and self._has_waiting_pod(kind):
                self._kinds.move_to_end(key)
                if not await self._announce_room(kind, told, turn) or len(told) == self.limits.nodes:
                    break
            await turn.give_way()
        if told:
            self._quiet = now + self.limits.each * (self.waiting + self._nominator.waiting)

    def _has_waiting_pod(self, kind: RefusedKind) -> bool:
        """True while one of them has no node and is not on its way to any."""
        for uid in list(kind.uids):
            pod = self._placing.pods.get(uid)
            if pod is None or not self._placing.is_waiting(pod):
                self.drop(uid)
            elif self._placing.model.hold_of(uid) is None:
                return True
        return False

    async def _announce_room(self, kind: RefusedKind, told: list[str], turn: LoopTurn) -> bool:
        """Say of a node that there is room, once one takes such pods that did not; one that was told in this turn will
        do. False where nobody heard it."""
        openings = kind.openings
        names = sorted(openings.take_changed(), key=lambda name: name not in told)
        for name, cause in self._placing.model.verdicts.ask_each(openings.signature, names):
            if not cause:
                break
            openings.record_refusals([name])
            await turn.give_way()
        else:
            return True
        kind.lengthen_pause(self._clock(), self.limits)
        try:
            if name not in told:
                await self._api.wake(name, f"{time.time():.0f}")
                told.append(name)
            return True
        except ApiError as error:
            openings.retry(names)
            if not (isinstance(error, AnswerError) and error.code == _GONE):
                self._failed(str(error))
            return False
