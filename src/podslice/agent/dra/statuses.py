"""Conditions in the status of claims that can never be served here, written beside the answers to the kubelet.

Nothing waits for it. A claim is written when what its status says is not what there is to say, one claim a second; a
server that does not let the agent do it is told apart from one that is away, said once, and left in peace.
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
from podslice.service.http.apiconnection import AnswerError
from podslice.service.pacing import BackOff
from podslice.service.podlist import ApiError

PAUSE_SECONDS = 1.0
LEFT_ALONE_SECONDS = 600.0
"""After a server has said that the right is missing."""
_MOST = 1024
_MOST_TRIES = 10
_CHANGED = (409, 422)
"""The claim is not as it was read; or it is, and the server refuses its devices to the agent."""


class ClaimStatusServer(ClaimReader, Protocol):
    """Where conditions are written."""

    async def patch_claim_status(self, namespace: str, name: str, patch: Patch) -> None:
        """By JSON patch. Raises `ApiError`, `AnswerError`."""


class _Word(NamedTuple):
    """What is to be said of a claim as it was read. `said`: it was told a problem before, which it may not show."""

    claim: ResourceClaim
    problem: ImpossibleClaimError | None
    said: bool
    tries: int = 0


class ClaimStatuses:
    """What is to be said of claims on node `node`, and a loop that says it. `writes` counts what the server took;
    `now` is Unix time, `clock` any time that goes on."""

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
        self._wanted: dict[str, _Word] = {}
        self._said: set[str] = set()
        """UIDs of claims that were told a problem, and nothing better since."""
        self._left_alone_until = 0.0
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many claims there is something to say of."""
        return len(self._wanted)

    def tell(self, claim: ResourceClaim, problem: ImpossibleClaimError | None) -> None:
        """`claim` as it was read is prepared, or has a problem that stays."""
        uid = claim.metadata.uid
        told = _Word(claim, problem, uid in self._said)
        self._wanted.pop(uid, None)
        if not self._patch(told) or len(self._wanted) >= _MOST or self._clock() < self._left_alone_until:
            return
        if len(self._said) >= _MOST:
            self._said.clear()
        if problem is None:
            self._said.discard(uid)
        else:
            self._said.add(uid)
        self._wanted[uid] = told
        self._news.set()

    def _patch(self, told: _Word) -> Patch:
        return status_patch(told.claim, told.problem, pool=self._pool, now=rfc3339(self._now()), reported=told.said)

    async def run(self) -> None:
        """Write what there is to say, for ever."""
        back_off = BackOff(PAUSE_SECONDS, 60.0)
        while True:
            await self._news.wait()
            self._news.clear()
            while self._wanted:
                done = await self.write_first()
                if done:
                    back_off.reset()
                await self._sleep(PAUSE_SECONDS if done else back_off.next())

    async def write_first(self) -> bool:
        """Write what has waited longest; False where it is to be tried again."""
        uid, told = next(iter(self._wanted.items()))
        again = await self._write(told)
        if self._wanted.get(uid) is told:
            del self._wanted[uid]
            if again is not None:
                self._wanted[uid] = again
        return again is None

    async def _write(self, told: _Word) -> _Word | None:
        """What is to be tried again."""
        patch, where = self._patch(told), told.claim.metadata
        try:
            if patch:
                await self._api.patch_claim_status(where.namespace, where.name, patch)
                self.writes += 1
        except AnswerError as error:
            if error.code == 403:
                self._leave_alone(str(error))
            elif error.code in _CHANGED:
                return await self._changed(told, str(error))
            elif error.code != 404:
                return self._again(told, str(error))
        except ApiError as error:
            return self._again(told, str(error))
        return None

    async def _changed(self, told: _Word, why: str) -> _Word | None:
        """The same of the claim as it is now, None where there is none with this UID, or it is as it was."""
        where = told.claim.metadata
        try:
            claim = await self._api.read_claim(where.namespace, where.name)
        except ApiError:
            return self._again(told, why)
        if claim is None or claim.metadata.uid != where.uid:
            return None
        if claim.metadata.resource_version == where.resource_version:
            self._leave_alone(why)
            return None
        return self._again(told._replace(claim=claim), why)

    def _again(self, told: _Word, why: str) -> _Word | None:
        if told.tries + 1 < _MOST_TRIES:
            return told._replace(tries=told.tries + 1)
        self._trouble("claimStatus", f"the status of a claim cannot be written: {why}")
        return None

    def _leave_alone(self, why: str) -> None:
        self._left_alone_until = self._clock() + LEFT_ALONE_SECONDS
        self._wanted.clear()
        self._said.clear()
        self._trouble(
            "claimStatus",
            f"claims are not told why they cannot be prepared; deploy/manifests/dra.yaml has the rights: {why}",
        )
