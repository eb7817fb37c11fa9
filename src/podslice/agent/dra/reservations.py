"""Find the pods that a claim is reserved for, while the kubelet keeps it prepared from one pod to the next.

The kubelet does not call a driver again for the next pod of a prepared claim. Its checkpoint has that pod; where the
checkpoint cannot be read, the claim's `status.reservedFor` has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from podslice.agent.dra.publisher import LOOK_SECONDS
from podslice.agent.dra.service import ClaimReader
from podslice.dra.prepared import PreparedClaim, reserved_pods
from podslice.service.answers import ApiError

_LARGEST_CHECKPOINT = 64 << 20


class _KubeletsClaim(msgspec.Struct):
    uid: str = msgspec.field(default="", name="ClaimUID")
    pods: dict[str, Any] | None = msgspec.field(default=None, name="PodUIDs")


class _ClaimList(msgspec.Struct):
    claims: list[_KubeletsClaim] | None = msgspec.field(default=None, name="ClaimInfoStateList")


class _CheckpointFile(msgspec.Struct):
    data: str = msgspec.field(default="", name="Data")


def read_kubelet_claims(path: Path) -> dict[str, frozenset[str]] | None:
    """Return the claims that the kubelet has prepared, with the UIDs of their pods, from its checkpoint; None where
    that cannot be read (cluster-integration A.5)."""
    try:
        if path.stat().st_size > _LARGEST_CHECKPOINT:
            return None
        file = msgspec.json.decode(path.read_bytes(), type=_CheckpointFile)
        # JSON in JSON: the kubelet stores its data as a string beside the checksum of that string.
        data = msgspec.json.decode(file.data, type=_ClaimList)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return {one.uid: frozenset(one.pods or ()) for one in data.claims or ()}


class Reservations:
    """The pods that may use each of the prepared `claims`.

    `claims`: by UID; the ledger of claims changes them. `api`: reads a claim. `checkpoint`: the kubelet's file.
    """

    def __init__(
        self,
        claims: Mapping[str, PreparedClaim],
        api: ClaimReader,
        checkpoint: Path,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._claims = claims
        self._api = api
        self._checkpoint = checkpoint
        self._trouble = trouble
        self._sleep = sleep
        self._reserved: dict[str, frozenset[str]] = {}
        self._unread: set[str] = set()
        self._asked = asyncio.Event()

    def find_pods(self, claim: str) -> frozenset[str]:
        """Return the UIDs of the pods that may use the claim of this UID, by the kubelet's checkpoint; where that
        cannot be read, by the last read of the claim, which is then read again for the runtime's next try."""
        # The runtime waits for the answer, so the API server is not asked here: its answer serves the next try.
        known = read_kubelet_claims(self._checkpoint)
        if known is not None:
            return known.get(claim, frozenset())
        self._unread.add(claim)
        self._asked.set()
        return self._reserved.get(claim, frozenset())

    async def run(self) -> None:
        """Read the reservations of claims when they are needed, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._unread:
                await self._read(self._unread.pop())
            await self._sleep(LOOK_SECONDS)

    async def _read(self, uid: str) -> None:
        # Reservations of claims that were given back in the meantime are dropped.
        self._reserved = {one: pods for one, pods in self._reserved.items() if one in self._claims}
        known = self._claims.get(uid)
        if known is None:
            return
        try:
            claim = await self._api.read_claim(known.namespace, known.name)
        except ApiError as error:
            self._trouble("claims", f"claim {known} cannot be read: {error}")
            return
        # A claim of the same name and another UID has its own pods.
        found = claim is not None and claim.metadata.uid == uid
        self._reserved[uid] = reserved_pods(claim) if found and claim is not None else frozenset()
