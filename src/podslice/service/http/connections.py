"""Limits on a listener's connections, so that one client cannot keep the others out.

    table = ConnectionTable(most=256, most_of_peer=64)
    for one in table.add(connection, peer): ...  # hang up on these: the new connection takes their place
    table.prove(connection)                      # it has sent a request that it may send
    table.remove(connection)
    is_reserved(descriptor)                      # hang up: the last descriptors are not for connections

Of too many connections those that have not sent a permitted request go first, the oldest of them first. A few
descriptors of the process are never given to connections, so that it can open files while a port is flooded.
"""

from __future__ import annotations

import sys
from typing import Generic, TypeVar

C = TypeVar("C")
RESERVED_DESCRIPTORS = 32
"""The last descriptors of the process, for files and for calls of the runtime."""
HANDSHAKE_SECONDS = 5.0
"""Seconds for a client's TLS handshake. Until it ends asyncio does not report the connection, so that no table counts
it; its own limit is 60 seconds."""


class ConnectionTable(Generic[C]):
    """At most `most` connections, and `most_of_peer` of one address. Not thread-safe."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        self._most, self._most_of_peer = most, most_of_peer
        self._peers: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        self._proven: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, connection: C) -> bool:
        return connection in self._peers

    def add(self, connection: C, peer: str) -> list[C]:
        """Add a connection. Return those to hang up on for it, which are removed already."""
        self._peers[connection] = peer
        self._counts[peer] = self._counts.get(peer, 0) + 1
        leaving = []
        # A peer beyond its share loses one of its own, also while there is room for others.
        if self._counts[peer] > self._most_of_peer:
            leaving.append(self._first([one for one, whose in self._peers.items() if whose == peer]))
        elif len(self._peers) > self._most:
            leaving.append(self._first(list(self._peers)))
        for one in leaving:
            self.remove(one)
        return leaving

    def _first(self, connections: list[C]) -> C:
        """Choose which of these connections to drop; the last of them is the new one."""
        strangers = [one for one in connections[:-1] if one not in self._proven]
        return strangers[0] if strangers else next((one for one in self._proven if one in connections), connections[-1])

    def prove(self, connection: C) -> None:
        """Note that the connection has just sent a request that it may send."""
        if connection in self._peers:
            self._proven.pop(connection, None)
            self._proven[connection] = None

    def remove(self, connection: C) -> None:
        """Remove a connection; it may be gone already."""
        peer = self._peers.pop(connection, None)
        if peer is None:
            return
        self._proven.pop(connection, None)
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]


def is_reserved(descriptor: int) -> bool:
    """Whether a descriptor is one of the last that the process may have."""
    if sys.platform == "win32":  # sockets there are handles, which no limit counts
        return False
    import resource

    # The kernel hands out the lowest free number, so a high number means that nearly all are taken.
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most != resource.RLIM_INFINITY and descriptor >= most - RESERVED_DESCRIPTORS
