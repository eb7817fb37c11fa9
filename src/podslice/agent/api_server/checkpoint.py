"""The NodeState object of this node, written when the node has been quiet for a while, or has been busy for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.journal import NodeJournal
from podslice.replica.nodestate import build_status
from podslice.service.pacing import BackOff
from podslice.service.podlist import ApiError

QUIET_SECONDS = 5.0
BUSY_SECONDS = 30.0
_LOOK_SECONDS = 1.0


class Due:
    """Says when to write: `QUIET_SECONDS` after the latest change, `BUSY_SECONDS` after the first that is not
    written."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._changed = 0.0
        self._since: float | None = None

    def look(self, at: tuple[int, int], now: float) -> bool:
        """The journal is at this epoch and sequence; True when it is time."""
        if at != self._seen:
            self._seen, self._changed = at, now
            self._since = now if self._since is None else self._since
        if self._since is None:
            return False
        return now - self._changed >= QUIET_SECONDS or now - self._since >= BUSY_SECONDS

    def written(self) -> None:
        """What was there is being written."""
        self._since = None

    def again(self) -> None:
        """It was not written."""
        self._since = float("-inf")


class Checkpoint:
    """Writes the object of `node`; `trouble` hears when that fails. `writes` counts."""

    def __init__(
        self,
        api: ApiServer,
        node: str,
        journal: NodeJournal,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.writes = 0
        self._api = api
        self._node = node
        self._journal = journal
        self._trouble = trouble
        self._sleep = sleep

    async def run(self, back_off: BackOff | None = None) -> None:
        """For ever; after a failure later and later."""
        due, back_off = Due(), back_off or BackOff(5.0, 300.0)
        clock = asyncio.get_running_loop().time
        while True:
            self._journal.settle()
            journal = self._journal.journal
            if journal is None or not due.look((journal.epoch, journal.sequence), clock()):
                await self._sleep(_LOOK_SECONDS)
                continue
            due.written()
            try:
                status = await asyncio.to_thread(build_status, journal.whole_state())
                await self._api.write_node_state(self._node, status)
            except ApiError as error:
                self._trouble("nodeState", str(error))
                due.again()
                await self._sleep(back_off.next())
                continue
            self.writes += 1
            back_off.reset()
