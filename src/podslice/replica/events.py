"""What a node tells of itself, event by event, and how it is written.

The journal of a node is `Stamped` events: an epoch (another one at each start of the agent), a sequence without gaps,
the event, and the digests of the node's state after it (`node.holding`). `StateTold` carries everything; the others are
what was asked, and what came of it: who has the state before one can work out the state after it (`replica.replica`).
`encode` and `decode` are JSON, bounded, with typed errors.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from podslice.api.pod.spec import Pod
from podslice.node.holding import Digest, Holding
from podslice.replica.plain import decoded, encoded
from podslice.replica.setup import Setup
from podslice.replica.told_state import ToldPool, ToldState

MOST_BYTES = 4 << 20
"""Of one event, while which others wait; the state of a node with 250 pods is about 400 KiB."""
Why: TypeAlias = Literal["started", "asked", "changed"]
"""An epoch begins; somebody asked for the state; it changed in a way that no other event tells."""
PlanFate: TypeAlias = Literal["", "agreed", "differs", "honoured", "declined"]
"""What became of a plan for a pod, empty where there was none. The node decided by itself: the same (`agreed`), or
something else (`differs`). It used the plan (`honoured`), or could not and took something else (`declined`)."""


class StateTold(msgspec.Struct, frozen=True, rename="camel", tag="State"):
    """The whole state, with the version of the core that has it and what the node decides by. `observed`: the node's
    kubelet decides by itself, and somebody tells what it did."""

    version: str
    setup: Setup
    state: ToldState
    why: Why = "started"
    observed: bool = False


class PodAdmitted(msgspec.Struct, frozen=True, rename="camel", tag="Admitted"):
    """A pod was admitted, its containers started, and it has this. `plan`: what became of the plan for it."""

    pod: Pod
    holding: Holding
    plan: PlanFate = ""


class PodRefused(msgspec.Struct, frozen=True, rename="camel", tag="Refused"):
    """A pod was refused. `pod` is what was asked where the core decided; without it, the agent did so by itself."""

    uid: str
    reason: str
    message: str = ""
    pod: Pod | None = None


class PodRemoved(msgspec.Struct, frozen=True, rename="camel", tag="Removed"):
    """A pod is gone, and what it had is free."""

    uid: str


class PodResized(msgspec.Struct, frozen=True, rename="camel", tag="Resized"):
    """The resize of a pod was decided on, and those that waited were tried again."""

    pod: Pod
    outcome: str
    since: float | None = None


class DevicesChanged(msgspec.Struct, frozen=True, rename="camel", tag="DevicesChanged"):
    """Device plugins list other devices: the resources that changed, and those that are known no more."""

    pools: dict[str, ToldPool] = {}
    gone: tuple[str, ...] = ()


NodeEvent: TypeAlias = StateTold | PodAdmitted | PodRefused | PodRemoved | PodResized | DevicesChanged


class Stamped(msgspec.Struct, frozen=True, rename="camel", tag="Event", tag_field="kind"):
    """An event in the journal, with the digests of the state after it: `allocation` without names, `named` with them.
    A `StateTold` that was asked for has the sequence of the latest event."""

    epoch: int
    sequence: int
    allocation: str
    named: str
    event: NodeEvent

    @property
    def digest(self) -> Digest:
        """The digests of the state after the event."""
        return Digest(self.allocation, self.named)


def encode(stamped: Stamped) -> bytes:
    """The event as JSON; the same event, the same bytes."""
    return encoded(stamped)


def decode(data: bytes, *, limit: int = MOST_BYTES) -> Stamped:
    """The event that was encoded. Raises `InputError` for anything else."""
    return decoded(data, Stamped, limit=limit, what="event")
