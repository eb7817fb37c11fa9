"""`python -m tools.judge`: hunt for differences from v1.36.2's own managers (docs/development/judge.md)."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import click
from e2e.places import place_of

from podslice.values.errors import PodsliceError
from tools.judge.binary import VARIABLE, find
from tools.judge.hunt import BATCH, DRAW, Batch, Difference, Outcome, hunt

_COUNTED = (
    "cases", "admissions", "admitted", "re-admissions", "restarts", "other operations", "chance",
    "chance without our answer", "timeouts", "unanswered", "panics", "predicted", "firm differences",
)  # fmt: skip
_EVERY = 60.0
"""Seconds between two lines of progress."""


@click.command()
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Default: another one each time; it is printed.")
@click.option("--cases", type=click.IntRange(min=1), metavar="N", default=1000, show_default=True, help="How many.")
@click.option("--seconds", type=click.IntRange(min=1), metavar="N", help="Start no more cases after so long.")
@click.option("--kinds", metavar="KIND,…", default=",".join(DRAW), show_default=True, help="Which cases, in turn.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", default=os.cpu_count() or 1, help="Processes.")
@click.option("--found", type=click.Path(path_type=Path), metavar="FILE", default=Path("judge-found.jsonl"),
              show_default=True, help="Where firm differences go.")  # fmt: skip
@click.option("--skip-without", is_flag=True, help="Exit 0, not 2, when there is no judge.")
def main(
    seed: int | None, cases: int, seconds: int | None, kinds: str, jobs: int, found: Path, skip_without: bool
) -> None:
    """Draw new cases, have v1.36.2's own managers decide them, and compare with profile kubelet-1.36.

    The judge is found through PODSLICE_JUDGE, else in the user's cache (podslice/judge). Exit codes: 0 no firm
    difference, 1 some, 2 no judge or bad options.
    """
    chosen = [kind for kind in kinds.split(",") if kind]
    unknown = sorted(set(chosen) - set(DRAW))
    if unknown or not chosen:
        raise click.UsageError(f"--kinds: unknown kind {', '.join(unknown) or '(none)'}; use {', '.join(DRAW)}")
    try:
        judge = find(dict(os.environ))
    except PodsliceError as error:
        raise click.ClickException(str(error)) from None
    if judge is None:
        where = place_of(VARIABLE, "judge")
        click.echo(f"judge: none in {where} ({VARIABLE} names another place), nothing compared", err=True)
        sys.exit(0 if skip_without else 2)
    seed = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"judge: seed {seed}, {cases} cases of {', '.join(chosen)}")
    batches = _batches(chosen, seed, cases)
    counts = _run(judge, batches, jobs, time.monotonic() + seconds if seconds else None, found)
    click.echo(_summary(counts))
    sys.exit(1 if counts["firm differences"] else 0)


def _batches(kinds: list[str], seed: int, cases: int) -> Iterator[Batch]:
    """Yield batches of the kinds in turn, `cases` cases in all."""
    first = dict.fromkeys(kinds, 0)
    while cases > 0:
        for kind in kinds:
            size = min(BATCH[kind], cases)
            if size > 0:
                yield Batch(kind, seed, first[kind], size)
            first[kind] += size
            cases -= size


def _run(judge: Path, batches: Iterator[Batch], jobs: int, until: float | None, found: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    waiting: set[Future[Outcome]] = set()
    exhausted = False
    last_progress = time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        while waiting or not exhausted:
            while not exhausted and len(waiting) < jobs:
                batch = None if until is not None and time.monotonic() >= until else next(batches, None)
                exhausted = batch is None
                if batch is not None:
                    waiting.add(pool.submit(hunt, judge, batch))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                counts.update(outcome.counts)
                for difference in outcome.differences:
                    _report(difference, found)
            if time.monotonic() >= last_progress + _EVERY:
                last_progress = time.monotonic()
                click.echo(f"  so far: {_summary(counts)}", err=True)
    return counts


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in _COUNTED)


def _report(difference: Difference, found: Path) -> None:
    click.echo(f"  {difference.name}: {difference.text}")
    with found.open("a") as file:
        file.write(json.dumps({"case": difference.case, "result": difference.result}) + "\n")


if __name__ == "__main__":
    main()
