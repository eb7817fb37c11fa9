"""What a node's agent and the cluster's service say to each other on their stream, message by message.

Up: who it is (`Hello`), then every event (`Stamped`), and `Beat` when there is nothing to tell. Down: from where on
events are wanted (`Ask`, first and whenever something is missing), how often to speak (`Pace`), and plans for pods that
are on their way.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from podslice.node.holding import Holding
from podslice.replica.common import Common
from podslice.replica.events import MOST_BYTES, Stamped
from podslice.replica.plain import decoded, encoded

MOST_DOWN = 1 << 20
"""Bytes of one message from the service."""


class Hello(msgspec.Struct, frozen=True, rename="camel", tag="Hello", tag_field="kind"):
    """An agent begins: the node it says it is, and the version of its core."""

    node: str
    version: str


class Beat(msgspec.Struct, frozen=True, rename="camel", tag="Beat", tag_field="kind"):
    """The agent is there, and so far its journal has come."""

    epoch: int
    sequence: int
    allocation: str
    named: str


class Ask(msgspec.Struct, frozen=True, rename="camel", tag="Ask", tag_field="kind"):
    """The service has these events: what comes after is wanted; with `state`, everything."""

    epoch: int = 0
    sequence: int = -1
    state: bool = False


class Pace(msgspec.Struct, frozen=True, rename="camel", tag="Pace", tag_field="kind"):
    """An agent that has nothing to tell says so after so many seconds."""

    seconds: Annotated[float, msgspec.Meta(ge=1, le=60)]


class PlanGiven(msgspec.Struct, frozen=True, rename="camel", tag="Plan", tag_field="kind"):
    """A pod is on its way, and should get this. It was worked out after this event of the journal, on this
    allocation with all pods that were on their way before it."""

    uid: str
    holding: Holding
    epoch: int = 0
    sequence: int = 0
    allocation: str = ""


class PlanWithdrawn(msgspec.Struct, frozen=True, rename="camel", tag="Withdrawn", tag_field="kind"):
    """The pod does not come."""

    uid: str


Up: TypeAlias = Hello | Beat | Stamped
Down: TypeAlias = Ask | Pace | PlanGiven | PlanWithdrawn


def to_bytes(message: Up | Down) -> bytes:
    """The message as JSON."""
    return encoded(message)


class _Said(msgspec.Struct, frozen=True):
    kind: str = ""


def up_from(data: bytes, common: Common | None = None) -> Up:
    """A message of an agent; an event shares what it has in `common` with others. Raises `InputError`."""
    if common is not None and decoded(data, _Said, limit=MOST_BYTES, what="message").kind == "Event":
        return common.decode(data)
    return decoded(data, Up, limit=MOST_BYTES, what="message")  # type: ignore[arg-type]


def down_from(data: bytes) -> Down:
    """A message of the service. Raises `InputError`."""
    return decoded(data, Down, limit=MOST_DOWN, what="message")  # type: ignore[arg-type]
