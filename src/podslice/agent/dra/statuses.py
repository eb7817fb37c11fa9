"""Write conditions into the status of claims that can never be prepared here, in the background.

A claim is written where its status differs from the condition, one claim a second. A server that refuses the right is
distinguished from one that is away: it is reported once, and left alone for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from podslice.agent.api_server.timestamps import rfc3339
from podslice.agent.dra.service import ClaimReader
from podslice.dra.conditions import Patch, status_patch
from podslice.dra.names import pool_name
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import ImpossibleClaimError
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.pacing import BackOff

PAUSE_SECONDS = 1.0
LEFT_ALONE_SECONDS = 600.0
"""Seconds without writes after a server has refused the right."""
_MOST = 1024
_MOST_TRIES = 10
_CHANGED = (409, 422)
"""The claim has changed since it was read; or it has not, and the server refuses its devices to the agent."""


class ClaimStatusServer(ClaimReader, Protocol):
    """Writes conditions."""

    async def patch_claim_status(self, namespace: str, name: str, patch: Patch) -> None:
        """Patch a claim's status by JSON patch. Raises `ApiError`, `AnswerError`."""


class _Report(NamedTuple):
    """A condition to write into a claim as it was read. `said`: a problem was written before, which may not show
    yet."""

    claim: ResourceClaim
    problem: ImpossibleClaimError | None
    said: bool
    tries: int = 0


class ClaimStatuses:
    """Writes conditions of claims on node `node`: `queue` takes them, `run` writes.

    `now`: Unix time. `clock`: monotonic time. `writes`: how many succeeded.
    """

    def __init__(
        self,
        api: ClaimStatusServer,
        node: str,
        *,
        trouble: Callable[[str, str], None],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.writes = 0
        self._api = api
        self._pool = pool_name(node)
        self._trouble = trouble
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._waiting: dict[str, _Report] = {}
        self._reported: set[str] = set()
        """UIDs of claims with a problem that was queued, and no success since."""
        self._left_alone_until = 0.0
        self._due = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of claims that wait to be written."""
        return len(self._waiting)

    def queue(self, claim: ResourceClaim, problem: ImpossibleClaimError | None) -> None:
        """Queue the condition of a claim as it was read: prepared, or with a problem that stays."""
        uid = claim.metadata.uid
        report = _Report(claim, problem, uid in self._reported)
        # Only the newest report of a claim counts; it goes to the end, behind claims that have waited longer.
        self._waiting.pop(uid, None)
        if not self._patch(report) or len(self._waiting) >= _MOST or self._clock() < self._left_alone_until:
            return
        # A bound on memory: a claim forgotten here keeps its condition if its last read did not show it yet.
        if len(self._reported) >= _MOST:
            self._reported.clear()
        if problem is None:
            self._reported.discard(uid)
        else:
            self._reported.add(uid)
        self._waiting[uid] = report
        self._due.set()

    def _patch(self, report: _Report) -> Patch:
        return status_patch(
            report.claim, report.problem, pool=self._pool, now=rfc3339(self._now()), reported=report.said
        )

    async def run(self) -> None:
        """Write the queued conditions, for ever."""
        back_off = BackOff(PAUSE_SECONDS, 60.0)
        while True:
            await self._due.wait()
            self._due.clear()
            while self._waiting:
                done = await self.write_first()
                if done:
                    back_off.reset()
                await self._sleep(PAUSE_SECONDS if done else back_off.next())

    async def write_first(self) -> bool:
        """Write the condition that has waited longest. Return False where it must be tried again."""
        uid, report = next(iter(self._waiting.items()))
        again = await self._write(report)
        # While the write was under way, `queue` may have replaced the report or given it up.
        if self._waiting.get(uid) is report:
            del self._waiting[uid]
            if again is not None:
                self._waiting[uid] = again
        return again is None

    async def _write(self, report: _Report) -> _Report | None:
        """Write a condition. Return it where it must be tried again, else None."""
        patch, where = self._patch(report), report.claim.metadata
        try:
            if patch:
                await self._api.patch_claim_status(where.namespace, where.name, patch)
                self.writes += 1
        except AnswerError as error:
            if error.code == 403:
                self._leave_alone(str(error))
            elif error.code in _CHANGED:
                return await self._read_again(report, str(error))
            # 404: the claim was deleted, and its status with it.
            elif error.code != 404:
                return self._retry(report, str(error))
        except ApiError as error:
            return self._retry(report, str(error))
        return None

    async def _read_again(self, report: _Report, why: str) -> _Report | None:
        """Return the condition for the claim as it is now, None where it is gone or has not changed."""
        where = report.claim.metadata
        try:
            claim = await self._api.read_claim(where.namespace, where.name)
        except ApiError:
            return self._retry(report, why)
        # Another UID: the name was deleted and created again, which is not a claim that anyone reported.
        if claim is None or claim.metadata.uid != where.uid:
            return None
        # Unchanged since it was read, so it is not a conflict: the server refuses the devices.
        if claim.metadata.resource_version == where.resource_version:
            self._leave_alone(why)
            return None
        return self._retry(report._replace(claim=claim), why)

    def _retry(self, report: _Report, why: str) -> _Report | None:
        if report.tries + 1 < _MOST_TRIES:
            return report._replace(tries=report.tries + 1)
        self._trouble("claimStatus", f"the status of a claim cannot be written: {why}")
        return None

    def _leave_alone(self, why: str) -> None:
        self._left_alone_until = self._clock() + LEFT_ALONE_SECONDS
        self._waiting.clear()
        self._reported.clear()
        self._trouble(
            "claimStatus",
            "no condition is written into claims that cannot be prepared; deploy/manifests/dra.yaml has the rights: "
            f"{why}",
        )
