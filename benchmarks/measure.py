"""Timing of a case: single thread, one call per sample, garbage collection as usual."""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

import msgspec

LONGEST_US = 1_500_000
"""Stop repeating a case after this much time."""
FEWEST = 5
_LOOKS = 200
"""Readings of the clock to measure the clock itself; reading a thread's CPU time takes nearly a microsecond."""


class Case(msgspec.Struct, frozen=True):
    """`setup` makes the case and returns `prepare`; `prepare` runs before every sample, untimed, and returns the
    function that is timed. `nodes` places the case on the curve over NUMA nodes `curve`."""

    group: str
    name: str
    setup: Callable[[], Callable[[], Callable[[], Any]]]
    go_us: float | None = None
    target_us: float | None = None
    curve: str = ""
    nodes: int = 0


class Result(msgspec.Struct):
    """Microseconds, or the `unit` where another is named. `allocated_kib`: largest amount of memory one call held."""

    group: str
    name: str
    median: float
    p99: float | None = None
    allocated_kib: float | None = None
    go: float | None = None
    target: float | None = None
    unit: str = "us"
    curve: str = ""
    nodes: int = 0

    @property
    def meets_target(self) -> bool | None:
        """Whether the target is met; for rates, more is better."""
        if self.target is None:
            return None
        return self.median >= self.target if self.unit.endswith("/s") else self.median <= self.target


def measure(case: Case, repeat: int, *, cpu_time: bool = False) -> Result:
    """Median and 99th percentile over up to `repeat` samples, after one to warm up; what it takes to look at the clock
    is not in them.

    `cpu_time` counts the thread's CPU time: for a machine that has other work as well.
    """
    clock = thread_time_ns if cpu_time else perf_counter_ns
    prepare = case.setup()
    prepare()()
    looking = statistics.median(_time(clock, _nothing) for _ in range(_LOOKS))
    times: list[float] = []
    while len(times) < repeat and (sum(times) < LONGEST_US or len(times) < FEWEST):
        times.append(max(0.0, (_time(clock, prepare()) - looking) / 1000))
    times.sort()
    return Result(
        group=case.group,
        name=case.name,
        median=round(statistics.median(times), 1),
        p99=round(times[int(len(times) * 0.99)], 1),
        allocated_kib=_measure_memory(prepare()),
        go=case.go_us,
        target=case.target_us,
        curve=case.curve,
        nodes=case.nodes,
    )


def _time(clock: Callable[[], int], run: Callable[[], Any]) -> int:
    start = clock()
    run()
    return clock() - start


def _nothing() -> None:
    pass


def _measure_memory(run: Callable[[], Any]) -> float:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return round((peak - before) / 1024, 1)
