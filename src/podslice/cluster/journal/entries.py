"""A node in the service beside its replica: its stream, and the latest message."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from podslice.cluster.journal.pace import SHORTEST
from podslice.cluster.journal.replica_size import ReplicaSize
from podslice.replica.replica import Replica
from podslice.replica.rulebook import PreparedState
from podslice.replica.stream_messages import Down, Up
from podslice.service.pacing import LineLimit

NEVER = float("-inf")
MOST_WAITING = 1024


class NodeEntry:
    """A node: its replica, the stream that feeds it, and the time of its latest message (`last_message`)."""

    __slots__ = ("agrees", "last_message", "lines", "replica", "size", "stream", "stream_lines", "unreadable")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.lines: LineLimit | None = None
        self.stream_lines: LineLimit | None = None
        self.size: ReplicaSize | None = None
        """None before the first message of its own stream."""
        self.stream: NodeStream | None = None
        self.last_message = NEVER
        self.agrees = False
        """Whether the latest event or beat had the replica's digests."""
        self.unreadable = False
        """Whether the agent, of another version, has sent what this program cannot read."""


class ReadMessage(NamedTuple):
    """A decoded message; for one decoded in the thread the prepared state, or its problem, and the seconds of work."""

    message: Up
    ready: PreparedState | str | None = None
    took: float = 0.0


class NodeStream:
    """The queue of messages to one agent. Where it is full the oldest message is dropped."""

    def __init__(self, node: str = "", version: str = "") -> None:
        self.node, self.version = node, version
        self.pace = SHORTEST
        """Seconds between beats, as sent to the agent or as it begins by itself."""
        self._waiting: deque[Down] = deque(maxlen=MOST_WAITING)
        self._due = asyncio.Event()
        self.replaced = asyncio.Event()

    def put(self, message: Down) -> None:
        self._waiting.append(message)
        self._due.set()

    async def take(self) -> Down:
        while not self._waiting:
            self._due.clear()
            await self._due.wait()
        return self._waiting.popleft()
