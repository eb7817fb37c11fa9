"""Simulated time: integers of milliseconds, and an order of events that leaves nothing to chance.

Events of one moment come in the order of their kinds, so that what ends makes room for what comes, and events of one
kind in the order of what they are about.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple


class EventKind(IntEnum):
    """What happens, in the order in which it happens at one moment."""

    END = 0
    """A pod (by number) has run."""
    NODES = 1
    """A node event (by position)."""
    ROOM = 2
    """A node (by number) has more room: pods that wait look at it."""
    RETRY = 3
    """A replacement of a pod (by number) comes, or looping pods of its shape look again."""
    ARRIVAL = 4
    """A pod (by number) comes."""
    SAMPLE = 5
    """A row of the series is due."""


_KINDS = tuple(EventKind)
_CHANGING = (EventKind.END, EventKind.NODES, EventKind.ARRIVAL)


class FleetEvent(NamedTuple):
    """Something happens at `at` milliseconds to what `number` says."""

    at: int
    kind: EventKind
    number: int


class Clock:
    """Events in order of time. It runs as long as something can still change: what only tries again or looks does not
    keep it going, but gets its turn until the last change."""

    def __init__(self, arrivals: array[int]) -> None:
        self._arrivals = arrivals
        self._next = 0
        self._heap: list[tuple[int, int, int]] = []
        self._ahead = len(arrivals)
        """Events to come that change something."""
        self.changed = 0
        """Events so far that changed something."""
        self.now = FleetEvent(0, EventKind.END, 0)
        self.reached = self.now
        """The latest place in the order of events: what is put before it comes after it all the same."""

    @property
    def alive(self) -> bool:
        """True while something will still change by itself."""
        return self._ahead > 0

    @property
    def arrived(self) -> int:
        """Pods that have come so far."""
        return self._next

    def put(self, at: int, kind: EventKind, number: int) -> None:
        """Something will happen."""
        if kind <= EventKind.NODES:
            self._ahead += 1
        heappush(self._heap, (at, kind, number))

    def __iter__(self) -> Iterator[FleetEvent]:
        heap, arrivals, count = self._heap, self._arrivals, len(self._arrivals)
        while True:
            number = self._next
            if number < count and (not heap or (arrivals[number], EventKind.ARRIVAL) < heap[0]):
                event = FleetEvent(arrivals[number], EventKind.ARRIVAL, number)
                self._next = number + 1
            elif heap:
                at, kind, number = heappop(heap)
                event = FleetEvent(at, _KINDS[kind], number)
            else:
                return
            if event.kind in _CHANGING:
                self._ahead -= 1
                self.changed += 1
            self.now = event
            if event > self.reached:
                self.reached = event
            yield event
