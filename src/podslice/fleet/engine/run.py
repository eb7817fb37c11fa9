"""Run one cell: take the next event, apply it, measure the effect.

A cell is a function of nodes, pods, options and a seed, and of nothing else. It can be saved between two events and
resumed to the same result.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from podslice.fleet.engine.checkpoint import can_checkpoint, restore_checkpoint, take_checkpoint
from podslice.fleet.engine.clock import Clock, EventKind
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.notes import Notes
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.result import CellResult
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scheduler.queue import PodQueue

_REPORT_EVERY = 256
"""Number of events between two reports of progress, each of which also offers a checkpoint."""
Offer = Callable[[Callable[[], bytes]], None]
"""Called now and then with a function that takes a checkpoint."""


def run_cell(
    fleet: Fleet,
    workload: Workload,
    options: CellOptions,
    seed: int,
    *,
    progress: Callable[[float], None] | None = None,
    offer: Offer | None = None,
    saved: bytes = b"",
) -> CellResult:
    """Simulate a cell.

    - `progress`: called now and then with the share that is done, from 0 to 1.
    - `offer`: called now and then with a function that takes a checkpoint.
    - `saved`: a checkpoint to resume from, empty to begin. Raises `msgspec.DecodeError` and others where it is damaged.
    """
    clock = Clock(workload.arrival)
    queue = PodQueue(fleet, workload, options, seed, clock)
    notes = Notes(queue, options)
    if saved:
        restore_checkpoint(saved, queue, notes)
    else:
        _schedule_initial(queue, options, clock)
    # Nodes of profile `kubelet-1.36` keep whole kubelet states, which are not plain data.
    offer_checkpoint = offer if can_checkpoint(queue) else None
    changes = _count_changes(workload)
    report = progress or _report_nothing
    report(_progress_of(clock, len(workload), changes))
    for count, event in enumerate(clock):
        # Events at the very end still happen.
        if 0 <= options.until_ms < event.at:
            break
        notes.deliver_until(event.at)
        if event.kind is EventKind.END:
            queue.end(event.number)
        elif event.kind is EventKind.NODES:
            queue.apply_node_event(options.events[event.number])
        elif event.kind is EventKind.ROOM:
            queue.try_waiting(event.number)
        elif event.kind is EventKind.RETRY:
            queue.retry(event.number)
        elif event.kind is EventKind.ARRIVAL:
            queue.arrive(event.number)
            notes.count_arrival(event)
        else:
            notes.sample(event.at)
            if clock.alive:
                clock.schedule(event.at + options.sample_ms, EventKind.SAMPLE, event.number + 1)
        if count % _REPORT_EVERY == _REPORT_EVERY - 1:
            report(_progress_of(clock, len(workload), changes))
            if offer_checkpoint is not None:
                offer_checkpoint(lambda: take_checkpoint(queue, notes))
    report(1.0)
    return notes.result()


def _report_nothing(share: float) -> None:
    """Stand in where no one follows the progress."""


def _progress_of(clock: Clock, pods: int, changes: int) -> float:
    """Return the share of a cell that is done: of its pods that have arrived, or of its `changes` where that is not
    0."""
    if changes:
        return min(clock.changed / changes, 1.0)
    return clock.arrival_count / pods if pods else 1.0


def _count_changes(workload: Workload) -> int:
    """Return the number of arrivals and ends where all pods arrive at one moment and some end; else 0, as arrivals then
    measure progress."""
    ends = len(workload) - workload.length.count(NEVER)
    return len(workload) + ends if ends and workload.arrival[0] == workload.arrival[-1] else 0


def _schedule_initial(queue: PodQueue, options: CellOptions, clock: Clock) -> None:
    queue.bind_initial_pods()
    for number, event in enumerate(options.events):
        clock.schedule(event.at_ms, EventKind.NODES, number)
    if options.sample_ms:
        clock.schedule(options.sample_ms, EventKind.SAMPLE, 0)


_THRESHOLDS = 200_000, 50, 50


@contextmanager
def rare_collections() -> Iterator[None]:
    """Raise the thresholds of the cyclic garbage collector within the context."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
