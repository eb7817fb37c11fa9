"""The extender's messages, bytes in and bytes out, exactly as kube-scheduler v1.36.2 writes and reads them.

Members of requests are capitalised and the pod inside is an ordinary v1.Pod; answers are matched without regard to
case (docs/development/cluster-service.md, Wire). Requests are untrusted: they are decoded within bounds and only as far
as needed, and every problem is one line. Pure: no sockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from podslice.service.answers import NAME_FORM, UID_FORM
from podslice.values.decoding import decoding_problem
from podslice.values.errors import PodsliceError

MOST_NODES = 20_000
LARGEST_REQUEST = 16 << 20
"""Bytes of a request: 20 000 names of 253 characters and a pod of etcd's size."""
_LONGEST_TEXT = 900
"""Characters of a reason; kube-scheduler cuts the text of an event at 1 024."""


class MessageError(PodsliceError):
    """Raised for a malformed request; the text is one line."""


class FilterRequest(NamedTuple):
    """`pod` is JSON of a v1.Pod, `nodes` are names in the scheduler's order. Prioritize has the same body."""

    pod: msgspec.Raw
    nodes: list[str]


class BindRequest(msgspec.Struct, frozen=True):
    """A Binding that the scheduler asks for."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class NodeVictims(NamedTuple):
    """UIDs of the victims on a node, and how many PodDisruptionBudgets their eviction violates."""

    pods: tuple[str, ...]
    violations: int = 0


class PreemptRequest(NamedTuple):
    """The candidates of the scheduler's own preemption, by node."""

    pod: msgspec.Raw
    victims: dict[str, NodeVictims]


class FilterAnswer(NamedTuple):
    """`nodes` are names of the request. `unresolvable` are nodes on which no preemption would help. An `error` fails
    the whole scheduling attempt."""

    nodes: Sequence[str] = ()
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""


_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Names = Annotated[list[str], msgspec.Meta(max_length=MOST_NODES)]


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw
    node_names: _Names | None = None


class _MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class _MetaVictims(msgspec.Struct, frozen=True):
    pods: Annotated[list[_MetaPod], msgspec.Meta(max_length=10_000)] | None = msgspec.field(name="Pods", default=None)
    violations: _Count = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptArgs(msgspec.Struct, frozen=True):
    pod: msgspec.Raw = msgspec.field(name="Pod")
    victims: Annotated[dict[str, _MetaVictims], msgspec.Meta(max_length=MOST_NODES)] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )


_ARGS = msgspec.json.Decoder(_Args)
_BIND = msgspec.json.Decoder(BindRequest)
_PREEMPT = msgspec.json.Decoder(_PreemptArgs)
_ENCODER = msgspec.json.Encoder()


def read_filter(body: bytes) -> FilterRequest:
    """Decode the body of filter and prioritize. Raises `MessageError`, also for a scheduler that is not
    `nodeCacheCapable`."""
    args = _decode(_ARGS, body)
    if args.node_names is None:
        raise MessageError("NodeNames is null: set nodeCacheCapable: true in the scheduler's extender")
    return FilterRequest(_object(args.pod), args.node_names)


def read_bind(body: bytes) -> BindRequest:
    """Decode the body of bind; its names are safe as parts of a path. Raises `MessageError`."""
    args: BindRequest = _decode(_BIND, body)
    for member, value in (("PodName", args.name), ("PodNamespace", args.namespace), ("Node", args.node)):
        if not NAME_FORM.match(value):
            raise MessageError(f"{member}: {value[:80]!r} is not the name of an object")
    if not UID_FORM.match(args.uid):
        raise MessageError(f"PodUID: {args.uid[:80]!r} is not a UID")
    return args


def read_preempt(body: bytes) -> PreemptRequest:
    """Decode the body of preempt. Raises `MessageError`, also for a scheduler that is not `nodeCacheCapable`."""
    args = _decode(_PREEMPT, body)
    if args.victims is None:
        raise MessageError("NodeNameToMetaVictims is null: set nodeCacheCapable: true in the scheduler's extender")
    victims = {
        node: NodeVictims(tuple(pod.uid for pod in found.pods or ()), found.violations)
        for node, found in args.victims.items()
    }
    return PreemptRequest(_object(args.pod), victims)


def write_filter(answer: FilterAnswer) -> bytes:
    """Encode the answer to filter. `Nodes` stays null, because the scheduler would use Node objects from there in place
    of its own, without their pods."""
    return _ENCODER.encode(
        {
            "NodeNames": list(answer.nodes),
            "Nodes": None,
            "FailedNodes": dict(answer.failed),
            "FailedAndUnresolvableNodes": dict(answer.unresolvable),
            "Error": one_line(answer.error),
        }
    )


def write_scores(scores: Iterable[tuple[str, int]]) -> bytes:
    """Encode scores, limited to 0 to 10: kube-scheduler does not check them."""
    return _ENCODER.encode([{"Host": node, "Score": min(max(score, 0), 10)} for node, score in scores])


def write_bind(error: str = "") -> bytes:
    """Encode the answer to bind; `error` is empty for a pod that is bound."""
    return _ENCODER.encode({"Error": one_line(error)})


def write_victims(victims: Mapping[str, NodeVictims]) -> bytes:
    """Encode the answer to preempt. Nodes without victims are left out, because they would fail the scheduler's whole
    attempt."""
    return _ENCODER.encode(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in found.pods], "NumPDBViolations": found.violations}
                for node, found in victims.items()
                if found.pods
            }
        }
    )


def one_line(text: str) -> str:
    """Return a text as one line of printable characters, cut to `_LONGEST_TEXT`."""
    return "".join(char if char.isprintable() else " " for char in text[:_LONGEST_TEXT]).strip()


def _object(data: msgspec.Raw) -> msgspec.Raw:
    if bytes(memoryview(data)[:1]) != b"{":
        raise MessageError("Pod: is not an object")
    return data


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        # msgspec does not check the UTF-8 of a Raw, and the pod is one.
        str(memoryview(body), "utf-8")
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        path, problem, *_ = decoding_problem(str(error))
        raise MessageError(one_line(f"{path}: {problem}" if path else problem)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MessageError(one_line(f"the request is not JSON: {error}")) from None
