"""What runs inside a worker of a Dask cluster: it waits for cells, tells how far they are, and keeps still meanwhile.
The cluster's scheduler keeps still as well, if it has podslice.

Nothing is imported here that a worker would need for waiting only.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from podslice.fleet.workers.aside import Crew, FileParcel

TOPIC = "podslice-fleet"
"""Of events of a Dask cluster: how far a cell of a run is."""
STILL_MS = 1000.0
_RESTLESS = ("profile", "tick")
"""Timers of a worker that go off fifty and a hundred times a second: they look at the stacks of threads, of which cells
have none, and measure how late the event loop is."""
_CREWS: dict[str, Crew] = {}
"""Who works for a run, by its name."""
_MOST_RUNS = 64


def crew_of(run: str) -> Crew:
    """Who works for a run. The oldest of many is forgotten: it has come to its end."""
    if run not in _CREWS:
        _CREWS[run] = Crew()
        for old in list(_CREWS)[:-_MOST_RUNS]:
            del _CREWS[old]
    return _CREWS[run]


async def far_work(run: str, question: bytes, files: tuple[str, bytes]) -> bytes:
    """The pickled answer to a pickled (function, argument), as of `Crew.ask`, worked out beside this worker."""
    worker = importlib.import_module("distributed").get_worker()

    def tell(key: str, share: float) -> None:
        worker.log_event(TOPIC, {"run": run, "key": key, "share": share})

    with still(worker.periodic_callbacks):
        return await crew_of(run).ask(question, FileParcel(*files), tell)


def give_up(run: str) -> None:
    """Nobody waits for a run any more."""
    crew_of(run).end()


def still_scheduler(client: str, dask_scheduler: Any = None) -> None:
    """The scheduler keeps still too, for as long as it has this client. Runs on its event loop."""
    _STILL.add(asyncio.get_running_loop().create_task(_still_for(client, dask_scheduler)))


_STILL: set[asyncio.Task[None]] = set()
_LOOK = 2.0
"""Seconds between two looks at whether a client is there."""


async def _still_for(client: str, scheduler: Any) -> None:
    with still(scheduler.periodic_callbacks):
        while client in scheduler.clients:
            await asyncio.sleep(_LOOK)
    _STILL.discard(asyncio.current_task())  # type: ignore[arg-type]  # it is one


_HELD: dict[int, list[Any]] = {}
"""By the identity of a process's timers: how often they are held, and what they were set to."""


@contextmanager
def still(timers: dict[str, Any]) -> Iterator[None]:
    """Within it restless timers of a worker or scheduler go off once a second. Where it only waits they would cost more
    than everything else."""
    if id(timers) not in _HELD:
        _HELD[id(timers)] = [0, _slowed(timers)]
    held = _HELD[id(timers)]
    held[0] += 1
    try:
        yield
    finally:
        held[0] -= 1
        if not held[0]:
            del _HELD[id(timers)]
            held[1]()


def _slowed(timers: dict[str, Any]) -> Callable[[], None]:
    """Slow them; how to set them back."""
    before = [(timer, timer.callback_time) for name in _RESTLESS if (timer := timers.get(name)) is not None]
    for timer, _ in before:
        timer.callback_time = max(timer.callback_time, STILL_MS)

    def restore() -> None:
        for timer, span in before:
            timer.callback_time = span

    return restore
