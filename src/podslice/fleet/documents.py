"""The documents of `podslice fleet`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podslice.fleet.report.comparing import Configuration
from podslice.fleet.report.measures import BY_NAME, CRITERIA
from podslice.fleet.report.summary import RunSummary, sentences
from podslice.fleet.report.tables import DescribedTables
from podslice.fleet.scenario.fgd import FGDPoint
from podslice.fleet.scenario.plan_file import PlannedNodes
from podslice.fleet.traces.trace_facts import TraceFacts


class TraceDescription(TraceFacts, frozen=True, rename="camel"):
    """A trace as it is: its columns, its pods or nodes, what is missing, and notes that its users must know."""


class TraceProblem(msgspec.Struct, frozen=True):
    """A problem of one row of a trace, with its line and column."""

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


class FleetFigure(msgspec.Struct, frozen=True, rename="camel"):
    """A figure of a configuration: its mean over seeds, and half of the 95 % interval, null with one seed."""

    mean: float
    half_interval: float | None


class FleetConfiguration(msgspec.Struct, frozen=True):
    """A configuration and its figures by name, without those that do not exist for it."""

    name: str
    seeds: tuple[int, ...]
    figures: dict[str, FleetFigure]


class FleetRefusal(msgspec.Struct, frozen=True):
    """Refused attempts of pods of a shape on a class of nodes, for a reason, with the number of one such pod."""

    configuration: str
    shape: str
    nodes: str
    reason: str
    attempts: int
    example: int


class FleetComparison(msgspec.Struct, frozen=True, rename="camel"):
    """Configurations of one or more runs, best first by `criteria`; the most frequent refusals; assumptions about
    machines, configurations that do not start, and the number of cells that are not simulated yet."""

    name: str
    criteria: tuple[str, ...]
    meaning: dict[str, str]
    configurations: tuple[FleetConfiguration, ...]
    refusals: tuple[FleetRefusal, ...]
    sentences: tuple[str, ...]
    assumed: tuple[str, ...]
    not_started: tuple[str, ...]
    missing: int


class FleetPlan(PlannedNodes, frozen=True, rename="camel"):
    """The least nodes for each configuration of a scenario."""


class FleetTables(DescribedTables, frozen=True):
    """The tables of a run (`tables/tables.json`): files, columns with their types and meaning, and the version of their
    form, which rises when a column is removed or changes its meaning."""


_MOST_REFUSALS = 200


def comparison(summary: RunSummary, criteria: Sequence[str] = CRITERIA) -> FleetComparison:
    """Return the document about runs."""
    return FleetComparison(
        summary.name,
        tuple(criteria),
        {name: measure.meaning for name, measure in BY_NAME.items()},
        tuple(map(_configuration, summary.candidates)),
        tuple(FleetRefusal(*one) for one in summary.refusals[:_MOST_REFUSALS]),
        sentences(summary, criteria),
        summary.assumed,
        summary.not_started,
        summary.missing,
    )


def _configuration(candidate: Configuration) -> FleetConfiguration:
    figures = {
        name: FleetFigure(round(found.mean, 4), None if found.half is None else round(found.half, 4))
        for name in BY_NAME
        if (found := candidate.mean(name)) is not None
    }
    return FleetConfiguration(candidate.name, tuple(candidate.by_seed), figures)
