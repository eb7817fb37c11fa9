"""The events of a node's journal, and their JSON.

A `Stamped` event has an epoch (a new one at each start of the agent), a sequence without gaps, the event, and the
digests of the node's state after it (`node.holding`). `WholeState` carries everything; the other events are operations
with their outcome, from which a reader that has the state before computes the state after (`replica.replica`).
`encode` and `decode` are bounded, with typed errors.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from podslice.api.pod.spec import Pod
from podslice.node.holding import Digest, Holding
from podslice.replica.json_values import from_json, to_json
from podslice.replica.setup import Setup
from podslice.replica.state_message import PoolMessage, StateMessage

MOST_BYTES = 4 << 20
"""Most bytes of one event, because other events wait while it is decoded. A node with 250 pods needs about 400 KiB."""
Why: TypeAlias = Literal["started", "asked", "changed"]
"""An epoch begins; a reader asked for the state; the state changed in a way that no other event describes."""
PlanOutcome: TypeAlias = Literal["", "agreed", "differs", "honoured", "declined"]
"""The outcome of a plan for a pod, empty where there was none. The node decided by itself: the same (`agreed`) or
something else (`differs`). Or it was to use the plan: it did (`honoured`), or could not (`declined`)."""


class WholeState(msgspec.Struct, frozen=True, rename="camel", tag="State"):
    """The whole state, with the version of the core and the setup that the node decides by. `observed`: the node's
    kubelet decides by itself, and the agent only reports what it did. `decisions`: the number of the core's decisions
    (`replica.compatibility`), 0 for unknown."""

    version: str
    setup: Setup
    state: StateMessage
    why: Why = "started"
    observed: bool = False
    decisions: int = 0


class PodAdmitted(msgspec.Struct, frozen=True, rename="camel", tag="Admitted"):
    """A pod was admitted, its containers started, and `holding` is all that it has."""

    pod: Pod
    holding: Holding
    plan: PlanOutcome = ""


class PodRefused(msgspec.Struct, frozen=True, rename="camel", tag="Refused"):
    """A pod was refused. `pod` is set where the core refused it; without it the agent did, and the state is the
    same."""

    uid: str
    reason: str
    message: str = ""
    pod: Pod | None = None


class PodRemoved(msgspec.Struct, frozen=True, rename="camel", tag="Removed"):
    """A pod is gone, and all that it held is free."""

    uid: str


class PodResized(msgspec.Struct, frozen=True, rename="camel", tag="Resized"):
    """The resize of a pod got an outcome, and the resizes that were deferred were tried again."""

    pod: Pod
    outcome: str
    since: float | None = None


class DevicesChanged(msgspec.Struct, frozen=True, rename="camel", tag="DevicesChanged"):
    """Device plugins list other devices: pools that changed, and resources that are `gone`."""

    pools: dict[str, PoolMessage] = {}
    gone: tuple[str, ...] = ()


NodeEvent: TypeAlias = WholeState | PodAdmitted | PodRefused | PodRemoved | PodResized | DevicesChanged


class Stamped(msgspec.Struct, frozen=True, rename="camel", tag="Event", tag_field="kind"):
    """An event with its place in the journal and the digests of the state after it: `allocation` without names, `named`
    with them. A `WholeState` that was asked for has the sequence of the latest event."""

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
    """Encode an event as JSON; equal events give equal bytes."""
    return to_json(stamped)


def decode(data: bytes, *, limit: int = MOST_BYTES) -> Stamped:
    """Decode an event. Raises `InputError` for anything else, and for more than `limit` bytes."""
    return from_json(data, Stamped, limit=limit, what="event")
