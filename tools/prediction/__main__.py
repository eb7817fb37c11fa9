"""`python -m tools.prediction`: a real kubelet beside podslice (docs/development/prediction.md)."""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import click
from e2e.packages import FetchError
from e2e.programs import find_programs

from tools.prediction.configurations import ALL, configuration
from tools.prediction.kubelet import KubeletEndedError, why_not
from tools.prediction.node import control_plane, node_of
from tools.prediction.shortage import ShortageError
from tools.prediction.table import row, table
from tools.prediction.trial import Trial


@click.command()
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Default: another one each time; it is printed.")
@click.option("--pods", type=click.IntRange(min=1), default=20, show_default=True, help="In each configuration.")
@click.option("--configurations", "count", type=click.IntRange(min=1), default=len(ALL), show_default=True,
              help="How many: the named ones, then drawn ones.")  # fmt: skip
@click.option("--first", type=click.IntRange(min=0), default=0, help="The number of the first one, from 0.")
@click.option("--folder", type=click.Path(path_type=Path), metavar="DIR", help="Keep logs and files there.")
@click.option("--skip-without", is_flag=True, help="Exit 0, not 2, where no kubelet can run.")
def main(seed: int | None, pods: int, count: int, first: int, folder: Path | None, skip_without: bool) -> None:
    """Let a real kubelet and podslice (profile kubelet-1.36) go through the same histories, and compare everything.

    Where a kubelet ends, or takes a minute for one step, the next configuration goes on. Exit codes: 0 no difference, 1
    some or a configuration that ended early, 2 no kubelet can run here, or none any more, or bad options.
    """
    try:
        reason, programs = why_not(), find_programs()
    except FetchError as error:
        reason, programs = str(error), None
    if reason or programs is None:
        click.echo(f"prediction: {reason}; nothing compared", err=True)
        sys.exit(0 if skip_without else 2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left running, nor its cgroups
    seed = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"prediction: seed {seed}, {pods} pods in each of {count} configurations")
    total: Counter[str] = Counter()
    rows: list[str] = []
    short = ""
    with tempfile.TemporaryDirectory(prefix="podslice-") as temporary:
        place = folder or Path(temporary)
        with control_plane(programs, place) as plane:
            for number in range(first, first + count):
                r = Random(f"prediction-{seed}-{number}")
                chosen = configuration(r, number)
                (place / str(number)).mkdir()
                began = time.monotonic()
                with node_of(plane, programs, place / str(number), chosen.shape) as node:
                    trial = Trial(node, chosen, r)
                    try:
                        trial.run(pods)
                    except KubeletEndedError as error:
                        trial.counts["ended early"] += 1
                        click.echo(f"  {chosen.name}: ended early at {trial.notes.step}: {error}")
                    except ShortageError as error:
                        short = str(error)
                for difference in trial.notes.differences:
                    click.echo(f"  {chosen.name}: {difference}")
                rows.append(row(number, chosen.name, trial.counts, time.monotonic() - began))
                click.echo(rows[-1])
                total += trial.counts
                if short:
                    break
    click.echo(table(rows, total))
    if short:
        click.echo(f"prediction: no kubelet can run here any more: {short}; the rest was not compared", err=True)
        sys.exit(2)
    sys.exit(1 if total["differences"] or total["ended early"] else 0)


if __name__ == "__main__":
    main()
