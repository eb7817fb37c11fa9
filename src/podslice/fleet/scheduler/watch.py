"""Which looping pods a change of a node matters to: all others need not try again.

A shape loops while every node that its pods could go to refuses it. That stays so as long as these nodes are as they
were and every other node that changes is not better than they, or refuses the shape too. Where a search ends after some
nodes, one more that a pod fits on moves where it ends: then other nodes could be the best ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.fleet.scheduler.loads import Bools, Ints
from podslice.fleet.scheduler.scheduler import Admits, FleetScheduler

_PATIENCE = 16
"""A shape that was looked at so often is worth asking all nodes about, and again after twice as often."""


class LoopWatch:
    """What is known of shapes that loop, by number. Of those that are not watched any change matters."""

    def __init__(self, scheduler: FleetScheduler, admits: Admits) -> None:
        self._scheduler = scheduler
        self._admits = admits
        self._nodes: dict[int, dict[int, None]] = {}
        """Nodes that refuse it, one of which a pod goes to."""
        self._least: dict[int, int] = {}
        """A node with a lower score is not one of them."""
        self._fits: dict[int, Bools] = {}
        self._count: dict[int, int] = {}
        self._everywhere: dict[int, None] = {}
        """Shapes that all nodes refuse on which they fit."""
        self._begun: dict[int, int] = {}
        """How often a watch was begun, by shape."""

    def begin(self, shape: int, nodes: Ints) -> None:
        """All nodes that a pod of this shape could go to refuse it now."""
        if not self._can_watch(shape):
            return
        begun = self._begun[shape] = self._begun.get(shape, 0) + 1
        if begun >= _PATIENCE and not begun & (begun - 1) and self._all_refuse(shape):
            self.begin_everywhere(shape)
            return
        self._everywhere.pop(shape, None)
        scheduler = self._scheduler
        scores = scheduler.scores(shape)
        fits: Bools = scores >= 0
        count = int(fits.sum())
        all_seen = scheduler.looks_everywhere or count < scheduler.enough
        self._nodes[shape] = dict.fromkeys(nodes.tolist())
        self._least[shape] = int(scores[nodes].max()) if all_seen else 0
        self._fits[shape], self._count[shape] = fits, count

    def begin_everywhere(self, shape: int) -> bool:
        """All nodes on which a pod of this shape fits refuse it: only one that does not matters, as long as it fits on
        any, since it goes on being sent there. False where it fits on none, or where more than ledgers decides."""
        if not self._can_watch(shape):
            return False
        fits: Bools = self._scheduler.scores(shape) >= 0
        self._fits[shape], self._count[shape] = fits, int(fits.sum())
        self._everywhere[shape] = None
        return self._count[shape] > 0

    def _all_refuse(self, shape: int) -> bool:
        states = self._scheduler.columns.state
        seen: dict[int, None] = {}
        for node in self._scheduler.fitting(shape).tolist():
            state = int(states[node])
            if state not in seen:
                seen[state] = None
                if self._admits(shape, node):
                    return False
        return True

    def _can_watch(self, shape: int) -> bool:
        scheduler, columns = self._scheduler, self._scheduler.columns
        grouped = columns.shapes[shape].max_per_node >= 0
        return not grouped and shape not in columns.domains.constrained and scheduler.is_plain(shape)

    def concerned(self, shapes: Iterable[int], node: int) -> list[int]:
        """Shapes that look again because a node has changed."""
        columns = self._scheduler.columns
        fits = columns.loads.that_fit(int(columns.load[node]))
        found = [shape for shape in shapes if self._matters(shape, node, fits=fits[shape])]
        for shape in found:
            for known in (self._nodes, self._least, self._fits, self._count, self._everywhere):
                known.pop(shape, None)  # type: ignore[attr-defined]
        return found

    def _matters(self, shape: int, node: int, *, fits: bool) -> bool:
        everywhere = shape in self._everywhere
        if not everywhere and (shape not in self._nodes or node in self._nodes[shape]):
            return True
        fits = fits and self._scheduler.is_open(shape, node)
        fitted = bool(self._fits[shape][node])
        self._fits[shape][node] = fits
        self._count[shape] += fits - fitted
        if everywhere:
            return not self._count[shape] or (fits and self._admits(shape, node))
        if fits and not fitted and self._count[shape] >= self._scheduler.enough:
            return True
        least = self._least[shape]
        good = fits and (not least or self._scheduler.score(shape, node) >= least)
        return good and self._admits(shape, node)
