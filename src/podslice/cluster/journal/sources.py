"""What the service needs of whoever keeps the nodes' replicas (`cluster.journal.journals`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from podslice.replica.events import Stamped
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.stream_messages import PlanGiven, PlanWithdrawn
from podslice.service.listeners import Listeners


class JournalEvents:
    """What a source of replicas announces; `cluster.wiring` says who hears it."""

    def __init__(self) -> None:
        self.applied = Listeners[str, Stamped, ApplyResult]()
        """The replica of this node has taken in an event (`replica.replica`)."""
        self.heard = Listeners[str]()
        """The stream of this node has begun or ended."""


class ReplicaEntry(Protocol):
    """One node's."""

    @property
    def replica(self) -> Replica: ...


class ReplicaSource(Protocol):
    """The replicas of all nodes that were heard of."""

    @property
    def events(self) -> JournalEvents: ...

    @property
    def nodes(self) -> Mapping[str, ReplicaEntry]: ...

    def is_fresh(self, node: str) -> bool:
        """True when the replica is the node as it is now."""

    def silence(self) -> float:
        """Seconds since that node with a stream was heard that was heard least; 0 without streams."""

    def send_plan(self, node: str, plan: PlanGiven | PlanWithdrawn) -> bool:
        """Send a plan to a node; False where it is not heard."""

    def forget(self, node: str) -> None:
        """The node is gone from the cluster."""
