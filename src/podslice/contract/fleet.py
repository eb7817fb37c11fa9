"""The answers of `podslice fleet`."""

from __future__ import annotations

import msgspec

from podslice.fleet.fgd import FGDPoint
from podslice.fleet.trace_facts import TraceFacts


class TraceDescription(TraceFacts, frozen=True, rename="camel"):
    """A trace as it is: its columns, its pods or nodes, what is missing, and what whoever uses it must know."""


class TraceProblem(msgspec.Struct, frozen=True):
    """What is wrong with one row of a trace, with its line and column."""

    problem: str
    remedy: str


class TraceCheck(msgspec.Struct, frozen=True):
    """Whether a trace can be read to its end; `problems` are the first of the `wrong` rows."""

    file: str
    format: str
    rows: int
    wrong: int
    problems: tuple[TraceProblem, ...]


class FleetValidation(msgspec.Struct, frozen=True):
    """Whether the engine reproduces published results. `outside`: points outside of their bands; `worst`: the largest
    difference, in percent of all GPUs."""

    agrees: bool
    outside: int
    worst: float
    points: tuple[FGDPoint, ...]
