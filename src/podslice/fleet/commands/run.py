"""`podslice fleet run`: simulate the cells of a scenario."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
from msgspec.structs import replace

from podslice.cli.output import legend_option, print_warnings, prose_width, quiet_option
from podslice.extras import need_modules
from podslice.fleet.commands.progress import PROGRESS, RunProgress, span_text
from podslice.fleet.commands.summary_table import print_summary
from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.interrupts import INTERRUPTED, terminable
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError
from podslice.values.quantity import plural

_PROBE = 500


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Folder of the run; the default is NAME-run beside the scenario.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), metavar="N", help="Processes; as many as CPUs by default.")
@click.option("--dask", default="", metavar="ADDRESS", help="Workers of a Dask cluster instead, as tcp://host:8786.")
@click.option("--resume", is_flag=True, help="Continue an existing run; whole cells are kept.")
@click.option("--only", default="", metavar="TEXT", help="Only cells with this in their key.")
@click.option("--verify", type=click.IntRange(0), metavar="N",
              help="Compute every N-th remembered answer again and compare; 1 is all, 0 none. Cells that must come "
                   "to the same are simulated each.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True,
              help="Form of the tables.")  # fmt: skip
@click.option("--print", "print_only", is_flag=True, help="Print the scenario with all defaults, and its id.")
@click.option("--dry-run", is_flag=True, help="Print what would be simulated, and how long it takes.")
@PROGRESS
@quiet_option
@legend_option
def run(
    *,
    file: Path,
    out: Path | None,
    workers: int | None,
    dask: str,
    resume: bool,
    only: str,
    verify: int | None,
    form: str,
    print_only: bool,
    dry_run: bool,
    form_of_progress: str,
) -> None:
    """Simulate every configuration of a scenario with every seed, and compare them. Each simulation (a cell) is kept as
    soon as it is done; Ctrl-C, SIGTERM and a full disk lose nothing, --resume makes the rest.

    \b
    Examples:
      podslice fleet run scenario.yaml --dry-run
      podslice fleet run scenario.yaml --out run --workers 2
      podslice fleet run scenario.yaml --out run --resume
      podslice fleet run scenario.yaml --print

    Exit codes: 0 done, 1 a configuration does not start on a class of nodes, 2 bad input, 130 interrupted.
    """
    # Before the imports below, which load numpy.
    need_modules("simulating", ("numpy",), extras="fleet")
    from podslice.fleet.scenario.run import assumptions, copy_inputs, identity, plan_run, resolved_yaml

    study = Study(load_scenario(file), file.parent)
    if print_only:
        echo(f"# id {study.id}\n{resolved_yaml(study.scenario)}", nl=False)
        return
    folder = out or file.parent / f"{study.scenario.name}-run"
    store = RunStore(folder)
    cores = os.cpu_count() or 1
    plan = plan_run(study, store, only=only, resume=resume)
    print_warnings((*plan.warnings, *plan.not_started))
    if not plan.cells:
        raise InputError("no configuration starts on all classes of nodes", source=str(file))
    processes = min(workers or cores, max(len(plan.missing), 1))
    if dry_run:
        _print_plan(study, plan.missing, processes, assumptions(study))
        return
    store.begin(identity(study, plan), resolved_yaml(study.scenario), resume=resume)
    copy_inputs(study, store)
    with terminable():
        _simulate(study, store, plan.missing, workers=processes, dask=dask, verify=verify, form=form_of_progress)
        _finish(store, form)
    if plan.not_started:
        sys.exit(1)


def _simulate(
    study: Study,
    store: RunStore,
    cells: tuple[FleetCell, ...],
    *,
    workers: int,
    dask: str,
    verify: int | None,
    form: str,
) -> None:
    """Simulate cells with progress, and save them."""
    from podslice.fleet.scenario.equivalence import group_equivalent
    from podslice.fleet.scenario.run import make_tasks, open_executor, simulate_cells, sort_longest_first

    same = {one.key: (one,) for one in cells} if verify else group_equivalent(study, cells)
    firsts = sort_longest_first(study, [group[0] for group in same.values()])
    tasks = make_tasks(study, firsts, store, verify=verify, sent=bool(dask))
    try:
        with (
            RunProgress(len(cells), form, work=same.keys()) as progress,
            open_executor(study, workers, dask) as executor,
        ):
            for answer in simulate_cells(executor, tasks, store, study.id, progress, same):
                print_warnings((answer.warning,) if answer.warning else ())
                progress.count(answer.key)
    except KeyboardInterrupt:
        echo(f"podslice: interrupted; --resume goes on with {store.folder}", err=True)
        sys.exit(INTERRUPTED)


def _finish(store: RunStore, form: str) -> None:
    """Write the tables of a run and print its summary."""
    from podslice.fleet.report.summary import summarize
    from podslice.fleet.report.tables import write_tables

    write_tables(store, form)
    print_summary(summarize([store]), wide=False)
    echo(f"\npodslice fleet report {store.folder} makes a page of it; tables are in {store.folder}/tables", err=True)


def _print_plan(study: Study, cells: tuple[FleetCell, ...], workers: int, assumed: tuple[str, ...]) -> None:
    """Print what would be simulated, and how long it takes, estimated from a part of one cell."""
    from podslice.fleet.scenario.equivalence import group_equivalent

    scenario = study.scenario
    classes = ", ".join(one.name for one in study.cluster.classes[:6])
    more = f" and {len(study.cluster.classes) - 6} more" if len(study.cluster.classes) > 6 else ""
    echo(f"{scenario.name}: {plural(len(cells), 'cell')} to make")
    echo(f"nodes: {len(study.cluster.nodes)} of {len(study.cluster.classes)} classes: {classes}{more}")
    for line in assumed:
        echo(wrap_lines(f"  {line}", prose_width()))
    if not cells:
        return
    configurations = dict.fromkeys((cell.alternative, cell.configuration) for cell in cells)
    parts = ((len(configurations), "kubelet configuration"), (len(scenario.schedulers), "scheduler"),
             (len(scenario.transforms), "transform"), (len(scenario.seeds), "seed"))  # fmt: skip
    echo(" × ".join(plural(number, what) for number, what in parts))
    made = len(group_equivalent(study, cells))
    if made < len(cells):
        echo(f"{len(cells) - made} of the cells must come to the same as others and are not simulated")
    pods, seconds = _measure_speed(study, cells[0])
    whole = seconds * pods * made
    echo(f"pods in a cell: {pods}; at {1e6 * seconds:.0f} µs each on this machine, about {span_text(whole / workers)} "
         f"with {plural(workers, 'worker')}")  # fmt: skip


def _measure_speed(study: Study, cell: FleetCell) -> tuple[int, float]:
    """Return the number of pods of a cell, and seconds for each of the first ones."""
    from podslice.fleet.engine.run import run_cell
    from podslice.fleet.engine.workload import Workload

    made = study.build(cell)
    work = made.workload
    shape, arrival, length, node = (one[:_PROBE] for one in (work.shape, work.arrival, work.length, work.node))
    initial = {pod: uid for pod, uid in work.initial.items() if pod < _PROBE}
    few = Workload(work.shapes, shape, arrival, length, node, initial)
    begun = time.perf_counter()
    run_cell(made.fleet, few, replace(made.options, events=()), made.seed)
    return len(work), (time.perf_counter() - begun) / max(len(few), 1)
