"""A cell's outcome as bytes: the same outcome, the same bytes, on every machine.

Columns are little-endian 64-bit integers; sums, which may be larger, are decimal. Sets of CPUs, of which few are
different, are a table and a column of places in it. The bytes are compressed without time stamps.
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
from podslice.values.errors import InputError

VERSION = 4
MOST_UNPACKED = 1 << 29
"""Bytes of an outcome; one of 100 000 nodes and a million pods has some 100 MB."""
_LEVEL = 6


class ShapeFacts(NamedTuple):
    """A shape by name, with what it asks for: milli-CPUs, bytes, milli of all its GPUs."""

    name: str
    cpu: int
    memory: int
    gpu: int


class ClassFacts(NamedTuple):
    """A class of nodes by name, with what a scheduler may give away of each: milli-CPUs, bytes, milli of all GPUs."""

    name: str
    cpu: int
    memory: int
    gpu: int


class CellOutcome(NamedTuple):
    """What a cell came to, and what it was about: shapes and classes of nodes by position; `shape` and `arrival` of
    each pod, `kind` of each node."""

    result: CellResult
    shapes: tuple[ShapeFacts, ...]
    classes: tuple[ClassFacts, ...]
    nodes: tuple[str, ...]
    shape: array[int]
    arrival: array[int]
    kind: array[int]


class DamagedError(ValueError):
    """Bytes that are no outcome."""


def encode(outcome: CellOutcome) -> bytes:
    """The outcome as bytes; `work` is not part of it, because it depends on the machine."""
    result = outcome.result
    pods, nodes = result.pods, result.nodes
    data = {
        "version": VERSION,
        "summary": {name: str(value) for name, value in result.summary.items()},
        "series": {name: _bytes(column) for name, column in result.series.items()},
        "refusals": [list(one) for one in result.refusals],
        "reasons": list(result.reasons),
        "popular": result.popular,
        "pods": {name: _bytes(getattr(pods, name)) for name in _POD_NUMBERS},
        "cpus": _table(pods.cpus),
        "numa": _table(pods.numa),
        "nodes": {name: _bytes(getattr(nodes, name)) for name in NodeColumns._fields},
        "names": {
            "shapes": [list(one) for one in outcome.shapes],
            "classes": [list(one) for one in outcome.classes],
            "nodes": list(outcome.nodes),
        },
        "about": {"shape": _bytes(outcome.shape), "arrival": _bytes(outcome.arrival), "kind": _bytes(outcome.kind)},
    }
    return zlib.compress(msgspec.msgpack.encode(data), _LEVEL)


def decode(data: bytes) -> CellOutcome:
    """The outcome that was encoded. Raises `DamagedError`."""
    try:
        found = msgspec.msgpack.decode(unpack(data, MOST_UNPACKED))
        return _outcome(found)
    except (InputError, msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedError(f"is no outcome of a cell: {error}") from None


def _outcome(found: dict[str, Any]) -> CellOutcome:
    if found["version"] != VERSION:
        raise ValueError(f"version {found['version']}")
    pods = {name: _column(found["pods"][name]) for name in _POD_NUMBERS}
    names, about = found["names"], found["about"]
    result = CellResult(
        summary={name: int(value) for name, value in found["summary"].items()},
        series={name: _column(column) for name, column in found["series"].items()},
        refusals=tuple(RefusalCount(*one) for one in found["refusals"]),
        reasons=tuple(found["reasons"]),
        popular=found["popular"],
        pods=PodColumns(**pods, cpus=_sets(found["cpus"]), numa=_sets(found["numa"])),
        nodes=NodeColumns(**{name: _column(found["nodes"][name]) for name in NodeColumns._fields}),
    )
    return CellOutcome(
        result,
        tuple(ShapeFacts(*one) for one in names["shapes"]),
        tuple(ClassFacts(*one) for one in names["classes"]),
        tuple(names["nodes"]),
        _column(about["shape"]),
        _column(about["arrival"]),
        _column(about["kind"]),
    )


_POD_NUMBERS = tuple(name for name in PodColumns._fields if name not in ("cpus", "numa"))


def _bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array("q", column)
        column.byteswap()
    return column.tobytes()


def _column(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _table(sets: Sequence[Bits]) -> list[Any]:
    places: dict[Bits, int] = {}
    column = array("q", (places.setdefault(one, len(places)) for one in sets))
    return [[f"{one:x}" for one in places], _bytes(column)]


def _sets(data: list[Any]) -> list[Bits]:
    known = [int(text, 16) for text in data[0]]
    return [known[place] for place in _column(data[1])]
