"""The pods this node has rejected, for people: the last ones, kept in one file beside the state.

Nothing is decided from it. A file that is lost or damaged costs the list, no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from podslice.agent.records import ReportedRefusal
from podslice.host.state.statefile import write_atomically
from podslice.service.identity import Identity
from podslice.status.status import RejectedPod

REJECTED_FILE = "rejected.json"
MOST = 100
_LARGEST = 1 << 20
_LONGEST = 2000


def rejected_pod(identity: Identity, refusal: ReportedRefusal) -> RejectedPod:
    """A pod of this node as it is listed, with texts of bounded length."""
    message, why, fix = (text[:_LONGEST] for text in (refusal.message, refusal.why, refusal.fix))
    reason = refusal.reason[:_LONGEST]
    return RejectedPod(identity.namespace, identity.name, identity.uid, reason, message, why, fix, refusal.since)


class RejectedPods:
    """The last hundred, oldest first. `aside` does what waits for the disk elsewhere."""

    def __init__(
        self,
        directory: Path,
        *,
        trouble: Callable[[str, str], None],
        aside: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread,
    ) -> None:
        self._path = directory / REJECTED_FILE
        self._aside = aside
        self._saving = asyncio.Lock()
        self._trouble = trouble
        self._pods: dict[str, RejectedPod] = {}

    def __iter__(self) -> Iterator[RejectedPod]:
        return iter(self._pods.values())

    def refusal(self, uid: str) -> ReportedRefusal | None:
        """Why a pod was rejected, None for one that was not."""
        pod = self._pods.get(uid)
        if pod is None:
            return None
        return ReportedRefusal(pod.reason, pod.message, pod.why, final=True, since=pod.since, fix=pod.fix)

    def load(self) -> None:
        """What an earlier agent kept; what cannot be read is passed over."""
        try:
            if self._path.stat().st_size > _LARGEST:
                raise OSError("is too large")
            pods = msgspec.json.decode(self._path.read_bytes(), type=list[RejectedPod])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._trouble("rejected", f"{self._path}: cannot be read: {error}")
            return
        self._pods = {pod.uid: pod for pod in pods[-MOST:]}

    async def add(self, pod: RejectedPod) -> None:
        """One more; a fix that is known by now stays."""
        self._pods[pod.uid] = pod
        while len(self._pods) > MOST:
            del self._pods[next(iter(self._pods))]
        await self._save()

    async def explain(self, uid: str, fix: str) -> None:
        """What would have helped is known now."""
        known = self._pods.get(uid)
        if known is not None and known.fix != fix:
            self._pods[uid] = msgspec.structs.replace(known, fix=fix[:_LONGEST])
            await self._save()

    async def _save(self) -> None:
        try:
            async with self._saving:
                data = msgspec.json.encode(list(self._pods.values()))
                await self._aside(partial(write_atomically, self._path, data))
        except OSError as error:
            self._trouble("rejected", f"{self._path}: cannot be written: {error.strerror or error}")
