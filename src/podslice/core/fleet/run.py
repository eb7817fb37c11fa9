"""One cell of a simulation: take the next event, apply it, note what came of it.

A cell is a function of nodes, pods, options and a seed, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.core.fleet.clock import Clock, EventKind
from podslice.core.fleet.nodes import Fleet
from podslice.core.fleet.notes import Notes
from podslice.core.fleet.options import CellOptions
from podslice.core.fleet.queue import PodQueue
from podslice.core.fleet.result import CellResult
from podslice.core.fleet.workload import Workload

_TOLD_EVERY = 1000


def run_cell(
    fleet: Fleet,
    workload: Workload,
    options: CellOptions,
    seed: int,
    *,
    progress: Callable[[int], None] = lambda arrived: None,
) -> CellResult:
    """Simulate it. `progress` is told how many pods have arrived, now and then."""
    clock = Clock(workload.arrival)
    queue = PodQueue(fleet, workload, options, seed, clock)
    notes = Notes(queue, options)
    queue.begin()
    for number, node_event in enumerate(options.events):
        clock.put(node_event.at_ms, EventKind.NODES, number)
    if options.sample_ms:
        clock.put(options.sample_ms, EventKind.SAMPLE, 0)
    for event in clock:
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
    progress(len(workload))
    return notes.result()
