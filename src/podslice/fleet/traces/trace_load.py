"""Select rows of a trace: pods in a window of its time, copies or draws of them up to a load, and uniform samples."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple, TypeVar

from podslice.fleet.engine.streams import draw_below
from podslice.fleet.scenario.scenario import Inflate, Reading
from podslice.fleet.scenario.strict import milliseconds
from podslice.fleet.traces.trace import TracePod

T = TypeVar("T")


class Capacity(NamedTuple):
    """The allocatable amounts of all nodes: milli-GPUs and millicores."""

    gpu: int
    cpu: int


def select_window(rows: list[TracePod], reading: Reading, where: str) -> tuple[int, list[TracePod]]:
    """Return the beginning of the window in the trace's time (milliseconds), and the pods that run or arrive in it.
    Pods without arrival run when the trace begins."""
    time = reading.time
    start = milliseconds(time.start, f"{where}.reading.time.start")
    until = None if time.until is None else milliseconds(time.until, f"{where}.reading.time.until")
    first = min((row.arrival for row in rows if row.arrival is not None), default=0)
    begin = first + start
    if not start and until is None:
        return begin, rows
    end = None if until is None else first + until
    kept = [
        row
        for row in rows
        if (end is None or arrival_in(row, begin) + begin < end)
        and (row.arrival is None or row.arrival >= begin)
        and (row.end is None or row.end > begin)
    ]
    return begin, kept


def arrival_in(row: TracePod, begin: int) -> int:
    """Return the arrival in a window that begins at `begin`; pods from before arrive at its beginning."""
    return 0 if row.arrival is None else max(row.arrival - begin, 0)


def inflate(
    rows: list[TracePod], arrivals: list[int], how: Inflate, capacity: Capacity, chance: Random
) -> tuple[list[TracePod], list[int]]:
    """Return more or fewer pods. They are drawn uniformly with replacement up to a load, as FGD's artifact does: the
    first draw that would exceed it ends the drawing; from a list above it pods are removed at random."""
    if how.copies is not None or how.rate is not None:
        return _multiply(rows, arrivals, float(how.copies or how.rate or 1), chance)
    whole = capacity.gpu if how.of == "gpu" else capacity.cpu
    limit = round((how.to or 0) * whole)
    asked = _gpu_request if how.of == "gpu" else _cpu_request
    pool, found = list(rows), list(rows) if how.keep else []
    load = sum(map(asked, found))
    while load > limit and found:
        load -= asked(found.pop(draw_below(chance, len(found))))
    # Pods without the resource would be drawn for ever.
    if not any(map(asked, pool)):
        return found, arrivals
    while True:
        row = pool[draw_below(chance, len(pool))]
        if load + asked(row) > limit:
            return found, arrivals
        load += asked(row)
        found.append(row)


def _gpu_request(row: TracePod) -> int:
    return row.gpus * row.gpu_milli


def _cpu_request(row: TracePod) -> int:
    return row.cpu


def _multiply(
    rows: list[TracePod], arrivals: list[int], times: float, chance: Random
) -> tuple[list[TracePod], list[int]]:
    """Return the list `times` times, each copy at the same moments; of the last one a random part where `times` is not
    whole."""
    whole, part = divmod(times, 1.0)
    places = [place for place in range(len(rows)) for _ in range(int(whole) + (chance.random() < part))]
    return [rows[place] for place in places], [arrivals[place] for place in places] if arrivals else []


def sample_rows(chance: Random, items: Iterable[T], count: int) -> list[T]:
    """Return `count` of the items in their own order, all of them where there are no more (reservoir sampling)."""
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if len(kept) < count:
            kept.append((number, item))
        elif (place := draw_below(chance, number + 1)) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
