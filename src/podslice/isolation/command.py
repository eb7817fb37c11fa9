"""`podslice probe`: measure how late a thread wakes on CPUs that should be its own."""

from __future__ import annotations

import os
import sys

import click

from podslice.cli.output import OUTPUT, emit
from podslice.isolation.latency import LatencyReport, ProbeError, latency_report, probe_cpu
from podslice.render.ansi import echo, style
from podslice.values.cpuset import CPUSetError, bits_of, iter_bits, parse_bits
from podslice.values.errors import InputError


@click.command()
@click.option("--cpus", metavar="LIST", help="CPUs to look at [default: all that this process may use].")
@click.option("--seconds", type=click.FloatRange(0.01, 3600), default=5.0, show_default=True, help="For each CPU.")
@click.option(
    "--interval", type=click.FloatRange(50, 1_000_000), default=1000.0, show_default=True, metavar="US",
    help="Microseconds from one wake-up to the next.",
)  # fmt: skip
@click.option("--limit", type=click.FloatRange(1), metavar="US", help="Exit 1 where a wake-up is later.")
@OUTPUT("table")
def probe(*, cpus: str | None, seconds: float, interval: float, limit: float | None, output: str) -> None:
    """Measure how late a thread wakes: it sleeps and wakes on each CPU in turn, as cyclictest does. Run it in a
    container with CPUs of its own, or on a node on CPUs that no container owns: it uses the CPU that it looks at.

    \b
    Examples:
      podslice probe                                # in a container: its CPUs
      podslice probe --cpus 4-7 --seconds 60 --limit 200

    Exit codes: 0 measured, 1 a wake-up was later than --limit, 2 bad input.
    """
    chosen = list(iter_bits(_parse_cpus(cpus)))
    # All CPUs are checked before the first is measured, so that a wrong list fails at once.
    for cpu in chosen:
        _probe(cpu, 0.0, interval)
    found = {cpu: _probe(cpu, seconds, interval) for cpu in chosen}
    report = latency_report(found, interval=interval, seconds=seconds, limit=limit)
    if output == "table":
        _print(report)
    else:
        emit(report, output)
    if report.failed:
        sys.exit(1)


def _probe(cpu: int, seconds: float, interval: float) -> list[int]:
    """Measure a CPU; with 0 seconds only check that it can be used. Return nanoseconds. Raises `InputError`."""
    try:
        return probe_cpu(cpu, seconds=seconds, interval=interval / 1_000_000)
    except ProbeError as error:
        raise InputError(
            f"CPU {cpu} cannot be used: {error.strerror}", path="--cpus", remedy="taskset -pc shows what can be"
        ) from None


def _parse_cpus(cpus: str | None) -> int:
    """Return the CPUs of the option, by default those of this process. Raises `InputError`."""
    mine = bits_of(os.sched_getaffinity(0))
    if cpus is None:
        return mine
    try:
        bits = parse_bits(cpus)
    except CPUSetError as error:
        raise InputError(error.problem, path="--cpus", remedy="a list as in 2-5,8") from None
    if not bits:
        raise InputError("names no CPU", path="--cpus", remedy="a list as in 2-5,8")
    return bits


def _print(report: LatencyReport) -> None:
    from podslice.render.table import print_table

    rows = [
        [str(value) for value in (row.cpu, row.wakes, row.min, row.p50, row.p99, row.p999, row.max)]
        for row in report.cpus
    ]
    print_table(["CPU", "WAKES", "MIN", "P50", "P99", "P99.9", "MAX"], rows)
    echo(f"\nmicroseconds late, every {report.interval:g} us for {report.seconds:g} s")
    if report.failed:
        echo(style(f"CPUs {report.failed}: later than {report.limit:g} us", fg="red"))
