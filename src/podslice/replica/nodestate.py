"""The NodeState object: the state that a node's agent last wrote, for a service that starts or has no stream.

Cluster-scoped, named after the node. `status.state` is the event `State` of the journal, compressed. It is empty where
it would exceed `LARGEST`; then only the node's stream has the state.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable
from sys import intern
from typing import Any, NamedTuple

import msgspec

from podslice.reading.unpacking import unpack
from podslice.replica.events import MOST_BYTES, Stamped, WholeState, decode, encode
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILE_RELEASES

NODE_STATES = "/apis/podslice.io/v1alpha1/nodestates"
LARGEST = 64 << 10
"""Bytes of the compressed state in an object: 15 000 of them are below 1 GB in the API server's store."""
ENCODING = "zlib+base64"


class NodeStateStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a NodeState: epoch and sequence of an event, the digests after it, and the state as of then.
    `kubernetes`: the release by which the node decides, such as 1.34."""

    epoch: int = 0
    sequence: int = 0
    allocation: str = ""
    named: str = ""
    version: str = ""
    encoding: str = ENCODING
    state: str = ""
    problem: str = ""
    kubernetes: str = ""


class _StateMetadata(msgspec.Struct, frozen=True):
    name: str = ""


class _StateObject(msgspec.Struct, frozen=True):
    metadata: _StateMetadata = _StateMetadata()
    status: NodeStateStatus = NodeStateStatus()


class _NamedObject(msgspec.Struct, frozen=True):
    metadata: _StateMetadata = _StateMetadata()


class NamedState(NamedTuple):
    """A NodeState object as it was read. `state` is None where it holds no state; `problem` has the reason."""

    node: str
    state: Stamped | None
    problem: str = ""


def new_node_state(node: str) -> dict[str, Any]:
    """Return the object to create, without a status."""
    return {"apiVersion": "podslice.io/v1alpha1", "kind": "NodeState", "metadata": {"name": node}}


def build_status(stamped: Stamped) -> NodeStateStatus:
    """Return the status that holds a whole state, or the problem where it is too large."""
    assert isinstance(stamped.event, WholeState)
    packed = base64.b64encode(zlib.compress(encode(stamped), 6)).decode()
    problem = f"the state takes {len(packed)} bytes, more than {LARGEST}" if len(packed) > LARGEST else ""
    return NodeStateStatus(
        stamped.epoch,
        stamped.sequence,
        stamped.allocation,
        stamped.named,
        stamped.event.version,
        state="" if problem else packed,
        problem=problem,
        kubernetes=str(PROFILE_RELEASES[stamped.event.setup.profile]),
    )


def read_node_name(data: bytes | bytearray | msgspec.Raw) -> str:
    """Return the name of the node of a NodeState. Raises `InputError` for another object."""
    try:
        return intern(msgspec.json.decode(data, type=_NamedObject).metadata.name)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not a NodeState: {str(error)[:200]}", path="nodeState") from None


def read_node_state(data: bytes | bytearray | msgspec.Raw, read: Callable[[bytes], Stamped] = decode) -> NamedState:
    """Read a NodeState object; `read` decodes the event in it. Raises `InputError` for another object. A state that
    cannot be decoded is the `problem` of the result."""
    try:
        found = msgspec.json.decode(data, type=_StateObject)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not a NodeState: {str(error)[:200]}", path="nodeState") from None
    status, node = found.status, found.metadata.name
    if not status.state:
        return NamedState(node, None, status.problem[:300] or "has no state yet")
    try:
        return NamedState(node, _read_state(status, read))
    except InputError as error:
        return NamedState(node, None, str(error))


def _read_state(status: NodeStateStatus, read: Callable[[bytes], Stamped]) -> Stamped:
    """Unpack and decode `status.state`. Raises `InputError`."""
    if status.encoding != ENCODING:
        raise InputError(f"{status.encoding[:80]!r} is not {ENCODING}", path="status.encoding")
    try:
        data = unpack(base64.b64decode(status.state, validate=True), MOST_BYTES)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"cannot be unpacked: {error}", path="status.state") from None
    except InputError as error:
        raise error.at(path="status.state") from None
    stamped = read(data)
    if not isinstance(stamped.event, WholeState):
        raise InputError("is not a state", path="status.state")
    return stamped
