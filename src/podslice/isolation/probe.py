"""Measure how late a thread wakes on one CPU, as cyclictest does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from podslice.values.errors import PodsliceError

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
