"""After a refusal: owners create replacements, and pods that loop are counted without being simulated.

A refused pod is terminal; its owner creates another one. That one meets the same ledgers, and without a change anywhere
it goes to one of the same best nodes again. When all of these refuse it, the pod is parked until something changes; the
attempts in between are computed. Attempts are on a grid of `delay` milliseconds from the refusal that began the loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from typing import NamedTuple

from podslice.fleet.engine.clock import EventKind, FleetEvent
from podslice.fleet.engine.shapes import Owner

COLLECTED_FROM = 12_500
"""Number of failed pods that are kept; kube-controller-manager deletes the oldest beyond that
(terminated-pod-gc-threshold)."""
_JOB_FIRST_MS, _JOB_MOST_MS, _JOB_LIMIT = 10_000, 360_000, 6
_DAEMON_FIRST_MS, _DAEMON_MOST_MS = 1_000, 900_000


def replacement_delay(owner: Owner, refused: int, delay: int) -> int | None:
    """Return the milliseconds until the owner's next pod after `refused` refusals, None where there is none.

    A Job backs off from 10 s to 6 min and fails after 6 retries (its default backoffLimit); a DaemonSet backs off from
    1 s to 15 min.
    """
    if owner == "deployment":
        return delay
    if owner == "job":
        return None if refused > _JOB_LIMIT else min(_JOB_FIRST_MS << (refused - 1), _JOB_MOST_MS)
    if owner == "daemonset":
        # The shift is bounded, or thousands of refusals would make integers of as many bits.
        return min(_DAEMON_FIRST_MS << min(refused - 1, 20), _DAEMON_MOST_MS)
    return None


class ParkedPod(NamedTuple):
    """A pod that has been looping since `since` milliseconds, when it was refused."""

    shape: int
    since: int


class Loops:
    """Looping pods by number. A shape is checked again at the first attempt of one of its pods after a change; `idle`
    shapes wait for a change, all others have a scheduled event."""

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._pods: dict[int, ParkedPod] = {}
        self._grid: dict[int, list[tuple[int, int]]] = {}
        self._idle: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, pod: int) -> bool:
        return pod in self._pods

    def items(self) -> list[tuple[int, ParkedPod]]:
        """Return all looping pods in order of their numbers."""
        return sorted(self._pods.items())

    def park(self, pod: int, shape: int, now: int) -> None:
        """Add a pod that was refused now and would be refused again."""
        self._pods[pod] = ParkedPod(shape, now)
        grid = self._grid.setdefault(shape, [])
        # The first looping pod of a shape: nothing is scheduled, and all wait for a change. Later ones join them.
        if not grid:
            self._idle[shape] = None
        insort(grid, (now % self._delay, pod))

    def take(self, pod: int) -> ParkedPod:
        """Remove a pod, and return since when it has looped."""
        parked = self._pods.pop(pod)
        grid = self._grid[parked.shape]
        grid.remove((parked.since % self._delay, pod))
        if not grid:
            del self._grid[parked.shape]
            self._idle.pop(parked.shape, None)
        return parked

    def count_attempts(self, parked: ParkedPod, until: int) -> int:
        """Return the number of refused attempts since the pod was parked, up to and including `until`."""
        return (until - parked.since) // self._delay

    @property
    def idle(self) -> Collection[int]:
        """Shapes that wait for a change."""
        return self._idle

    def requeue(self, shapes: Iterable[int], now: FleetEvent) -> list[tuple[int, int]]:
        """Take shapes out of `idle` after a change; return for each when its next pod tries, and which one."""
        found = []
        for shape in list(shapes):
            del self._idle[shape]
            found.append(self.next_attempt(shape, now))
        return found

    def set_idle(self, shape: int) -> None:
        """Let a shape whose pods go on looping wait for the next change."""
        if shape in self._grid:
            self._idle[shape] = None

    def is_scheduled(self, shape: int) -> bool:
        """Whether pods of the shape loop and try again before anything changes."""
        return shape in self._grid and shape not in self._idle

    def next_attempt(self, shape: int, now: FleetEvent) -> tuple[int, int]:
        """Return time and pod of the first attempt of a pod of this shape after the event `now`."""
        grid, delay = self._grid[shape], self._delay
        phase = now.at % delay
        begin = now.at - phase
        candidates = []
        here = bisect_left(grid, (phase, -1))
        for place in range(here, len(grid)):
            if grid[place][0] != phase:
                candidates.append((begin + grid[place][0], grid[place][1]))
                break
            # At the same moment only attempts whose event comes later in the order (kind, pod) are still possible.
            if (EventKind.RETRY, grid[place][1]) > now[1:] and self._pods[grid[place][1]].since < now.at:
                candidates.append((now.at, grid[place][1]))
                break
        # The first attempt of the next round, in case that none of this round is left.
        candidates.append((begin + delay + grid[0][0], grid[0][1]))
        return min(candidates)
