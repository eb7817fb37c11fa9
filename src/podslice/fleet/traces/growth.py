"""Growth of a workload on its nodes: copies of its pods are added (workload inflation).

Copies are drawn in one order for each seed, the same for all configurations, so a larger growth has all pods of a
smaller one. Pods of DaemonSets are not copied: their number follows the nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.fleet.engine.streams import draw_below, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scenario.sizing import bisect_first

MOST_PERCENT = 1000
"""The largest growth that is tried."""
NOT_AS_IT_IS = -1
"""Growth of a workload that does not run even as it is."""


class GrowingWorkload:
    """A workload with more or fewer copies of its own pods."""

    def __init__(self, work: Workload, seed: int) -> None:
        self._work = work
        self._chance = stream(seed, "growth")
        self._pool = [pod for pod, shape in enumerate(work.shape) if work.shapes[shape].owner != "daemonset"]
        self._drawn: list[int] = []

    def grow(self, percent: int) -> Workload:
        """Return the workload with `percent` more pods, rounded up, each of which arrives with the pod it is a copy
        of."""
        work, count = self._work, -(-len(self._pool) * percent // 100)
        while len(self._drawn) < count:
            self._drawn.append(self._pool[draw_below(self._chance, len(self._pool))])
        copies = [(pod, True) for pod in sorted(self._drawn[:count])]
        pods = sorted(
            [*((pod, False) for pod in range(len(work))), *copies], key=lambda one: (work.arrival[one[0]], one)
        )
        shape, arrival, length = (
            [column[pod] for pod, _ in pods] for column in (work.shape, work.arrival, work.length)
        )
        node = [NEVER if copied else work.node[pod] for pod, copied in pods]
        initial = {
            place: work.initial[pod] for place, (pod, copied) in enumerate(pods) if pod in work.initial and not copied
        }
        return Workload.of(work.shapes, shape, arrival, length, node, initial)


def find_most_growth(enough: Callable[[int], bool]) -> int:
    """Return the most percent that are enough, by bisection; `NOT_AS_IT_IS` where 0 is not."""
    if not enough(0):
        return NOT_AS_IT_IS
    low, high = 0, 1
    while high < MOST_PERCENT and enough(high):
        low, high = high, 2 * high
    high = min(high, MOST_PERCENT + 1)
    return bisect_first(low, high, lambda percent: not enough(percent)) - 1
