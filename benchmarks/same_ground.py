"""Kubernetes v1.36.2 and podslice in one run, on the same ground: `python -m benchmarks.same_ground`.

The judge (docs/development/judge.md) times the Go code on the recorded cases, with its state files on tmpfs and
without; between its two runs the same cases run here, with every changed file encoded, check-summed, synced and
renamed on the same tmpfs, and without. Cases that take the Go code longer than a tenth of a second are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from tools.judge.binary import VARIABLE, find

from benchmarks import recorded
from benchmarks.goals import format_figure
from podslice.host.state.statefile import write_atomically

_LONGEST_US = 100_000.0
_SAMPLES = 1000
_TMPFS = Path("/dev/shm")


class Ours(NamedTuple):
    """Medians in microseconds: with state files and without; a pick has none."""

    files: float
    bare: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.same_ground", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="cases whose name contains this")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the table for docs/development/speed.md")
    arguments = parser.parse_args()
    judge = find(dict(os.environ))
    if judge is None:
        parser.exit(2, f"no judge: set {VARIABLE}, or have one in the user's cache\n")
    entries = [entry for entry in _entries() if arguments.only in entry["name"]]
    print(f"Python {platform.python_version()}, {platform.machine()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=_TMPFS) as folder:
        cases = Path(folder) / "cases.jsonl"
        cases.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        files = _go(judge, cases, write=True)
        ours = {entry["name"]: _time(entry, Path(folder)) for entry in entries}
        bare = _go(judge, cases, write=False)
    rows = [row for entry in entries for row in _row(entry["name"], files, bare, ours[entry["name"]])]
    for row in (_HEAD, *rows):
        print("  ".join([row[0].ljust(30), *[cell.rjust(12) for cell in row[1:]]]))
    if arguments.markdown:
        lines = ["| " + " | ".join(row) + " |" for row in (_HEAD, *rows)]
        lines.insert(1, "|---|" + "---:|" * (len(_HEAD) - 1))
        arguments.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _entries() -> Iterator[dict[str, Any]]:
    known = json.loads((recorded.FOLDER / "go-1.36.2.json").read_text())["results"]
    quick = {one["bench"] for one in known if 0 < (one.get("median_us") or 0) <= _LONGEST_US}
    with gzip.open(recorded.FOLDER / "cases.jsonl.gz", "rt") as lines:
        yield from (entry for entry in map(json.loads, lines) if entry["name"] in quick)


def _go(judge: Path, cases: Path, *, write: bool) -> dict[str, float]:
    """Measure the Go code, and return its medians in microseconds."""
    environment = {**os.environ, "TMPDIR": str(cases.parent)} | ({} if write else {"ORACLE_NOWRITE": "1"})
    done = subprocess.run([judge, "-bench", cases], capture_output=True, check=True, env=environment)
    results = map(json.loads, done.stdout.splitlines())
    return {one["bench"]: one["median_us"] for one in results if one["n"]}


def _time(entry: dict[str, Any], folder: Path) -> Ours:
    if "type" in entry["case"]:
        pick = recorded.pick(entry)
        median = _median(lambda: pick, lambda: None)
        return Ours(median, median)
    kubelet, pod = recorded.admit_recorded(entry)

    def prepare() -> Callable[[], Any]:
        kubelet.remove_pod(pod.metadata.uid)
        kubelet.collect()
        kubelet.save()
        return lambda: kubelet.admit(pod)

    def write() -> None:
        for name, data in kubelet.manager.changed_files().items():
            write_atomically(folder / name, data)

    return Ours(_median(prepare, write), _median(prepare, lambda: None))


def _median(prepare: Callable[[], Callable[[], Any]], after: Callable[[], None]) -> float:
    times = []
    for _ in range(_SAMPLES):
        run = prepare()
        start = perf_counter_ns()
        run()
        after()
        times.append((perf_counter_ns() - start) / 1000)
    return statistics.median(times)


_HEAD = ("case", "Go, files", "podslice", "faster", "Go, no files", "podslice", "faster")


def _row(name: str, files: dict[str, float], bare: dict[str, float], ours: Ours) -> Iterator[tuple[str, ...]]:
    if name in files and name in bare:
        pairs = ((files[name], ours.files), (bare[name], ours.bare))
        cells = [(format_figure(go, "us"), format_figure(mine, "us"), f"{go / mine:.1f} ×") for go, mine in pairs]
        yield (name, *cells[0], *cells[1])


if __name__ == "__main__":
    main()
