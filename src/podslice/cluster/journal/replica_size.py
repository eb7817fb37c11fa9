"""A bound on the bytes that a replica keeps: an agent that lies must not fill the service's memory.

Pods of an honest node go as others come. Once the events since the latest state exceed two whole states, the node is
asked for its state again, which is bounded.
"""

from __future__ import annotations

from podslice.replica.events import (
    MOST_BYTES,
    DevicesChanged,
    NodeEvent,
    PodAdmitted,
    PodRefused,
    PodRemoved,
    PodResized,
    WholeState,
)

MOST_REPLICA = 2 * MOST_BYTES


class ReplicaSize:
    """The bytes of a node's latest state, and of later events by pod or resource."""

    __slots__ = ("_since", "total")

    def __init__(self) -> None:
        self.total = 0
        self._since: dict[str, int] | None = None
        """None for no events, which is so for most nodes."""

    def add(self, event: NodeEvent, size: int) -> bool:
        """Count an event of `size` bytes; return False where the replica would keep too much."""
        if isinstance(event, WholeState):
            self._since = None
            self.total = size
        elif isinstance(event, PodAdmitted | PodResized):
            self._put(event.pod.metadata.uid, size)
        elif isinstance(event, PodRefused):
            self._put(event.uid, size)
        elif isinstance(event, PodRemoved):
            self._put(event.uid, 0)
        elif isinstance(event, DevicesChanged):
            for resource in event.gone:
                self._put(f"devices {resource}", 0)
            for resource in event.pools:
                self._put(f"devices {resource}", size)
        return self.total <= MOST_REPLICA

    def _put(self, key: str, size: int) -> None:
        since = self._since or {}
        self.total += size - since.pop(key, 0)
        if size:
            since[key] = size
        self._since = since or None
