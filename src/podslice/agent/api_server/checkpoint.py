"""Write the NodeState object of this node, once the node has been quiet for a while, or busy for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.journal import NodeJournal
from podslice.replica.nodestate import build_status
from podslice.service.answers import ApiError
from podslice.service.pacing import BackOff

QUIET_SECONDS = 5.0
BUSY_SECONDS = 30.0
_LOOK_SECONDS = 1.0


class Due:
    """Decides when to write: `QUIET_SECONDS` after the last change, and at most `BUSY_SECONDS` after the first
    unwritten one."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._changed = 0.0
        self._since: float | None = None

    def look(self, at: tuple[int, int], now: float) -> bool:
        """Note the journal's epoch and sequence (`at`). Return whether it is time to write."""
        if at != self._seen:
            self._seen, self._changed = at, now
            self._since = now if self._since is None else self._since
        if self._since is None:
            return False
        return now - self._changed >= QUIET_SECONDS or now - self._since >= BUSY_SECONDS

    def begin_write(self) -> None:
        """Note that a write begins."""
        self._since = None

    def retry(self) -> None:
        """Note that the write failed: the next look is due at once."""
        self._since = float("-inf")


class Checkpoint:
    """Writes the object of `node`. `trouble`: gets failures. `writes`: how many succeeded."""

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
        """Write for ever; waits grow after failures."""
        due, back_off = Due(), back_off or BackOff(5.0, 300.0)
        clock = asyncio.get_running_loop().time
        while True:
            self._journal.record_changes()
            journal = self._journal.journal
            if journal is None or not due.look((journal.epoch, journal.sequence), clock()):
                await self._sleep(_LOOK_SECONDS)
                continue
            due.begin_write()
            try:
                status = await asyncio.to_thread(build_status, journal.whole_state())
                await self._api.write_node_state(self._node, status)
            except ApiError as error:
                self._trouble("nodeState", str(error))
                due.retry()
                await self._sleep(back_off.next())
                continue
            self.writes += 1
            back_off.reset()
