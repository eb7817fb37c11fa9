"""`podslice fleet validate`: compare the engine with published results."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from podslice.cli.group import CommandGroup
from podslice.cli.output import OUTPUT, emit
from podslice.fleet.commands.progress import PROGRESS, RunProgress
from podslice.fleet.documents import FleetValidation
from podslice.fleet.scenario.fgd import (
    POINTS,
    QUICK_SEEDS,
    SEEDS,
    CurveFile,
    FGDTraces,
    FGDVerdict,
    compare,
    plan_runs,
    run_all,
)
from podslice.render.ansi import echo, style
from podslice.render.table import format_table
from podslice.values.errors import InputError

_SHOWN = (90, 100)


@click.group(cls=CommandGroup)
def validate() -> None:
    """Compare the engine with published results.

    \b
    Examples:
      podslice fleet validate fgd --traces traces --quick

    Exit codes: 0 they agree, 1 they do not, 2 bad input.
    """


@validate.command("fgd")
@click.option(
    "--traces",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder with alibaba-gpu-v2023 and hkust-simulator/expected of FGD's artifact.",
)
@click.option("--quick", is_flag=True, help=f"The list `default` only, {QUICK_SEEDS} seeds.")
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Lists of pods; all of them without.")
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, show_default=True, metavar="N", help="Number of seeds.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Processes.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file for runs that are done; what is in it already is not run again.",
)
@PROGRESS
@OUTPUT("table")
def validate_fgd(
    *,
    folder: Path,
    quick: bool,
    workloads: tuple[str, ...],
    seeds: int,
    workers: int,
    keep: Path | None,
    form_of_progress: str,
    output: str,
) -> None:
    """Reproduce the published tables of FGD (Beware of Fragmentation, USENIX ATC 2023): how many of 6,212 GPUs are
    allocated as pods arrive, for 17 lists of pods, 6 policies and 10 seeds.

    Means of the seeds must be as near as chance allows: within 0.15 points or 2.5 standard errors at 60, 80, 90, 95,
    100 and 120 percent arrived, at most 3 percent of the points outside and none a point off.

    \b
    Examples:
      podslice fleet validate fgd --traces traces --quick
      podslice fleet validate fgd --traces traces --workers 2 --keep runs.jsonl

    Exit codes: 0 they agree, 1 they do not, 2 bad input.
    """
    traces = FGDTraces(folder)
    unknown = [name for name in workloads if name not in traces.workloads()]
    if unknown:
        raise InputError(
            f"has no list {unknown[0]}", path=str(folder), remedy=f"one of {', '.join(traces.workloads())}"
        )
    runs = plan_runs(traces, quick=quick, seeds=seeds, workloads=workloads)
    kept = CurveFile(keep)
    left = sum(run not in kept.curves for run in runs)
    with RunProgress(left, form_of_progress, what="runs") as progress:
        for run in run_all(folder, runs, kept, workers):
            progress.count(f"{run.workload} {run.policy} {run.seed}")
    verdict = compare(traces, {run: kept.curves[run] for run in runs})
    if output == "table":
        _print(verdict)
    else:
        emit(FleetValidation(verdict.agrees, verdict.outside, verdict.worst, verdict.points), output)
    if not verdict.agrees:
        sys.exit(1)


def _print(verdict: FGDVerdict) -> None:
    rows = []
    pairs = {(point.workload, point.policy): None for point in verdict.points}
    for workload, policy in pairs:
        own = [point for point in verdict.points if (point.workload, point.policy) == (workload, policy)]
        mine = {point.percent: point for point in own}
        cells = [f"{mine[at].ours:.2f} ({mine[at].published:.2f})" for at in _SHOWN]
        worst = max(mine.values(), key=lambda point: abs(point.difference))
        outside = sum(not point.inside for point in mine.values())
        agreement = (
            style("agrees", fg="green") if not outside else style(f"{outside} of {len(POINTS)} outside", fg="red")
        )
        seeds = str(mine[_SHOWN[0]].seeds)
        rows.append([workload, policy, seeds, *cells, f"{worst.difference:+.2f} at {worst.percent} %", agreement])
    headings = ["LIST", "POLICY", "SEEDS", *(f"AT {at} %" for at in _SHOWN), "LARGEST DIFFERENCE", "VERDICT"]
    echo(format_table(headings, rows, right=(2, 3, 4), bold=True))
    echo("GPUs allocated in percent, published in brackets.")
    echo(
        f"{len(verdict.points) - verdict.outside} of {len(verdict.points)} points inside of their bands, "
        f"the worst is {verdict.worst:.2f} points off: {'they agree' if verdict.agrees else 'they do not agree'}."
    )
