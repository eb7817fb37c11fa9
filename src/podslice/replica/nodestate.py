"""The NodeState object: what a node's agent last wrote of its state, for who starts and for when there is no stream.

Cluster-scoped, with the name of the node. `status.state` is the event `State` of the journal, compressed; it is empty
where it would be larger than an object should be, and then only a stream tells.
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
from podslice.replica.events import MOST_BYTES, Stamped, StateTold, decode, encode
from podslice.values.errors import InputError

NODE_STATES = "/apis/podslice.io/v1alpha1/nodestates"
LARGEST = 64 << 10
"""Bytes of the compressed state in an object: 15 000 of them are below 1 GB in the API server's store."""
ENCODING = "zlib+base64"


class NodeStateStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a NodeState: as of which event it is, the digests after it, and the state."""

    epoch: int = 0
    sequence: int = 0
    allocation: str = ""
    named: str = ""
    version: str = ""
    encoding: str = ENCODING
    state: str = ""
    problem: str = ""


class _StateMetadata(msgspec.Struct, frozen=True):
    name: str = ""


class _StateObject(msgspec.Struct, frozen=True):
    metadata: _StateMetadata = _StateMetadata()
    status: NodeStateStatus = NodeStateStatus()


class _NamedObject(msgspec.Struct, frozen=True):
    metadata: _StateMetadata = _StateMetadata()


class NamedState(NamedTuple):
    """A NodeState as it was read. `told` is None where there is no state in it, and `problem` says why."""

    node: str
    told: Stamped | None
    problem: str = ""


def node_state(node: str) -> dict[str, Any]:
    """The object as it is made, without a status."""
    return {"apiVersion": "podslice.io/v1alpha1", "kind": "NodeState", "metadata": {"name": node}}


def status_of(told: Stamped) -> NodeStateStatus:
    """The status that holds a whole state."""
    assert isinstance(told.event, StateTold)
    packed = base64.b64encode(zlib.compress(encode(told), 6)).decode()
    problem = f"the state takes {len(packed)} bytes, more than {LARGEST}" if len(packed) > LARGEST else ""
    return NodeStateStatus(
        told.epoch,
        told.sequence,
        told.allocation,
        told.named,
        told.event.version,
        state="" if problem else packed,
        problem=problem,
    )


def node_of(data: bytes | bytearray | msgspec.Raw) -> str:
    """Whose NodeState it is. Raises `InputError` for what is none."""
    try:
        return intern(msgspec.json.decode(data, type=_NamedObject).metadata.name)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no NodeState: {str(error)[:200]}", path="nodeState") from None


def read_node_state(data: bytes | bytearray | msgspec.Raw, read: Callable[[bytes], Stamped] = decode) -> NamedState:
    """A NodeState object; `read` reads the event in it. Raises `InputError` for what is none; a state in it that cannot
    be read is its `problem`."""
    try:
        found = msgspec.json.decode(data, type=_StateObject)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no NodeState: {str(error)[:200]}", path="nodeState") from None
    status, node = found.status, found.metadata.name
    if not status.state:
        return NamedState(node, None, status.problem[:300] or "has no state yet")
    try:
        return NamedState(node, _told(status, read))
    except InputError as error:
        return NamedState(node, None, str(error))


def _told(status: NodeStateStatus, read: Callable[[bytes], Stamped]) -> Stamped:
    """Raises `InputError`."""
    if status.encoding != ENCODING:
        raise InputError(f"{status.encoding[:80]!r} is not {ENCODING}", path="status.encoding")
    try:
        data = unpack(base64.b64decode(status.state, validate=True), MOST_BYTES)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"cannot be unpacked: {error}", path="status.state") from None
    except InputError as error:
        raise error.at(path="status.state") from None
    told = read(data)
    if not isinstance(told.event, StateTold):
        raise InputError("is no state", path="status.state")
    return told
