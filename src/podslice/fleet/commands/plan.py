"""`podslice fleet plan`: how many nodes a workload needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from podslice.cli.output import OUTPUT, emit, print_warnings, prose_width
from podslice.extras import need_modules
from podslice.fleet.commands.progress import PROGRESS, RunProgress
from podslice.fleet.documents import FleetPlan
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.plan_file import PLAN_FILE, PlannedNodes, encode_plan
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.fleet.scenario.strict import milliseconds
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError
from podslice.values.quantity import plural


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tolerance", type=click.FloatRange(0, 100), default=0.2, show_default=True, metavar="PERCENT",
              help="Demand that may stay unmet.")  # fmt: skip
@click.option("--patience", default="60s", show_default=True, metavar="TIME",
              help="Demand that has not run this long after its arrival is unmet.")  # fmt: skip
@click.option("--growth", is_flag=True, help="Also find how many percent more pods all nodes would take.")
@click.option("--by-class", is_flag=True, help="Also find how many nodes of each class can go while all others stay.")
@click.option("--weight", "weights", multiple=True, metavar="CLASS=N",
              help="Remove classes together, N nodes of one for N' of another; others stay. Repeat it.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), metavar="N", help="Processes; as many as CPUs by default.")
@click.option("--out", metavar="RUN", type=click.Path(path_type=Path, file_okay=False),
              help="A run whose page shows the plan.")  # fmt: skip
@PROGRESS
@OUTPUT("table")
def plan(
    *,
    file: Path,
    tolerance: float,
    patience: str,
    growth: bool,
    by_class: bool,
    weights: tuple[str, ...],
    workers: int | None,
    out: Path | None,
    form_of_progress: str,
    output: str,
) -> None:
    """Find the least number of nodes for every configuration of a scenario, over its seeds. Nodes are removed in a
    random order, the same for all configurations: of all classes alike, or by --weight.

    \b
    Examples:
      podslice fleet plan fleet-capacity/scenario.yaml
      podslice fleet plan fleet-capacity/scenario.yaml --tolerance 1 -o json
      podslice fleet plan fleet-capacity/scenario.yaml --growth
      podslice fleet plan cluster/scenario.yaml --by-class
      podslice fleet plan cluster/scenario.yaml --weight 'gpu*=1' --weight 96c=3

    Exit codes: 0 found, 1 the nodes of the scenario are not enough, 2 bad input.
    """
    # Before the imports below, which load numpy.
    need_modules("simulating", ("numpy",), extras="fleet")
    from podslice.fleet.scenario.plan import PlanTerms, group_cells, plan_nodes
    from podslice.fleet.scenario.run import assumptions

    if by_class and weights:
        raise InputError("--by-class and --weight are two questions", path="--weight", remedy="ask one after the other")
    terms = PlanTerms(tolerance, milliseconds(patience, "--patience"), growth, by_class, tuple(map(_weight, weights)))
    study = Study(load_scenario(file), file.parent)
    print_warnings(study.check_traces())
    configurations = len({cell._replace(seed=0) for cell in study.cells})
    work = group_cells(study).keys()
    with RunProgress(configurations, form_of_progress, work=work, what="configurations") as progress:
        found = plan_nodes(study, terms, progress, workers=workers or os.cpu_count() or 1)
    found = msgspec.structs.replace(found, assumed=assumptions(study))
    if out is not None:
        RunStore(out).write(PLAN_FILE, encode_plan(found))
    if output == "table":
        _print(found)
    else:
        emit(FleetPlan(**{name: getattr(found, name) for name in found.__struct_fields__}), output)
    if not all(one.enough for one in found.configurations):
        sys.exit(1)


def _weight(text: str) -> tuple[str, int]:
    """Parse `CLASS=N`. Raises `InputError`."""
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal():
        raise InputError(
            f"{text!r} is not a weight of a class", path="--weight", remedy="write CLASS=N, such as 'gpu*=2'"
        )
    return name, int(number)


def _print(found: PlannedNodes) -> None:
    from podslice.fleet.scenario.plan import describe_plan
    from podslice.render.table import print_table

    rows = [
        [one.name, str(one.median) if one.enough else f"> {found.nodes}", str(one.least), str(one.most), str(one.p90)]
        for one in found.configurations
    ]
    echo(f"{found.name}: the least nodes with at most {found.tolerance:g} % of the demand not running in time\n")
    print_table(["CONFIGURATION", "MEDIAN", "LEAST", "MOST", "90 %"], rows, right=[1, 2, 3, 4])
    echo("")
    of_classes = [
        [one.name, kind.name, *map(str, (kind.nodes, kind.fewer, kind.least, kind.most, kind.p90))]
        for one in found.configurations
        for kind in one.classes
    ]
    if of_classes:
        print_table(["CONFIGURATION", "CLASS", "NODES", "FEWER", "LEAST", "MOST", "90 %"], of_classes,
                    right=[2, 3, 4, 5, 6])  # fmt: skip
        echo("")
    for line in describe_plan(found):
        echo(wrap_lines(line, prose_width()))
    echo(wrap_lines(f"Assumed: {'; '.join(found.assumed)}", prose_width()))
    if found.anomalies:
        echo(f"\n{plural(len(found.anomalies), 'time')} a smaller number was enough where a greater one was not, "
             f"or the other way: {found.anomalies[0]}")  # fmt: skip
