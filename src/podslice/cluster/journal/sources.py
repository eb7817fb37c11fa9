"""The interface of the nodes' replicas to the service (`cluster.journal.journals` implements it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from podslice.replica.events import Stamped
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.stream_messages import PlanGiven, PlanWithdrawn
from podslice.service.listeners import Listeners

Unproven: TypeAlias = Literal["", "noStream", "silent", "otherVersion", "outOfStep"]
"""Why a node is not proven, empty for a proven one. `noStream`: its agent has no stream. `silent`: it says nothing.
`otherVersion`: it may
decide otherwise than this program, or says what this program cannot read. `outOfStep`: digests differ, or events are
missing."""


class JournalEvents:
    """The events of a source of replicas; `cluster.wiring` connects them."""

    def __init__(self) -> None:
        self.applied = Listeners[str, Stamped, ApplyResult]()
        """The replica of this node has taken in an event (`replica.replica`)."""
        self.stream_changed = Listeners[str]()
        """The stream of this node has begun or ended."""


class ReplicaEntry(Protocol):
    """The entry of one node."""

    @property
    def replica(self) -> Replica: ...


class ReplicaSource(Protocol):
    """The replicas of all known nodes."""

    @property
    def events(self) -> JournalEvents: ...

    @property
    def nodes(self) -> Mapping[str, ReplicaEntry]: ...

    def find_unproven(self, node: str) -> Unproven:
        """Return why the replica is not the node as of now; empty where it is."""

    def silence(self) -> float:
        """Return the longest silence of a node with a stream, in seconds; 0 without streams."""

    def send_plan(self, node: str, plan: PlanGiven | PlanWithdrawn) -> bool:
        """Send a plan to a node; return False where it has no stream."""

    def forget(self, node: str) -> None:
        """Drop a node that left the cluster."""
