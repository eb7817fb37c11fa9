"""Encode a cell's outcome as bytes: equal outcomes are equal bytes on every machine.

Columns are little-endian 64-bit integers; sums, which may be larger, are decimal texts. CPU masks, of which few are
distinct, are a table and a column of positions in it. The compressed bytes contain no time stamp.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from podslice.fleet.engine.result import CellResult, NodeColumns, PodColumns, RefusalCount
from podslice.reading.unpacking import unpack
from podslice.values.cpuset import Bits
from podslice.values.errors import InputError, PodsliceError

VERSION = 4
"""Version of the encoding; outcomes of another version are damaged ones to `decode`."""
MOST_UNPACKED = 1 << 29
"""Limit of an outcome in bytes before compression; one of 100 000 nodes and a million pods has some 100 MB."""
_LEVEL = 6


class ShapeFacts(NamedTuple):
    """A shape by name, with its requests: millicores, bytes, milli of all its GPUs."""

    name: str
    cpu: int
    memory: int
    gpu: int


class ClassFacts(NamedTuple):
    """A class of nodes by name, with the allocatable amounts of each node: millicores, bytes, milli of all GPUs."""

    name: str
    cpu: int
    memory: int
    gpu: int


class CellOutcome(NamedTuple):
    """A cell's result, with what its numbers mean: shapes and classes of nodes by position; `shape` and `arrival` of
    each pod, `kind` (class) of each node."""

    result: CellResult
    shapes: tuple[ShapeFacts, ...]
    classes: tuple[ClassFacts, ...]
    nodes: tuple[str, ...]
    shape: array[int]
    arrival: array[int]
    kind: array[int]


class DamagedError(PodsliceError, ValueError):
    """Raised for bytes that are not an outcome."""


def encode(outcome: CellOutcome) -> bytes:
    """Encode an outcome, without `work`, which depends on the machine."""
    result = outcome.result
    pods, nodes = result.pods, result.nodes
    data = {
        "version": VERSION,
        # Integrals over months exceed 64 bits.
        "summary": {name: str(value) for name, value in result.summary.items()},
        "series": {name: _encode_column(column) for name, column in result.series.items()},
        "refusals": [list(one) for one in result.refusals],
        "reasons": list(result.reasons),
        "popular": result.popular,
        "pods": {name: _encode_column(getattr(pods, name)) for name in _POD_NUMBERS},
        "cpus": _encode_masks(pods.cpus),
        "numa": _encode_masks(pods.numa),
        "nodes": {name: _encode_column(getattr(nodes, name)) for name in NodeColumns._fields},
        "names": {
            "shapes": [list(one) for one in outcome.shapes],
            "classes": [list(one) for one in outcome.classes],
            "nodes": list(outcome.nodes),
        },
        "about": {
            "shape": _encode_column(outcome.shape),
            "arrival": _encode_column(outcome.arrival),
            "kind": _encode_column(outcome.kind),
        },
    }
    return zlib.compress(msgspec.msgpack.encode(data), _LEVEL)


def decode(data: bytes) -> CellOutcome:
    """Return the outcome that was encoded. Raises `DamagedError`."""
    try:
        found = msgspec.msgpack.decode(unpack(data, MOST_UNPACKED))
        return _to_outcome(found)
    except (InputError, msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedError(f"is not an outcome of a cell: {error}") from None


def _to_outcome(found: dict[str, Any]) -> CellOutcome:
    if found["version"] != VERSION:
        raise ValueError(f"version {found['version']}")
    pods = {name: _decode_column(found["pods"][name]) for name in _POD_NUMBERS}
    names, about = found["names"], found["about"]
    result = CellResult(
        summary={name: int(value) for name, value in found["summary"].items()},
        series={name: _decode_column(column) for name, column in found["series"].items()},
        refusals=tuple(RefusalCount(*one) for one in found["refusals"]),
        reasons=tuple(found["reasons"]),
        popular=found["popular"],
        pods=PodColumns(**pods, cpus=_decode_masks(found["cpus"]), numa=_decode_masks(found["numa"])),
        nodes=NodeColumns(**{name: _decode_column(found["nodes"][name]) for name in NodeColumns._fields}),
    )
    return CellOutcome(
        result,
        tuple(ShapeFacts(*one) for one in names["shapes"]),
        tuple(ClassFacts(*one) for one in names["classes"]),
        tuple(names["nodes"]),
        _decode_column(about["shape"]),
        _decode_column(about["arrival"]),
        _decode_column(about["kind"]),
    )


_POD_NUMBERS = tuple(name for name in PodColumns._fields if name not in ("cpus", "numa"))


def _encode_column(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array("q", column)
        column.byteswap()
    return column.tobytes()


def _decode_column(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _encode_masks(sets: Sequence[Bits]) -> list[Any]:
    places: dict[Bits, int] = {}
    column = array("q", (places.setdefault(one, len(places)) for one in sets))
    return [[f"{one:x}" for one in places], _encode_column(column)]


def _decode_masks(data: list[Any]) -> list[Bits]:
    known = [int(text, 16) for text in data[0]]
    return [known[place] for place in _decode_column(data[1])]
