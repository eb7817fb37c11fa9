"""`podslice fleet compare`: configurations of runs."""

from __future__ import annotations

from pathlib import Path

import click

from podslice.cli.output import OUTPUT, emit
from podslice.fleet.commands.summary_table import print_summary
from podslice.fleet.documents import comparison
from podslice.fleet.report.comparing import criteria_with
from podslice.fleet.report.measures import CRITERIA
from podslice.fleet.report.summary import summarize
from podslice.fleet.scenario.store import RunStore


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--by", default=CRITERIA[0], show_default=True, metavar="FIGURE", help="Figure to rank by first.")
@OUTPUT("table", "wide")
def compare(*, runs: tuple[Path, ...], by: str, output: str) -> None:
    """Compare the configurations of one run, or of several runs of the same pods. Means are over seeds, with half of
    the 95 % interval; a difference counts if, paired by seed, its interval leaves out 0.

    \b
    Examples:
      podslice fleet compare fleet-openb/which-kubelet-run
      podslice fleet compare run-a run-b --by expectedStranded -o wide

    Exit codes: 0 compared, 2 bad input.
    """
    # Before any run is read: a wrong name of a figure is reported at once.
    criteria = criteria_with(by)
    summary = summarize([RunStore(folder) for folder in runs], criteria)
    if output in ("table", "wide"):
        print_summary(summary, wide=output == "wide", criteria=criteria)
    else:
        emit(comparison(summary, criteria), output)
