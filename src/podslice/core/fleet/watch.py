"""Which looping pods a change of a node matters to: all others need not try again.

A shape loops while every node that its pods could go to refuses it. That stays so as long as these nodes are as they
were and every other node that changes is not better than they, or refuses the shape too. Where a search ends after some
nodes, one more that a pod fits on moves where it ends: then other nodes could be the best ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.core.fleet.loads import Bools, Ints
from podslice.core.fleet.scheduler import Admits, FleetScheduler


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

    def begin(self, shape: int, nodes: Ints) -> None:
        """All nodes that a pod of this shape could go to refuse it now."""
        scheduler, domains = self._scheduler, self._scheduler.columns.domains
        grouped = scheduler.columns.shapes[shape].max_per_node >= 0
        if grouped or shape in domains.constrained or not scheduler.is_plain(shape):
            return
        scores = scheduler.scores(shape)
        fits: Bools = scores >= 0
        count = int(fits.sum())
        all_seen = scheduler.looks_everywhere or count < scheduler.enough
        self._nodes[shape] = dict.fromkeys(nodes.tolist())
        self._least[shape] = int(scores[nodes].max()) if all_seen else 0
        self._fits[shape], self._count[shape] = fits, count

    def concerned(self, shapes: Iterable[int], node: int) -> list[int]:
        """Shapes that look again because a node has changed."""
        columns = self._scheduler.columns
        fits = columns.loads.that_fit(int(columns.load[node]))
        found = [shape for shape in shapes if self._matters(shape, node, fits=fits[shape])]
        for shape in found:
            for known in (self._nodes, self._least, self._fits, self._count):
                known.pop(shape, None)  # type: ignore[attr-defined]
        return found

    def _matters(self, shape: int, node: int, *, fits: bool) -> bool:
        if shape not in self._nodes or node in self._nodes[shape]:
            return True
        fits = fits and self._scheduler.is_open(shape, node)
        fitted = bool(self._fits[shape][node])
        self._fits[shape][node] = fits
        self._count[shape] += fits - fitted
        if fits and not fitted and self._count[shape] >= self._scheduler.enough:
            return True
        least = self._least[shape]
        good = fits and (not least or self._scheduler.score(shape, node) >= least)
        return good and self._admits(shape, node)
