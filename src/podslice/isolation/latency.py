"""Percentiles of the wake-up latencies that a probe measured (docs/isolation.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from podslice.values.cpuset import bits_of, format_bits

PERCENTILES: Final = (50.0, 99.0, 99.9)


class CPULatency(msgspec.Struct, frozen=True, rename="camel"):
    """Wake-ups on one CPU: their number, and latencies in microseconds."""

    cpu: int
    wakes: int
    min: float
    p50: float
    p99: float
    p999: float
    max: float


class LatencyReport(msgspec.Struct, frozen=True, rename="camel"):
    """Wake-up latencies by CPU. `interval`, `limit`: microseconds. `failed`: CPUs on which a wake-up exceeded the
    limit."""

    interval: float
    seconds: float
    limit: float | None
    cpus: tuple[CPULatency, ...]
    failed: str


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least value that `percent` of the sorted `values` do not exceed."""
    # The nearest-rank percentile: rounded up, without interpolation, so that it is a latency that occurred.
    place = -int(-len(values) * percent // 100)
    return values[max(0, min(len(values), place) - 1)]


def latency_report(
    found: Mapping[int, Sequence[int]], *, interval: float, seconds: float, limit: float | None
) -> LatencyReport:
    """Return the report. `found`: nanoseconds by CPU. `interval`, `limit`: microseconds."""
    rows = []
    for cpu, late in sorted(found.items()):
        values = sorted(ns / 1000 for ns in late)
        if values:
            p50, p99, p999 = (round(percentile(values, percent), 1) for percent in PERCENTILES)
            rows.append(CPULatency(cpu, len(values), round(values[0], 1), p50, p99, p999, round(values[-1], 1)))
    failed = bits_of(row.cpu for row in rows if limit is not None and row.max > limit)
    return LatencyReport(interval, seconds, limit, tuple(rows), format_bits(failed))
