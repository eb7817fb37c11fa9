"""Simulated time: integer milliseconds, and a total order of events.

Events of one moment come in the order of their kinds, so that a pod that ends makes room for one that arrives, and
events of one kind in the order of their numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple


class EventKind(IntEnum):
    """Kinds of events; the value is the order within one moment."""

    END = 0
    """The pod `number` has run to its end."""
    NODES = 1
    """The node event at position `number`."""
    ROOM = 2
    """The node `number` has more room: waiting pods are tried on it."""
    RETRY = 3
    """A replacement of pod `number` is created, or looping pods of its shape are checked again."""
    ARRIVAL = 4
    """The pod `number` arrives."""
    SAMPLE = 5
    """A row of the series is due."""


_KINDS = tuple(EventKind)
_CHANGING = (EventKind.END, EventKind.NODES, EventKind.ARRIVAL)


class FleetEvent(NamedTuple):
    """An event at `at` milliseconds; what `number` means depends on `kind`."""

    at: int
    kind: EventKind
    number: int


class Clock:
    """Events in order of time: arrivals from a column, all others from a heap.

    Iteration ends when no event is left. Periodic events are scheduled again only while `alive`, so that retries and
    samples alone do not keep a run going.
    """

    def __init__(self, arrivals: array[int]) -> None:
        self._arrivals = arrivals
        self._next = 0
        self._heap: list[tuple[int, int, int]] = []
        self._ahead = len(arrivals)
        """Number of events to come that change something (ends, node events, arrivals)."""
        self.changed = 0
        """Number of such events so far."""
        self.now = FleetEvent(0, EventKind.END, 0)
        self.reached = self.now
        """The latest position in the order of events: an event that is scheduled before it is delivered late, after
        it."""

    @property
    def alive(self) -> bool:
        """Whether an arrival, an end or a node event is still to come."""
        return self._ahead > 0

    @property
    def arrival_count(self) -> int:
        """Number of pods that have arrived."""
        return self._next

    def schedule(self, at: int, kind: EventKind, number: int) -> None:
        """Add an event."""
        # Ends and node events; arrivals were counted at the start.
        if kind <= EventKind.NODES:
            self._ahead += 1
        heappush(self._heap, (at, kind, number))

    def __iter__(self) -> Iterator[FleetEvent]:
        heap, arrivals, count = self._heap, self._arrivals, len(self._arrivals)
        while True:
            number = self._next
            # Arrivals stay in their column and are merged with the heap here: a million pods need no million heap
            # entries.
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
