"""`podslice fleet trace`: describe traces, and write them in other forms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from podslice.cli.group import CommandGroup
from podslice.cli.output import OUTPUT, emit, prose_width, with_options
from podslice.fleet.documents import TraceCheck, TraceDescription, TraceProblem
from podslice.fleet.engine.streams import stream
from podslice.fleet.traces.columns import read_mapping
from podslice.fleet.traces.trace import OpenTrace, TraceNode, TracePod, open_trace
from podslice.fleet.traces.trace_facts import PodListFacts, TraceFacts, describe
from podslice.fleet.traces.trace_load import sample_rows
from podslice.fleet.traces.trace_write import write_trace
from podslice.render.ansi import echo, style
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError
from podslice.values.quantity import plural

F = TypeVar("F", bound=Callable[..., Any])
_MOST_PROBLEMS = 20
_MOST_SHAPES = 12


@click.group(cls=CommandGroup)
def trace() -> None:
    """Look at, convert, cut and check traces of clusters: CSV, JSON lines (gzipped or not), Parquet.

    The traces openb (Alibaba GPU 2023), DLRM (2025), spot nodes (2026) and those of OpenDC (SURF, Bitbrains) are known
    by their columns; --columns names the columns of any other.

    \b
    Examples:
      podslice fleet trace describe openb_pod_list_default.csv.gz
      podslice fleet trace convert mine.csv --columns cpu=req_cpu:cores --columns memory=mem:GiB --out pods.csv.gz
      podslice fleet trace sample pods.csv.gz --rows 500 --seed 1 --out few.csv

    Exit codes: 0 fine, 1 problems found, 2 bad input.
    """


def _trace_options(command: F) -> F:
    return with_options(
        command,
        click.argument("file", type=click.Path(path_type=Path)),
        click.option(
            "--columns",
            "columns",
            multiple=True,
            metavar="MEANING=COLUMN[:UNIT]",
            help="Meaning of a column, as cpu=req_cpu:cores or arrival=submitted:s; repeat for more.",
        ),
        click.option("--rows-are", type=click.Choice(["pods", "nodes"]), help="Kind of the rows of an unknown trace."),
    )


_out_option = click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file: .csv, .jsonl (.gz) or .parquet.",
)


@trace.command("describe")
@_trace_options
@OUTPUT("table")
def describe_trace(*, file: Path, columns: tuple[str, ...], rows_are: str | None, output: str) -> None:
    """Print what a trace has, what it lacks, and what its users must know.

    \b
    Examples:
      podslice fleet trace describe openb_pod_list_default.csv.gz
      podslice fleet trace describe jobs.jsonl.gz --columns cpu=cores:cores --columns arrival=submit:s -o json

    Exit codes: 0 described, 2 bad input.
    """
    with open_trace(file, read_mapping(columns), rows=rows_are or "") as opened:
        facts = describe(opened)
    if output == "table":
        _print(facts)
    else:
        emit(TraceDescription(**{name: getattr(facts, name) for name in facts.__struct_fields__}), output)


@trace.command("check")
@_trace_options
@OUTPUT("table", legend=False)
def check_trace(*, file: Path, columns: tuple[str, ...], rows_are: str | None, output: str) -> None:
    """Read a trace to its end and list what is wrong with it, with line and column.

    \b
    Examples:
      podslice fleet trace check pods.csv.gz

    Exit codes: 0 nothing is wrong, 1 some rows are, 2 it cannot be read at all.
    """
    problems, rows = [], 0
    with open_trace(file, read_mapping(columns), rows=rows_are or "") as opened:
        for problem in opened.problems():
            rows += 1
            if problem is not None:
                problems.append(problem)
        known = opened.format.name
    if output == "table":
        for problem in problems[:_MOST_PROBLEMS]:
            echo(f"{style('wrong', fg='red')}  {problem}")
        if len(problems) > _MOST_PROBLEMS:
            echo(f"… {len(problems) - _MOST_PROBLEMS} more")
        verdict = f"{len(problems)} wrong" if problems else "nothing is wrong"
        echo(f"{file}: {known}, {plural(rows, 'row')}, {verdict}")
    else:
        first = tuple(TraceProblem(one.problem, one.remedy) for one in problems[:_MOST_PROBLEMS])
        emit(TraceCheck(str(file), known, rows, len(problems), first), output)
    if problems:
        sys.exit(1)


@trace.command("convert")
@_trace_options
@_out_option
def convert_trace(*, file: Path, columns: tuple[str, ...], rows_are: str | None, out: Path) -> None:
    """Write a trace in podslice's own columns: milli-CPUs, bytes, milliseconds.

    \b
    Examples:
      podslice fleet trace convert disaggregated_DLRM_trace.csv.gz --out dlrm.parquet
      podslice fleet trace convert mine.csv --columns cpu=req_cpu:cores --columns memory=mem:GiB --out pods.csv.gz

    Exit codes: 0 written, 2 bad input.
    """
    with open_trace(file, read_mapping(columns), rows=rows_are or "") as opened:
        _write(out, opened, _rows(opened))


@trace.command("sample")
@_trace_options
@click.option("--rows", "count", type=click.IntRange(1), metavar="N", help="Number of rows, drawn at random.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="Number of rows from the beginning.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Another seed draws other rows.")
@click.option("--since", "begin", type=float, metavar="HOURS", help="Pods that arrive from this hour of the trace on.")
@click.option("--until", "end", type=float, metavar="HOURS", help="Pods that arrive before this hour of the trace.")
@_out_option
def sample_trace(
    *,
    file: Path,
    columns: tuple[str, ...],
    rows_are: str | None,
    count: int | None,
    first: int | None,
    seed: int,
    begin: float | None,
    end: float | None,
    out: Path,
) -> None:
    """Write a part of a trace in podslice's own columns: an interval of time, the first rows, or some at random. Rows
    keep their order.

    \b
    Examples:
      podslice fleet trace sample pods.csv.gz --rows 500 --seed 1 --out few.csv
      podslice fleet trace sample pods.csv.gz --since 24 --until 48 --out second-day.csv.gz

    Exit codes: 0 written, 2 bad input.
    """
    mapping = read_mapping(columns)
    start = 0
    if begin is not None or end is not None:
        with open_trace(file, mapping, rows="pods") as opened:
            start = min((pod.arrival for pod in opened.pods() if pod.arrival is not None), default=0)
    with open_trace(file, mapping, rows=rows_are or "") as opened:
        rows = _rows(opened)
        if begin is not None or end is not None:
            rows = _between(rows, start, begin, end)
        if first is not None:
            rows = islice(rows, first)
        if count is not None:
            rows = iter(sample_rows(stream(seed, "sample"), rows, count))
        _write(out, opened, rows)


_HOUR = 3_600_000


def _between(
    rows: Iterator[TracePod | TraceNode], start: int, begin: float | None, end: float | None
) -> Iterator[TracePod | TraceNode]:
    """Yield the pods that arrive between two hours of a trace that starts at `start` milliseconds; pods without arrival
    are left out."""
    least = start + int((begin or 0) * _HOUR)
    most = None if end is None else start + int(end * _HOUR)
    for row in rows:
        if not isinstance(row, TracePod) or row.arrival is None:
            continue
        if row.arrival >= least and (most is None or row.arrival < most):
            yield row


def _rows(opened: OpenTrace) -> Iterator[TracePod | TraceNode]:
    return opened.pods() if opened.format.rows == "pods" else opened.nodes()


def _write(out: Path, opened: OpenTrace, rows: Iterator[TracePod | TraceNode]) -> None:
    """Write rows to a file. Raises `InputError` for the trace that is being read."""
    if out.exists() and out.samefile(opened.path):
        raise InputError("is the trace that is read", path="--out", remedy="name another file")
    written = write_trace(out, rows, nodes=opened.format.rows == "nodes")
    echo(f"podslice: wrote {plural(written, 'row')} to {out}", err=True)


# What people see


def _print(facts: TraceFacts) -> None:
    from podslice.render.table import print_table

    kind = "nodes" if facts.nodes else "pods"
    echo(f"{facts.file}: {facts.format}, {facts.rows} {kind}\n")
    rows = [[one.name, one.meaning or "-", one.unit or "-", str(one.empty)] for one in facts.columns]
    print_table(["COLUMN", "MEANS", "UNIT", "EMPTY"], rows, right=[3])
    if facts.pods:
        echo("\n" + "\n".join(_pod_lines(facts.pods)))
    shapes = facts.pods.commonest_shapes if facts.pods else facts.nodes.shapes if facts.nodes else ()
    echo(f"\n{'Commonest shapes' if facts.pods else 'Shapes'}:")
    for shape in shapes[:_MOST_SHAPES]:
        echo(f"  {shape.rows:>7}  {shape.value}")
    if len(shapes) > _MOST_SHAPES:
        echo(f"  … {len(shapes) - _MOST_SHAPES} more (-o json has them)")
    _print_list("Not in it, to be assumed:", facts.missing)
    _print_list("Know before you use it:", facts.notes)


def _pod_lines(pods: PodListFacts) -> Iterator[str]:
    sums = pods.sums
    totals = f"{-(-sums.milli_cpus // 1000)} CPUs, {-(-sums.milli_gpus // 1000)} GPUs"
    yield f"{pods.shapes} shapes ({pods.shapes_with_qos} with QoS); in total {totals}"
    yield f"whole CPUs: {pods.whole_cpus} pods; GPUs: {pods.with_gpus} pods, {pods.with_part_of_a_gpu} a part of one"
    for name, values in (("QoS", pods.qos), ("phases", pods.phases)):
        if values:
            yield f"{name}: " + ", ".join(f"{one.value} {one.rows}" for one in values)


def _print_list(title: str, texts: tuple[str, ...]) -> None:
    if texts:
        echo(f"\n{title}")
        for text in texts:
            echo(wrap_lines(f"  - {text}", prose_width()))
