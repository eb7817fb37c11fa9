"""`podslice fleet report`: a page about a run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from podslice.fleet.documents import comparison
from podslice.fleet.report.report import report_page
from podslice.fleet.report.summary import summarize
from podslice.fleet.report.tables import write_tables
from podslice.fleet.scenario.plan_file import PLAN_FILE, read_plan
from podslice.fleet.scenario.run import open_study
from podslice.fleet.scenario.store import RunStore
from podslice.render.ansi import echo
from podslice.values.document import document


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True,
              help="Form of the tables.")  # fmt: skip
def report(*, folder: Path, form: str) -> None:
    """Write report.html, one file that loads nothing, report.json, and the tables of a run, also of one that is not
    done yet. A plan (podslice fleet plan --out RUN) is shown too.

    \b
    Examples:
      podslice fleet report fleet-openb/which-kubelet-run

    Exit codes: 0 written, 2 bad input.
    """
    store = RunStore(folder)
    summary = summarize([store])
    write_tables(store, form)
    store.write(
        "report.json", (json.dumps(document(comparison(summary)), indent=1, ensure_ascii=False) + "\n").encode()
    )
    planned = read_plan(store.folder / PLAN_FILE)
    store.write("report.html", report_page(store, open_study(store), summary, planned).encode())
    echo(f"podslice: wrote {folder}/report.html, report.json and tables", err=True)
