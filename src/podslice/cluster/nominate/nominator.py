"""Nominations ahead: a node for each pending pod before kube-scheduler looks at it, written into the pod's status.

The scheduler then tries that node first, and a scheduling cycle filters one node instead of all. Pods with equal needs
wait in one line, so that a full cluster costs one decision per kind of pod, not one per pod. A nomination is only a
proposal: filter and bind check again, and a pod that was not nominated in time is scheduled as usual.

A nomination costs the API server more than a filter of a few hundred nodes costs the scheduler. So a new pod is left to
the scheduler for a while (`patience`) before it joins its line; one that was refused joins at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import inf
from typing import NamedTuple

from podslice.cluster.apiclient import ClusterApi
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.http.apiconnection import AnswerError
from podslice.service.pacing import LoopTurn

_GONE = (404, 409, 422)
"""The pod is gone, is another of its name, or is bound: it needs no nomination."""
_COALESCE = 0.02
"""Seconds in which announcements of free room are gathered before lines are tried again."""


def _nominate_at_once() -> float:
    return 0.0


class NominationLimits(NamedTuple):
    """`ahead`: most pods that are nominated and not bound; `calls`: most requests to the API server at a time; `lines`:
    most kinds of pods that wait."""

    ahead: int = 512
    calls: int = 16
    lines: int = 1024


class WaitingLine:
    """Pending pods of one kind and priority, the earliest first. `blocked`: no node takes the first."""

    __slots__ = ("blocked", "pods", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.pods: OrderedDict[str, tuple[int, ScheduledPod]] = OrderedDict()
        self.blocked = False

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of lines: the highest priority first, then the earliest pod."""
        number, _ = next(iter(self.pods.values()))
        return -self.priority, number


