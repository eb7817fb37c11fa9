"""`python -m prediction`: a real kubelet beside podslice, many pods in many configurations (docs/prediction.md)."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import click
from e2e.packages import FetchError
from e2e.programs import find_programs

from prediction.configurations import NAMED, configuration
from prediction.node import control_plane, node_of
from prediction.trial import Trial


@click.command()
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Draws the same pods again.")
@click.option("--pods", type=click.IntRange(min=1), default=20, show_default=True, help="In each configuration.")
@click.option("--configurations", "count", type=click.IntRange(min=1), default=len(NAMED), show_default=True)
@click.option("--only", type=int, multiple=True, help="Configurations by their numbers, from 0.")
@click.option("--keep", is_flag=True, help="Keep the folders with logs and files.")
def main(seed: int, pods: int, count: int, only: tuple[int, ...], keep: bool) -> None:
    try:
        programs = find_programs()
    except FetchError as error:
        raise click.ClickException(str(error)) from None
    total: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="prediction-"))
    print(folder)
    with control_plane(programs, folder) as plane:
        for number in only or range(count):
            r = Random(f"prediction-{seed}-{number}")
            chosen = configuration(r, number)
            began = time.monotonic()
            place = folder / str(number)
            place.mkdir()
            with node_of(plane, programs, place, chosen.shape) as node:
                trial = Trial(node, chosen, r)
                try:
                    trial.run(pods)
                except Exception:
                    for d in trial.differences:
                        print("  DIFF", d, flush=True)
                    raise
            print(f"{number} {chosen.name}: {time.monotonic() - began:.0f} s", dict(trial.counts), flush=True)
            for d in trial.differences:
                print("  DIFF", d, flush=True)
            total += trial.counts
    print(dict(total))


if __name__ == "__main__":
    main()
