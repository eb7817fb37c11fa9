"""Code that runs in a worker of a Dask cluster: it waits for cells, reports their progress, and slows the worker's
timers meanwhile. The cluster's scheduler slows its timers as well, if it has podslice.

Nothing is imported here that a waiting worker does not need.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from podslice.fleet.workers.helper_pool import FileParcel, HelperPool

TOPIC = "podslice-fleet"
"""Topic of the Dask events with the progress of cells."""
SLOW_MS = 1000.0
"""Interval of slowed timers, in milliseconds."""
_FAST_TIMERS = ("profile", "tick")
"""Timers of a worker that fire fifty and a hundred times a second: they sample the stacks of threads, of which cells
have none, and measure the delay of the event loop."""
_POOLS: dict[str, HelperPool] = {}
"""Helper pools by the name of their run."""
_MOST_RUNS = 64


def pool_of_run(run: str) -> HelperPool:
    """Return the helper pool of a run. The oldest of many is dropped: its run has ended."""
    if run not in _POOLS:
        _POOLS[run] = HelperPool()
        for old in list(_POOLS)[:-_MOST_RUNS]:
            del _POOLS[old]
    return _POOLS[run]


async def run_on_worker(run: str, question: bytes, files: tuple[str, bytes]) -> bytes:
    """Return the pickled result of a pickled (function, argument) as `HelperPool.ask`, computed beside this worker."""
    worker = importlib.import_module("distributed").get_worker()

    def report(key: str, share: float) -> None:
        worker.log_event(TOPIC, {"run": run, "key": key, "share": share})

    with slow_timers(worker.periodic_callbacks):
        return await pool_of_run(run).ask(question, FileParcel(*files), report)


def cancel_run(run: str) -> None:
    """Stop the helper processes of a run, and refuse further tasks of it."""
    pool_of_run(run).close()


def quiet_scheduler(client: str, dask_scheduler: Any = None) -> None:
    """Slow the timers of the scheduler for as long as it has this client. Runs on the scheduler's event loop."""
    _QUIET_TASKS.add(asyncio.get_running_loop().create_task(_quiet_while_connected(client, dask_scheduler)))


_QUIET_TASKS: set[asyncio.Task[None]] = set()
"""Keeps the tasks alive: the event loop has weak references only."""
_LOOK = 2.0
"""Seconds between two checks whether a client is connected."""


async def _quiet_while_connected(client: str, scheduler: Any) -> None:
    with slow_timers(scheduler.periodic_callbacks):
        while client in scheduler.clients:
            await asyncio.sleep(_LOOK)
    _QUIET_TASKS.discard(asyncio.current_task())  # type: ignore[arg-type]  # it is one


_SLOWED: dict[int, list[Any]] = {}
"""By the identity of a process's timers: how many contexts slow them, and the function that restores them."""


@contextmanager
def slow_timers(timers: dict[str, Any]) -> Iterator[None]:
    """Within the context, the fast timers of a worker or scheduler fire once a second. In a process that only waits
    they would cost more than everything else."""
    if id(timers) not in _SLOWED:
        _SLOWED[id(timers)] = [0, _slow(timers)]
    held = _SLOWED[id(timers)]
    held[0] += 1
    try:
        yield
    finally:
        held[0] -= 1
        if not held[0]:
            del _SLOWED[id(timers)]
            held[1]()


def _slow(timers: dict[str, Any]) -> Callable[[], None]:
    """Slow the timers; return a function that restores them."""
    before = [(timer, timer.callback_time) for name in _FAST_TIMERS if (timer := timers.get(name)) is not None]
    for timer, _ in before:
        timer.callback_time = max(timer.callback_time, SLOW_MS)

    def restore() -> None:
        for timer, span in before:
            timer.callback_time = span

    return restore
