"""The messages between a node's agent and the cluster's service, and the gRPC method that carries them.

Up: `Hello` first, then every event (`Stamped`), and `Beat` while there is none. Down: `Welcome` first, `Ask` for the
events after one (next, and whenever some are missing), `Pace` for the interval of beats, and plans for pods that are on
their way. Fields that a reader does not know are passed over, those of setups and states are not: they decide.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from podslice.node.holding import Holding
from podslice.replica.events import MOST_BYTES, Stamped
from podslice.replica.json_values import from_json, to_json
from podslice.replica.shared_values import SharedValues

SERVICE = "podslice.cluster.v1alpha1.Journals"
FOLLOW = "Follow"
METHOD = f"/{SERVICE}/{FOLLOW}"
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC itself would wait a minute for the answer to a ping, and a dead peer would look alive so long.
    ("grpc.http2.ping_timeout_ms", 10_000),
)
"""Options of gRPC channels and servers, equal on both ends."""
MOST_DOWN = 1 << 20
"""Most bytes of one message from the service."""


class Hello(msgspec.Struct, frozen=True, rename="camel", tag="Hello", tag_field="kind"):
    """The first message of an agent: the node it claims to be on, the version of its core, and the newest protocol that
    it speaks."""

    node: str
    version: str
    protocol: int = 1


class Welcome(msgspec.Struct, frozen=True, rename="camel", tag="Welcome", tag_field="kind"):
    """The answer to an agent of protocol 2 or newer: the service's version, and the newest protocol that it speaks."""

    version: str
    protocol: int


class Beat(msgspec.Struct, frozen=True, rename="camel", tag="Beat", tag_field="kind"):
    """A sign of life: the latest event of the agent's journal, with the digests of the state after it."""

    epoch: int
    sequence: int
    allocation: str
    named: str


class Ask(msgspec.Struct, frozen=True, rename="camel", tag="Ask", tag_field="kind"):
    """A request for the events after `sequence` of `epoch`; with `state`, for the whole state."""

    epoch: int = 0
    sequence: int = -1
    state: bool = False


class Pace(msgspec.Struct, frozen=True, rename="camel", tag="Pace", tag_field="kind"):
    """The seconds without an event after which the agent is to send a `Beat`."""

    seconds: Annotated[float, msgspec.Meta(ge=1, le=60)]


class PlanGiven(msgspec.Struct, frozen=True, rename="camel", tag="Plan", tag_field="kind"):
    """The holding that a pod on its way should get. The plan was computed as of this event of the journal, on top of
    the pods that were on their way before it; `allocation` is the digest then."""

    uid: str
    holding: Holding
    epoch: int = 0
    sequence: int = 0
    allocation: str = ""


class PlanWithdrawn(msgspec.Struct, frozen=True, rename="camel", tag="Withdrawn", tag_field="kind"):
    """The pod will not come: its plan is void."""

    uid: str


Up: TypeAlias = Hello | Beat | Stamped
Down: TypeAlias = Welcome | Ask | Pace | PlanGiven | PlanWithdrawn


def encode_message(message: Up | Down) -> bytes:
    """Encode a message as JSON."""
    return to_json(message)


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


def decode_up(data: bytes, common: SharedValues | None = None) -> Up:
    """Decode a message of an agent; an event takes the values that `common` has. Raises `InputError`."""
    # Only events have shared values; the kind is known before the rest is decoded.
    if common is not None and from_json(data, _Kind, limit=MOST_BYTES, what="message").kind == "Event":
        return common.decode(data)
    return from_json(data, Up, limit=MOST_BYTES, what="message")  # type: ignore[arg-type]


def decode_down(data: bytes) -> Down:
    """Decode a message of the service. Raises `InputError`."""
    return from_json(data, Down, limit=MOST_DOWN, what="message")  # type: ignore[arg-type]
