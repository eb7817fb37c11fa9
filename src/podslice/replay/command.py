"""`podslice replay`: recorded decisions, run again on all cores."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from podslice.render.ansi import echo, style
from podslice.replay.run import ReplayedCase, compare_all, read_cases, release_of, run_case
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILE_NAMES, PROFILES, Quirks, quirks_of
from podslice.values.releases.release import Release

T = TypeVar("T")
_BATCH = 40


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--check", is_flag=True, help="Compare with the recorded results; exit 1 if any differ.")
@click.option("--profile", "profile_name", type=click.Choice(["kubelet", *PROFILE_NAMES]), default="kubelet",
              show_default=True,
              help="kubelet is that of the recorded release, with its defects; podslice is without.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N cases of each file.")
@click.option("--name", metavar="NAME", help="Only the case of this name.")
@click.option(
    "--differences", type=click.IntRange(min=0), metavar="N", default=5, show_default=True, help="Differences to show."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    default=os.cpu_count() or 1,
    help="Processes (default: all cores).",
)
def replay(
    *,
    files: tuple[Path, ...],
    check: bool,
    profile_name: str,
    limit: int | None,
    name: str | None,
    differences: int,
    jobs: int,
) -> None:
    """Run recorded cases (FILE.jsonl or FILE.jsonl.gz).

    The release is the one that a case or the name of its file or folder states (vectors-1.34), else 1.36.
    Without --check, prints our outcome per case as JSON lines. With it, compares every result and prints how many
    are identical, how many are declared deviations (where Kubernetes itself hangs or crashes), and the first that
    differ.

    \b
    Examples:
      podslice replay --check vectors/take.jsonl.gz
      podslice replay --name m00049-rnd vectors/managers-cpu.jsonl.gz

    Exit codes: 0 all identical or declared, 1 some different, 2 bad input.
    """
    different = 0
    for file in files:
        records = _select(file, limit, name)
        release = release_of(file, records[0]["case"])
        quirks = quirks_of(release) if profile_name == "kubelet" else PROFILES[profile_name]
        try:
            if check:
                different += _check(file, records, quirks, release, differences, jobs)
            else:
                _print_results(records, quirks, release, jobs)
        except InputError as error:
            raise error.at(source=str(file)) from None
    if different:
        sys.exit(1)


def _select(file: Path, limit: int | None, name: str | None) -> list[dict[str, Any]]:
    chosen = (record for record in read_cases(file) if name is None or record["case"].get("name") == name)
    found = list(islice(chosen, limit))
    if not found:
        wanted = f" named {name!r}" if name is not None else ""
        raise InputError(f"holds no cases{wanted}", source=str(file))
    return found


def _print_results(records: list[dict[str, Any]], quirks: Quirks, release: Release, jobs: int) -> None:
    for batch in _map(_run_batch, records, quirks, release, jobs):
        for case_name, result in batch:
            echo(json.dumps({"name": case_name, "result": result}, ensure_ascii=False))


def _run_batch(records: list[dict[str, Any]], quirks: Quirks, release: Release) -> list[tuple[str | None, Any]]:
    return [(record["case"].get("name"), run_case(record["case"], quirks, release)) for record in records]


def _check(
    file: Path, records: list[dict[str, Any]], quirks: Quirks, release: Release, differences: int, jobs: int
) -> int:
    if any("result" not in record for record in records):
        raise InputError("has cases without a recorded result", source=str(file), remedy="leave out --check")
    compared: list[ReplayedCase] = []
    for batch in _progress(_map(compare_all, records, quirks, release, jobs), len(records), file.name):
        compared += batch
    defects = Counter(c.defect for c in compared if c.defect)
    wrong = [c for c in compared if c.difference]
    identical = len(compared) - len(wrong) - sum(defects.values())
    echo(f"{file.name}: {len(compared)} cases, {identical} identical, ", nl=False)
    named = ", ".join(f"{defect} {count}" for defect, count in sorted(defects.items()))
    echo(f"{sum(defects.values())} declared deviations{f' ({named})' if named else ''}, ", nl=False)
    echo(style(f"{len(wrong)} different", fg="red" if wrong else "green"))
    for comparison in wrong[:differences]:
        echo(f"  {comparison.type} {comparison.name}: {comparison.difference}")
    return len(wrong)


def _map(function: Any, records: list[dict[str, Any]], quirks: Quirks, release: Release, jobs: int) -> Iterator[Any]:
    batches = [records[start : start + _BATCH] for start in range(0, len(records), _BATCH)]
    if jobs == 1 or len(batches) < 2:
        for batch in batches:
            yield function(batch, quirks, release)
        return
    # Ctrl-C goes to the whole process group; only the parent acts on it, or each worker would print a traceback.
    with ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield from pool.map(partial(function, quirks=quirks, release=release), batches)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _progress(batches: Iterable[list[T]], total: int, title: str) -> Iterator[list[T]]:
    if not sys.stderr.isatty():
        yield from batches
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        for batch in batches:
            progress.advance(task, len(batch))
            yield batch
