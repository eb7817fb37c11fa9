"""One cell of a simulation: take the next event, apply it, note what came of it.

A cell is a function of nodes, pods, options and a seed, and of nothing else. It can be left between two events and be
taken up again, to the same end.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.fleet.engine.checkpoint import can_be_taken, go_on, taken
from podslice.fleet.engine.clock import Clock, EventKind
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.notes import Notes
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.result import CellResult
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scheduler.queue import PodQueue

_TOLD_EVERY = 256
Offer = Callable[[Callable[[], bytes]], None]
"""Is told now and then how to take the run as it is."""


def run_cell(
    fleet: Fleet,
    workload: Workload,
    options: CellOptions,
    seed: int,
    *,
    progress: Callable[[float], None] = lambda share: None,
    offer: Offer | None = None,
    begun: bytes = b"",
) -> CellResult:
    """Simulate it. `progress` is told now and then how far it is, from 0 to 1; `offer` how to take a checkpoint; the
    run goes on from the one that is `begun`. Raises `msgspec.DecodeError` and others where that is none."""
    clock = Clock(workload.arrival)
    queue = PodQueue(fleet, workload, options, seed, clock)
    notes = Notes(queue, options)
    if begun:
        go_on(begun, queue, notes)
    else:
        _begin(queue, options, clock)
    offered = offer if can_be_taken(queue) else None
    changes = _changes(workload)
    progress(_share(clock, len(workload), changes))
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
        else:
            notes.sample(event.at)
            if clock.alive:
                clock.put(event.at + options.sample_ms, EventKind.SAMPLE, event.number + 1)
        if count % _TOLD_EVERY == _TOLD_EVERY - 1:
            progress(_share(clock, len(workload), changes))
            if offered is not None:
                offered(lambda: taken(queue, notes))
    progress(1.0)
    return notes.result()


def _share(clock: Clock, pods: int, changes: int) -> float:
    """How far a cell is: the share of its pods that have come, or of the `changes` there will be."""
    if changes:
        return min(clock.changed / changes, 1.0)
    return clock.arrived / pods if pods else 1.0


def _changes(workload: Workload) -> int:
    """How many pods come and go, where all come at one moment and some go; else 0, as those that come tell it."""
    ends = len(workload) - workload.length.count(NEVER)
    return len(workload) + ends if ends and workload.arrival[0] == workload.arrival[-1] else 0


def _begin(queue: PodQueue, options: CellOptions, clock: Clock) -> None:
    queue.begin()
    for number, event in enumerate(options.events):
        clock.put(event.at_ms, EventKind.NODES, number)
    if options.sample_ms:
        clock.put(options.sample_ms, EventKind.SAMPLE, 0)
