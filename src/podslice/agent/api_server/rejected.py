"""The last pods that this node has rejected, in a file beside the state.

A file that is lost or damaged costs the list, no more.
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


def to_rejected_pod(identity: Identity, refusal: ReportedRefusal) -> RejectedPod:
    """Return the list's entry of a pod, with texts of bounded length."""
    message, why, fix = (text[:_LONGEST] for text in (refusal.message, refusal.why, refusal.fix))
    reason = refusal.reason[:_LONGEST]
    return RejectedPod(identity.namespace, identity.name, identity.uid, reason, message, why, fix, refusal.since)


class RejectedPods:
    """The last hundred, oldest first. `run_in_thread`: runs disk writes in a thread."""

    def __init__(
        self,
        directory: Path,
        *,
        trouble: Callable[[str, str], None],
        run_in_thread: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread,
    ) -> None:
        self._path = directory / REJECTED_FILE
        self._run_in_thread = run_in_thread
        self._saving = asyncio.Lock()
        self._trouble = trouble
        self._pods: dict[str, RejectedPod] = {}

    def __iter__(self) -> Iterator[RejectedPod]:
        return iter(self._pods.values())

    def refusal(self, uid: str) -> ReportedRefusal | None:
        """Return why a pod was rejected, None for one that was not."""
        pod = self._pods.get(uid)
        if pod is None:
            return None
        return ReportedRefusal(pod.reason, pod.message, pod.why, final=True, since=pod.since, fix=pod.fix)

    def load(self) -> None:
        """Load the list of an earlier agent; one that cannot be read is reported and left."""
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
        """Add a pod, and forget the oldest beyond a hundred."""
        self._pods[pod.uid] = pod
        while len(self._pods) > MOST:
            del self._pods[next(iter(self._pods))]
        await self._save()

    async def explain(self, uid: str, fix: str) -> None:
        """Add the fix to a rejected pod."""
        known = self._pods.get(uid)
        if known is not None and known.fix != fix:
            self._pods[uid] = msgspec.structs.replace(known, fix=fix[:_LONGEST])
            await self._save()

    async def _save(self) -> None:
        try:
            async with self._saving:
                data = msgspec.json.encode(list(self._pods.values()))
                await self._run_in_thread(partial(write_atomically, self._path, data))
        except OSError as error:
            self._trouble("rejected", f"{self._path}: cannot be written: {error.strerror or error}")
