"""How late a thread wakes on one CPU, measured as cyclictest does, and the percentiles of it (docs/isolation.md)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from podslice.values.cpuset import bits_of, format_bits
from podslice.values.errors import PodsliceError

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


_NANO = 1_000_000_000


class ProbeError(PodsliceError, OSError):
    """Raised when the thread cannot run on the CPU."""


def wake_latencies(
    *,
    seconds: float,
    interval: float,
    now: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """Return by how many nanoseconds each wake-up was late. `interval`: seconds."""
    step, late = int(interval * _NANO), list[int]()
    due = now() + step
    end = due + int(seconds * _NANO)
    while due < end:
        wait = due - now()
        if wait > 0:
            sleep(wait / _NANO)
        woke = now()
        late.append(max(0, woke - due))
        # A wake-up that is late by several intervals counts once: the missed ones did not happen.
        due += step * max(1, -(-(woke - due) // step))
    return late


def probe_cpu(cpu: int, *, seconds: float, interval: float) -> list[int]:
    """Measure in a new thread that is bound to the CPU. Raises `ProbeError`."""
    found: list[int] = []
    failed: list[OSError] = []

    def run() -> None:
        try:
            # On Linux, 0 means the calling thread, not the process.
            os.sched_setaffinity(0, {cpu})
            found.extend(wake_latencies(seconds=seconds, interval=interval))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=f"probe-{cpu}")
    thread.start()
    thread.join()
    if failed:
        raise ProbeError(failed[0].errno, failed[0].strerror)
    return found
