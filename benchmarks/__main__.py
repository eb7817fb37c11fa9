"""Benchmarks of the decision core: `python -m benchmarks`.

One line per case: median and 99th percentile, memory allocated, the figure of the Go code of Kubernetes v1.36.2 on such
a machine where one is known, and the target. `--json FILE` keeps the results, `--compare OLD.json` shows how they
changed, `--svg FILE` draws the curve over NUMA nodes, `--markdown FILE` writes the table of the README.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from benchmarks import api, own, recorded
from benchmarks.chart import draw
from benchmarks.measure import Case, Result, measure


def all_cases() -> Iterator[Case]:
    yield from recorded.cases()
    yield from api.cases()
    yield from own.picks()
    yield from own.steps()
    yield from own.admissions()
    yield from own.lives()


def results(only: str, repeat: int) -> Iterator[Result]:
    for case in all_cases():
        if only in f"{case.group}: {case.name}":
            yield measure(case, repeat)
    if only in "figures":
        yield from own.figures()


def line(result: Result, old: Result | None) -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"

    unit = "" if result.unit == "us" else f" {result.unit}"
    go = "" if result.go is None else f"{result.go / result.median:,.0f}x"
    mark = {True: "ok", False: "MISSED", None: ""}[result.reached]
    cells = f"{result.name:<66}{number(result.median) + unit:>12}{number(result.p99):>10}"
    cells += f"{number(result.allocated_kib):>9}{number(result.go):>12}{go:>9}{number(result.target):>9} {mark:<7}"
    return cells + (f"{old.median / result.median:>8.2f}" if old else "")


def markdown(found: Iterable[Result]) -> str:
    """The results that have a target or a figure of the Go code, as a table."""
    rows = ["| case | podslice | Go v1.36.2 | faster | target |", "|---|---:|---:|---:|---:|"]
    for result in found:
        if result.go is None and result.target is None:
            continue
        go = "-" if result.go is None else _in_words(result.go, result.unit)
        faster = "-" if result.go is None else f"{result.go / result.median:,.0f} ×"
        target = "-" if result.target is None else _in_words(result.target, result.unit)
        rows.append(f"| {result.name} | {_in_words(result.median, result.unit)} | {go} | {faster} | {target} |")
    return "\n".join(rows) + "\n"


def _in_words(value: float, unit: str) -> str:
    if unit != "us":
        return f"{value:,.0f} {unit}"
    for factor, name in ((1e6, "s"), (1e3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value:.3g} µs"


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
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the results with a target as a table")
    parser.add_argument("--repeat", type=int, default=300, metavar="N", help="samples per case at most (300)")
    arguments = parser.parse_args()
    old: list[Result] = []
    if arguments.compare:
        old = msgspec.json.decode(arguments.compare.read_bytes(), type=list[Result])
    found = show(results(arguments.only, arguments.repeat), {(result.group, result.name): result for result in old})
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(found), encoding="utf-8")
    if arguments.svg:
        arguments.svg.write_text(draw(found), encoding="utf-8")
    sys.exit(0 if found else "no such case")


if __name__ == "__main__":
    main()
