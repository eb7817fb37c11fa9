"""Benchmarks of the decision core: `python -m benchmarks`.

One line per case: median and 99th percentile, memory allocated, the figure of the Go code of Kubernetes v1.36.2 on such
a machine where one is known, and the target; at the end the figures to reach. `--json FILE` keeps the results,
`--compare OLD.json` shows how they changed, `--svg FILE` draws the curve over NUMA nodes, `--markdown FILE` writes the
table of docs/development/speed.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from benchmarks import admissions, api, awkward, cluster, explain, figures, goals, plugins, recorded, steps
from benchmarks.chart import draw
from benchmarks.measure import Case, Result, measure

REFERENCE_US = 28.1
"""CPU time of the first recorded case on the machine of the first table of docs/development/speed.md."""


def all_cases() -> Iterator[Case]:
    modules = (recorded, api, steps, plugins, admissions, awkward)
    yield from chain.from_iterable(module.cases() for module in modules)
    yield from admissions.lives()
    yield from admissions.values()


def results(only: str, repeat: int, *, cpu_time: bool) -> Iterator[Result]:
    for case in all_cases():
        if only in f"{case.group}: {case.name}":
            result = measure(case, repeat, cpu_time=cpu_time)
            goal = goals.of(result)
            result.target = goal.limit if goal else result.target
            yield result
    if only in "figures":
        yield from figures.results()
    if only in explain.GROUP:
        yield from explain.results()
    if only in cluster.GROUP:
        yield from cluster.results()


def line(result: Result, old: Result | None) -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"

    unit = "" if result.unit == "us" else f" {result.unit}"
    go = "" if result.go is None else f"{result.go / result.median:,.0f}x"
    mark = {True: "ok", False: "MISSED", None: ""}[result.meets_target]
    cells = f"{result.name:<66}{number(result.median) + unit:>12}{number(result.p99):>10}"
    cells += f"{number(result.allocated_kib):>9}{number(result.go):>12}{go:>9}{number(result.target):>9} {mark:<7}"
    return cells + (f"{old.median / result.median:>8.2f}" if old else "")


def pace() -> float:
    """Return how many times slower this machine is now, for one admission, than the one where the targets were set."""
    case = next(iter(recorded.cases()))
    return measure(case, 300, cpu_time=True).median / REFERENCE_US


def show(found: Iterable[Result], old: dict[tuple[str, str], Result]) -> list[Result]:
    """Print every result as it comes."""
    shown: list[Result] = []
    for result in found:
        if not shown or shown[-1].group != result.group:
            heading = f"{'median us':>12}{'p99':>10}{'KiB':>9}{'Go us':>12}{'Go/ours':>9}{'target':>9}"
            print(f"\n{result.group:<66}{heading}" + ("         old/new" if old else ""))
        print(line(result, old.get((result.group, result.name))), flush=True)
        shown.append(result)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="cases whose `group: name` contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the results")
    parser.add_argument("--compare", metavar="OLD.json", type=Path, help="show ratios to kept results")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw the curve over NUMA nodes")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the figures to reach as a table")
    parser.add_argument("--repeat", type=int, default=300, metavar="N", help="samples per case at most (300)")
    parser.add_argument("--cpu-time", action="store_true", help="time the CPU instead of the clock, on a busy machine")
    arguments = parser.parse_args()
    old: list[Result] = []
    if arguments.compare:
        old = msgspec.json.decode(arguments.compare.read_bytes(), type=list[Result])
    clock = "CPU time" if arguments.cpu_time else "wall clock"
    print(f"Python {platform.python_version()}, {platform.machine()}, {clock}, load {os.getloadavg()[0]:.1f}")
    before = pace()
    measured = results(arguments.only, arguments.repeat, cpu_time=arguments.cpu_time)
    found = show(measured, {(result.group, result.name): result for result in old})
    print("", *goals.table(found), sep="\n")
    slower = "{:.1f} to {:.1f}".format(*sorted((before, pace())))
    print(f"\nrecorded case a takes {slower} times as long here and now as where the targets were set")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    if arguments.markdown:
        arguments.markdown.write_text(goals.markdown(found), encoding="utf-8")
    if arguments.svg:
        arguments.svg.write_text(draw(found), encoding="utf-8")
    sys.exit(0 if found else "no such case")


if __name__ == "__main__":
    main()
