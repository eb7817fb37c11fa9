"""One cell of a simulation: take the next event, apply it, note what came of it.

A cell is a function of nodes, pods, options and a seed, and of nothing else. It can be left between two events and be
taken up again, to the same end.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.core.fleet.checkpoint import can_be_taken, go_on, taken
from podslice.core.fleet.clock import Clock, EventKind
from podslice.core.fleet.nodes import Fleet
from podslice.core.fleet.notes import Notes
from podslice.core.fleet.options import CellOptions
from podslice.core.fleet.queue import PodQueue
from podslice.core.fleet.result import CellResult
from podslice.core.fleet.workload import Workload

_TOLD_EVERY = 1000
_OFFERED_EVERY = 256
Offer = Callable[[Callable[[], bytes]], None]
"""Is told now and then how to take the run as it is."""


def run_cell(
    fleet: Fleet,
    workload: Workload,
    options: CellOptions,
    seed: int,
    *,
    progress: Callable[[int], None] = lambda arrived: None,
    offer: Offer | None = None,
    begun: bytes = b"",
) -> CellResult:
    """Simulate it. `progress` is told how many pods have arrived, now and then; `offer` how to take a checkpoint; the
    run goes on from the one that is `begun`. Raises `msgspec.DecodeError` and others where that is none."""
    clock = Clock(workload.arrival)
    queue = PodQueue(fleet, workload, options, seed, clock)
    notes = Notes(queue, options)
    if begun:
        go_on(begun, queue, notes)
    else:
        _begin(queue, options, clock)
    offered = offer if can_be_taken(queue) else None
    for count, event in enumerate(clock):
        if 0 <= options.until_ms < event.at:
            break
        notes.pass_time(event.at)
        if event.kind is EventKind.END:
            queue.end(event.number)
        elif event.kind is EventKind.NODES:
            queue.happen(options.events[event.number])
        elif event.kind is EventKind.ROOM:
            queue.serve(event.number)
        elif event.kind is EventKind.RETRY:
            queue.retry(event.number)
        elif event.kind is EventKind.ARRIVAL:
            queue.arrive(event.number)
            notes.arrived(event)
            if event.number % _TOLD_EVERY == 0:
                progress(event.number)
        else:
            notes.sample(event.at)
            if clock.alive:
                clock.put(event.at + options.sample_ms, EventKind.SAMPLE, event.number + 1)
        if offered is not None and count % _OFFERED_EVERY == _OFFERED_EVERY - 1:
            offered(lambda: taken(queue, notes))
    progress(len(workload))
    return notes.result()


def _begin(queue: PodQueue, options: CellOptions, clock: Clock) -> None:
    queue.begin()
    for number, event in enumerate(options.events):
        clock.put(event.at_ms, EventKind.NODES, number)
    if options.sample_ms:
        clock.put(options.sample_ms, EventKind.SAMPLE, 0)
