"""`podslice fleet plan`: how many nodes a workload needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from podslice.cli.fleet.progress import RunProgress
from podslice.cli.output import OUTPUT, emit, prose_width
from podslice.contract.fleet import FleetPlan
from podslice.fleet.cells import Study
from podslice.fleet.needs import need_numpy
from podslice.fleet.plan_file import PLAN_FILE, PlannedNodes, written_plan
from podslice.fleet.scenario_file import load_scenario
from podslice.fleet.store import RunStore
from podslice.fleet.strict import milliseconds
from podslice.render.ansi import echo
from podslice.render.prose import counted, wrapped


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tolerance", type=click.FloatRange(0, 100), default=0.2, show_default=True, metavar="PERCENT",
              help="Demand that may stay unmet.")  # fmt: skip
@click.option("--patience", default="60s", show_default=True, metavar="TIME",
              help="Demand that has not run this long after its arrival is unmet.")  # fmt: skip
@click.option("--growth", is_flag=True, help="Find too how many percent more pods all nodes would take.")
@click.option("--workers", type=click.IntRange(1, 256), metavar="N", help="Processes; as many as CPUs by default.")
@click.option("--out", metavar="RUN", type=click.Path(path_type=Path, file_okay=False),
              help="A run whose page shows the plan.")  # fmt: skip
@OUTPUT("table")
def plan(
    *, file: Path, tolerance: float, patience: str, growth: bool, workers: int | None, out: Path | None, output: str
) -> None:
    """Find the least number of nodes for every configuration of a scenario, over its seeds. Nodes go away in a random
    order, the same for all configurations.

    \b
    Examples:
      podslice fleet plan fleet-capacity/scenario.yaml
      podslice fleet plan fleet-capacity/scenario.yaml --tolerance 1 -o json
      podslice fleet plan fleet-capacity/scenario.yaml --growth

    Exit codes: 0 found, 1 the nodes of the scenario are not enough, 2 bad input.
    """
    need_numpy()
    from podslice.fleet.plan import Tolerated, plan_nodes

    study = Study(load_scenario(file), file.parent)
    study.check_traces()
    configurations = len({cell._replace(seed=0) for cell in study.cells})
    progress = RunProgress(configurations, "auto", what="configurations")
    progress.begin()
    tolerated = Tolerated(tolerance, milliseconds(patience, "--patience"), growth)
    found = plan_nodes(study, tolerated, progress.done, workers=workers or os.cpu_count() or 1)
    progress.end()
    if out is not None:
        RunStore(out).write(PLAN_FILE, written_plan(found))
    if output == "table":
        _print(found)
    else:
        emit(FleetPlan(**{name: getattr(found, name) for name in found.__struct_fields__}), output)
    if not all(one.enough for one in found.configurations):
        sys.exit(1)


def _print(found: PlannedNodes) -> None:
    from podslice.fleet.plan import sizes
    from podslice.render.table import print_table

    rows = [
        [one.name, str(one.median) if one.enough else f"> {found.nodes}", str(one.least), str(one.most), str(one.p90)]
        for one in found.configurations
    ]
    echo(f"{found.name}: the least nodes with at most {found.tolerance:g} % of the demand not running in time\n")
    print_table(["CONFIGURATION", "MEDIAN", "LEAST", "MOST", "90 %"], rows, right=[1, 2, 3, 4])
    echo("")
    for line in sizes(found):
        echo(wrapped(line, prose_width()))
    if found.anomalies:
        echo(f"\n{counted(len(found.anomalies), 'time')} a smaller number was enough where a greater one was not, "
             f"or the other way: {found.anomalies[0]}")  # fmt: skip
