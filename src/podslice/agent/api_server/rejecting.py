"""End refused pods as a kubelet does: phase `Failed`, with reason and message.

`Rejecting` patches the status of pods that the node does not admit. The API server may be away, slow or refuse: a patch
is tried again with back-off, within a rate, and where the right is missing the pod is refused at its containers, as
without an API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.api_server.rejected import RejectedPods, to_rejected_pod
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.records import ReportedRefusal
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff

MOST_WAITING = 256
MOST_TRIES = 8
"""Error answers of the server after which a patch is given up; times when it is away do not count."""
DENIED_SECONDS = 300.0
"""Seconds without patches after the server answered 403."""
AT_ONCE = 20
PER_SECOND = 1.0
"""Patches at once, and then a second, so that a controller that replaces each failed pod at once cannot run wild."""
AGAIN_SECONDS = 1.0
"""Seconds after a mark until the pod is marked again, if a kubelet has reported it Pending since."""
CHECK_SECONDS = 5.0
"""Seconds after a mark until the pod must have ended with our reason; doubled at every later look."""
MOST_MARKS = 8
MOST_LOOKS = 3
"""Looks at a pod that has ended: a kubelet may write its own final status a while later."""
_DENIED = (
    "refused pods stay Pending: the service account lacks the right to patch pods/status"
    " (docs/agent.md, Rights; or set refusals: hold)"
)
_FORBIDDEN, _INVALID, _GONE, _AGAIN = 403, 422, (404, 410), (401, 408, 409, 429)
_ANOTHER = "metadata.uid: "
"""The field in the error for a pod of the same name with another UID: the pod that was meant is gone."""


class _Job(msgspec.Struct):
    """A pod to be failed.

    `due`: time of the next look. `answers`: error answers so far. `marks`: accepted patches, the last at `marked`.
    `seen`: it was listed again since the last patch was sent. `looks`: at the pod after it had ended.
    """

    identity: Identity
    refusal: ReportedRefusal
    due: float
    back_off: BackOff
    answers: int = 0
    marks: int = 0
    marked: float = 0.0
    seen: bool = False
    looks: int = 0


class Rejecting:
    """Marks refused pods Failed: `reject` queues them, `run` does the work.

    `ready`: whether pods may be patched now. `moot`: whether a pod, by UID, has ended or need not be failed any more.
    `busy`: the seconds for which a kubelet still works on a pod. `free`: gets pods whose refusal is not final after
    all,
    `marked` those that were failed.
    """

    def __init__(
        self,
        api: ApiServer,
        rejected: RejectedPods,
        *,
        ready: Callable[[], bool],
        moot: Callable[[str], bool],
        busy: Callable[[str], float],
        free: Callable[[str], None],
        trouble: Callable[[str, str], None],
        marked: Callable[[Identity, ReportedRefusal], None],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rejected = rejected
        self._api = api
        self._ready = ready
        self._moot = moot
        self._busy = busy
        self._free = free
        self._trouble = trouble
        self._marked = marked
        self._now = now
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._due = asyncio.Event()
        self._denied_until = 0.0
        self._hopeless: dict[str, float] = {}
        self._room = float(AT_ONCE)
        self._filled = clock()

    @property
    def waiting(self) -> int:
        """Number of pods that are still to be failed, or to be looked at again."""
        return len(self._jobs)

    def reject(self, identity: Identity, refusal: ReportedRefusal) -> bool:
        """Queue a pod; one that was marked and is listed again is marked again soon.

        Returns False where it is to be refused at its containers instead: the right is missing, or too many wait.
        """
        known = self._jobs.get(identity.uid)
        if known is not None:
            known.seen = True
            if known.marks:
                self._hasten(known)
            return True
        denied = max(self._denied_until, self._hopeless.get(identity.uid, 0.0))
        if self._clock() < denied or len(self._jobs) >= MOST_WAITING:
            return False
        self._jobs[identity.uid] = _Job(identity, refusal, self._clock(), BackOff(0.5, 30.0))
        self._due.set()
        return True

    def _hasten(self, job: _Job) -> None:
        soon = job.marked + AGAIN_SECONDS
        if soon < job.due:
            job.due = soon
            self._due.set()

    async def run(self) -> None:
        """Patch for ever, one pod after the other; each with growing waits while that fails."""
        while True:
            job = await self._next()
            after = await self._look(job)
            if after is None:
                self._jobs.pop(job.identity.uid, None)
            else:
                job.due = self._clock() + after

    async def _next(self) -> _Job:
        """Wait for the job that is due first, and return it."""
        while True:
            self._due.clear()
            job = min(self._jobs.values(), key=lambda job: job.due, default=None)
            wait = None if job is None else job.due - self._clock()
            if job is not None and wait is not None and wait <= 0:
                return job
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._due.wait()

    async def _pace(self) -> None:
        """Wait until the rate allows another patch."""
        now = self._clock()
        self._room = min(float(AT_ONCE), self._room + max(0.0, now - self._filled) * PER_SECOND)
        self._filled = now
        if self._room < 1:
            await asyncio.sleep((1 - self._room) / PER_SECOND)
        self._room -= 1

    async def _look(self, job: _Job) -> float | None:
        """Look at a pod. Return the seconds until the next look, None where nothing is left to do."""
        identity = job.identity
        if not self._ready():
            return job.back_off.next()
        if job.marks and self._moot(identity.uid):
            return await self._verify(job)
        if self._moot(identity.uid):
            self._free(identity.uid)
            return None
        if not job.marks and (seconds := self._busy(identity.uid)) > 0:
            return seconds
        if job.marks >= MOST_MARKS:
            self._trouble("podStatus", f"pod {identity}: the kubelet does not end it, though it is marked Failed")
            self._give_up(identity.uid)
            return None
        await self._pace()
        return await self._patch(job)

    async def _verify(self, job: _Job) -> float | None:
        """Check that a marked pod has ended with a reason; mark it again if not. Any reason is left as it is."""
        # The watch leaves out pods that have ended, so the pod is read. A kubelet that was at work on it when the mark
        # came ends it without reason and message.
        job.looks += 1
        after = CHECK_SECONDS * 2**job.looks if job.looks < MOST_LOOKS else None
        identity = job.identity
        try:
            found = await self._api.find_pod(identity.namespace, identity.name)
        except ApiError as error:
            self._trouble("podStatus", str(error))
            return after
        if found is None or found.uid != identity.uid or found.deleting:
            return None
        if found.reason or not found.ended:
            return after
        if job.marks >= MOST_MARKS:
            self._trouble("podStatus", f"pod {identity}: the kubelet takes its reason away again and again")
            return None
        await self._pace()
        again = await self._patch(job)
        return None if again is None or after is None else max(again, after)

    async def _patch(self, job: _Job) -> float | None:
        identity = job.identity
        # Set again by `reject` where the pod is listed while the patch is on its way.
        job.seen = False
        try:
            patch = status_patch(identity.uid, job.refusal, self._now())
            await self._api.patch_pod_status(identity.namespace, identity.name, patch)
        except AnswerError as error:
            return self._handle_refusal(job, error)
        except ApiError as error:
            self._trouble("podStatus", str(error))
            return job.back_off.next()
        job.marks += 1
        job.marked = self._clock()
        if job.marks == 1:
            self._marked(identity, job.refusal)
            await self.rejected.add(to_rejected_pod(identity, job.refusal))
        return AGAIN_SECONDS if job.seen else CHECK_SECONDS

    def _handle_refusal(self, job: _Job, error: AnswerError) -> float | None:
        """Handle an error answer. Return the seconds until the next try, None for none."""
        job.answers += 1
        if error.code in _GONE or (error.code == _INVALID and _ANOTHER in str(error)):
            return None
        # A missing right concerns all pods: each is refused at its containers until it is tried again.
        if error.code == _FORBIDDEN:
            self._denied_until = self._clock() + DENIED_SECONDS
            self._trouble("podStatus", f"{_DENIED}: {error}")
            for uid in list(self._jobs):
                self._give_up(uid)
            return None
        self._trouble("podStatus", str(error))
        if job.answers < MOST_TRIES and (error.code in _AGAIN or error.code >= 500):
            return job.back_off.next()
        self._give_up(job.identity.uid)
        return None

    def _give_up(self, uid: str) -> None:
        self._jobs.pop(uid, None)
        # Not queued again for a while: the pod stays on the list, and so would be rejected at every pass.
        self._hopeless[uid] = self._clock() + DENIED_SECONDS
        while len(self._hopeless) > MOST_WAITING:
            del self._hopeless[next(iter(self._hopeless))]
        self._free(uid)
