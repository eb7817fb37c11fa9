"""A refused pod ends as a kubelet would have ended it: `Failed`, with reason and message.

`Rejecting` patches the status of pods that the node does not take. The API server may be away, slow or unwilling: a
patch is tried again with back-off, there are never more than so many, and where the right is missing the pod is refused
at its containers, as without an API server.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from podslice.agent.apiserver import AnswerError, ApiServer
from podslice.agent.identity import Identity
from podslice.agent.records import ReportedRefusal
from podslice.agent.rejected import RejectedPod, RejectedPods
from podslice.k8s.podlist import ApiError
from podslice.wire.nri import BackOff

MOST_WAITING = 256
MOST_TRIES = 8
"""Answers of the server, other than being away, after which a patch is given up."""
DENIED_SECONDS = 300.0
"""For so long nothing is patched after the server said that we may not."""
AT_ONCE = 20
PER_SECOND = 1.0
"""So many pods are failed at once and then so many a second: a controller that replaces each at once does not run away
with it."""
_LONGEST_MESSAGE = 1000
_PREFIX = "Pod was rejected: "
_DENIED = (
    "refused pods stay Pending: the service account lacks the right to patch pods/status"
    " (docs/agent.md, Rights; or set refusals: hold)"
)
_FORBIDDEN, _GONE, _AGAIN = 403, (404, 410), (401, 408, 409, 429)


def status_patch(uid: str, refusal: ReportedRefusal, now: datetime.datetime) -> dict[str, Any]:
    """What a kubelet writes about a pod it rejects. The UID makes sure that it is this pod and not its successor."""
    when = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    not_ready = {"status": "False", "reason": "PodFailed", "lastProbeTime": None, "lastTransitionTime": when}
    return {
        "metadata": {"uid": uid},
        "status": {
            "phase": "Failed",
            "reason": refusal.reason,
            "message": (_PREFIX + refusal.message)[:_LONGEST_MESSAGE],
            "startTime": when,
            "conditions": [{"type": kind, **not_ready} for kind in ("Ready", "ContainersReady")],
        },
    }


class _Job(msgspec.Struct):
    """One pod to be failed."""

    identity: Identity
    refusal: ReportedRefusal
    answers: int = 0


class Rejecting:
    """`reject` takes a pod and says whether its refusal is final from now on; `run` does the work, while `ready`.
    `moot` knows, by UID, pods that are not to be failed any more; `free` hears of those whose refusal is not final
    after all, `marked` of the others."""

    def __init__(
        self,
        api: ApiServer,
        rejected: RejectedPods,
        *,
        ready: Callable[[], bool],
        moot: Callable[[str], bool],
        free: Callable[[str], None],
        trouble: Callable[[str, str], None],
        marked: Callable[[Identity, ReportedRefusal], None] = lambda identity, refusal: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.rejected = rejected
        self._api = api
        self._ready = ready
        self._moot = moot
        self._free = free
        self._trouble = trouble
        self._marked = marked
        self._sleep = sleep
        self._now = now
        self._jobs: dict[str, _Job] = {}
        self._due = asyncio.Event()
        self._denied_until = 0.0
        self._hopeless: dict[str, float] = {}
        self._room = float(AT_ONCE)
        self._filled = now()

    @property
    def waiting(self) -> int:
        """Pods still to be failed."""
        return len(self._jobs)

    def reject(self, identity: Identity, refusal: ReportedRefusal) -> bool:
        """False where the pod is left to its containers: the right is missing, or too many wait already."""
        if identity.uid in self._jobs:
            return True
        denied = max(self._denied_until, self._hopeless.get(identity.uid, 0.0))
        if self._now() < denied or len(self._jobs) >= MOST_WAITING:
            return False
        self._jobs[identity.uid] = _Job(identity, refusal)
        self._due.set()
        return True

    async def run(self, back_off: BackOff | None = None) -> None:
        """Patch for ever, one pod after the other, more and more slowly while the server is of no use."""
        back_off = back_off or BackOff(0.5, 30.0)
        while True:
            await self._due.wait()
            self._due.clear()
            while self._jobs:
                await self._pace()
                uid, job = next(iter(self._jobs.items()))
                if await self._patch(job):
                    self._jobs.pop(uid, None)
                    back_off.reset()
                else:
                    self._jobs[uid] = self._jobs.pop(uid)
                    await self._sleep(back_off.next())

    async def _pace(self) -> None:
        now = self._now()
        self._room = min(float(AT_ONCE), self._room + max(0.0, now - self._filled) * PER_SECOND)
        self._filled = now
        if self._room < 1:
            await self._sleep((1 - self._room) / PER_SECOND)
        self._room -= 1

    async def _patch(self, job: _Job) -> bool:
        """True when no more is to be done."""
        identity = job.identity
        if not self._ready():
            return False
        if self._moot(identity.uid):
            self._free(identity.uid)
            return True
        when = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
        try:
            patch = status_patch(identity.uid, job.refusal, when)
            await self._api.patch_pod_status(identity.namespace, identity.name, patch)
        except AnswerError as error:
            return self._refused(job, error)
        except ApiError as error:
            self._trouble("podStatus", str(error))
            return False
        self._marked(identity, job.refusal)
        await self.rejected.add(RejectedPod.of(identity, job.refusal))
        return True

    def _refused(self, job: _Job, error: AnswerError) -> bool:
        """What an answer other than yes means."""
        job.answers += 1
        if error.code in _GONE:
            return True
        if error.code == _FORBIDDEN:
            self._denied_until = self._now() + DENIED_SECONDS
            self._trouble("podStatus", f"{_DENIED}: {error}")
            for uid in list(self._jobs):
                self._give_up(uid)
            return True
        self._trouble("podStatus", str(error))
        if job.answers < MOST_TRIES and (error.code in _AGAIN or error.code >= 500):
            return False
        self._give_up(job.identity.uid)
        return True

    def _give_up(self, uid: str) -> None:
        self._jobs.pop(uid, None)
        self._hopeless[uid] = self._now() + DENIED_SECONDS
        while len(self._hopeless) > MOST_WAITING:
            del self._hopeless[next(iter(self._hopeless))]
        self._free(uid)
