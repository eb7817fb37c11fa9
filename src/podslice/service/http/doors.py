"""How many connections a listener has, and of whom, so that nobody who reaches its port keeps the others out.

    doors = Doors(most=256, most_of_peer=64)
    for one in doors.enter(connection, peer): ...  # hang up on these: the newcomer needs their place
    doors.prove(connection)                        # it has asked what it may ask
    doors.leave(connection)
    is_reserved(descriptor)                        # hang up: the last descriptors are for others

Connections that have not proven anything go first, the longest there of them first. A few descriptors of the process
are never given to connections: whoever must open a file while somebody floods a port can.
"""

from __future__ import annotations

import resource
from typing import Generic, TypeVar

C = TypeVar("C")
RESERVED_DESCRIPTORS = 32


class Doors(Generic[C]):
    """At most `most` connections, and `most_of_peer` of one address. For one thread at a time."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        self._most, self._most_of_peer = most, most_of_peer
        self._peers: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        self._proven: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, connection: C) -> bool:
        return connection in self._peers

    def enter(self, connection: C, peer: str) -> list[C]:
        """A connection came. Those that have to go for it have left."""
        self._peers[connection] = peer
        self._counts[peer] = self._counts.get(peer, 0) + 1
        leaving = []
        if self._counts[peer] > self._most_of_peer:
            leaving.append(self._first([one for one, whose in self._peers.items() if whose == peer]))
        elif len(self._peers) > self._most:
            leaving.append(self._first(list(self._peers)))
        for one in leaving:
            self.leave(one)
        return leaving

    def _first(self, connections: list[C]) -> C:
        """Who goes of these, of which the last has just come."""
        strangers = [one for one in connections[:-1] if one not in self._proven]
        return strangers[0] if strangers else next((one for one in self._proven if one in connections), connections[-1])

    def prove(self, connection: C) -> None:
        """It has asked what it may ask, just now."""
        if connection in self._peers:
            self._proven.pop(connection, None)
            self._proven[connection] = None

    def leave(self, connection: C) -> None:
        """It is gone; once more does not matter."""
        peer = self._peers.pop(connection, None)
        if peer is None:
            return
        self._proven.pop(connection, None)
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]


def is_reserved(descriptor: int) -> bool:
    """Whether a descriptor is one of the last that the process can have."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most != resource.RLIM_INFINITY and descriptor >= most - RESERVED_DESCRIPTORS