class Nominator:
    """Nominates pods.

    - `choose`: holds a node for a pod and returns it, empty where none takes the pod. `release`: drops the hold.
    - `kind_of`: returns a key, equal for pods that get equal answers.
    - `failed`: called with errors of the API server.
    - `patience`: returns the seconds for which a new pod is left to the scheduler; `inf` until it was refused.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        choose: Callable[[ScheduledPod], str],
        release: Callable[[str], None],
        kind_of: Callable[[ScheduledPod], Hashable],
        failed: Callable[[str], None],
        limits: NominationLimits | None = None,
        patience: Callable[[], float] = _nominate_at_once,
    ) -> None:
        self.limits = limits or NominationLimits()
        self.ahead: dict[str, str] = {}
        """Nodes of pods that are nominated, or about to be, and not bound yet, by UID."""
        self.nominated = 0
        self._api, self._choose, self._release, self._kind_of, self._failed = api, choose, release, kind_of, failed
        self._patience = patience
        self._new: OrderedDict[str, tuple[float, ScheduledPod]] = OrderedDict()
        """Pods that are left to the scheduler, and when they came, by UID; the earliest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._lines: dict[Hashable, WaitingLine] = {}
        self._line_of: dict[str, Hashable] = {}
        self._came = 0
        self._due = asyncio.Event()
        self._calls = asyncio.Semaphore(self.limits.calls)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Number of pods in lines, or on their way to one."""
        return len(self._line_of) + len(self._new)

    def has(self, uid: str) -> bool:
        """Whether a pod is in a line, or on its way to one, or nominated."""
        return uid in self._line_of or uid in self.ahead or uid in self._new

    # Events

    def add(self, pod: ScheduledPod) -> None:
        """Add a pending pod: to its line, or first to the pods that are left to the scheduler."""
        if self.has(pod.uid):
            return
        patience = 0.0 if pod.refused else self._patience()
        if patience <= 0:
            self._join(pod)
            return
        # One that is left to the scheduler for good has no time, and needs no event loop.
        came = asyncio.get_running_loop().time() if patience < inf else 0.0
        self._new[pod.uid] = came, pod
        self._set_timer(patience)

    def add_refused(self, uid: str) -> None:
        """Add a pod that the scheduler's filter refused to its line, if it was left to the scheduler until now."""
        found = self._new.pop(uid, None)
        if found is not None:
            self._join(found[1])

    def _set_timer(self, seconds: float) -> None:
        if self._timer is None and seconds < inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._join_waiting)

    def _join_waiting(self) -> None:
        """Add the pods to their lines that the scheduler has left waiting for long enough."""
        self._timer = None
        now, patience = asyncio.get_running_loop().time(), self._patience()
        while self._new:
            came, pod = next(iter(self._new.values()))
            if came + patience > now:
                self._set_timer(came + patience - now)
                return
            del self._new[pod.uid]
            self._join(pod)

    def _join(self, pod: ScheduledPod) -> None:
        """Add a pod to its line; nothing where there are too many lines."""
        key = self._kind_of(pod)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= self.limits.lines:
                return
            line = self._lines[key] = WaitingLine(pod.priority)
        self._came += 1
        line.pods[pod.uid] = self._came, pod
        self._line_of[pod.uid] = key
        if not line.blocked:
            self._due.set()

    def drop(self, uid: str) -> None:
        """Drop a pod that is bound, gone, or was filtered elsewhere."""
        if self.ahead.pop(uid, None) is not None:
            self._due.set()
        self._leave(uid)

    def _leave(self, uid: str) -> None:
        self._new.pop(uid, None)
        key = self._line_of.pop(uid, None)
        if key is None:
            return
        line = self._lines[key]
        del line.pods[uid]
        if not line.pods:
            del self._lines[key]

    def reserve(self, pod: ScheduledPod, node: str) -> None:
        """Note that a node is held for a pod, which leaves its line."""
        self._leave(pod.uid)
        self.ahead[pod.uid] = node

    def nominate_soon(self, pod: ScheduledPod, node: str) -> None:
        """Write a nomination in the background; the change of status makes the scheduler try the pod again."""
        task = asyncio.ensure_future(self._write(pod, node))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def unblock(self) -> None:
        """Try all lines again, because there may be room."""
        for line in self._lines.values():
            line.blocked = False
        if self._lines:
            self._due.set()

    # The loop

    async def run(self) -> None:
        """Nominate pods for ever."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_COALESCE if self.ahead else 0)
            self._due.clear()
            turn = LoopTurn()
            while (pod := self._next()) is not None:
                self._nominate(pod)
                # Choose no faster than nominations can be written.
                await self._calls.acquire()
                self._calls.release()
                await turn.give_way()

    def _next(self) -> ScheduledPod | None:
        if len(self.ahead) >= self.limits.ahead:
            return None
        ready = [line for line in self._lines.values() if not line.blocked]
        if not ready:
            return None
        line = min(ready, key=lambda one: one.rank)
        return next(iter(line.pods.values()))[1]

    def _nominate(self, pod: ScheduledPod) -> None:
        """Choose a node for the first pod of a line, or block the line."""
        node = self._choose(pod)
        if not node:
            self._lines[self._line_of[pod.uid]].blocked = True
            return
        self.reserve(pod, node)
        if pod.nominated != node:
            self.nominate_soon(pod, node)

    async def _write(self, pod: ScheduledPod, node: str) -> None:
        async with self._calls:
            # Bound or dropped while it waited for a free call.
            if self.ahead.get(pod.uid) != node:
                return
            try:
                await self._api.nominate(pod.namespace, pod.name, pod.uid, node)
                self.nominated += 1
                return
            except AnswerError as error:
                again = error.code not in _GONE
                if again:
                    self._failed(str(error))
            except ApiError as error:
                self._failed(str(error))
                again = True
        # A nomination that was not written keeps no hold; nothing to do where the pod was dropped or moved meanwhile.
        if self.ahead.get(pod.uid) == node:
            del self.ahead[pod.uid]
            self._release(pod.uid)
            if again:
                self._join(pod)

    async def close(self) -> None:
        """Cancel the calls that are under way."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
