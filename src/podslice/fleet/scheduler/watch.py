"""Watches on looping pods: which of them a change of a node can affect, so that all others need not try again.

A shape loops while every node that its pods could go to refuses it. That stays so as long as these nodes do not change
and every other node that changes is not better than they, or refuses the shape too. Where a search ends after some
feasible nodes, one more feasible node moves its end: then other nodes could be the best ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.fleet.scheduler.loads import Bools, Ints
from podslice.fleet.scheduler.scheduler import Admits, FleetScheduler

_PATIENCE = 16
"""After so many watches all nodes are asked about the shape, and again after twice as many."""


class LoopWatch:
    """Watches on looping shapes, by number. Shapes without a watch are affected by any change."""

    def __init__(self, scheduler: FleetScheduler, admits: Admits) -> None:
        self._scheduler = scheduler
        self._admits = admits
        self._nodes: dict[int, dict[int, None]] = {}
        """Nodes that refuse the shape, one of which its pods go to."""
        self._least: dict[int, int] = {}
        """A node with a lower score is not one of them."""
        self._fits: dict[int, Bools] = {}
        self._count: dict[int, int] = {}
        self._everywhere: dict[int, None] = {}
        """Shapes that all feasible nodes refuse."""
        self._begun: dict[int, int] = {}
        """Number of watches so far, by shape."""

    def watch(self, shape: int, nodes: Ints) -> None:
        """Watch a shape that is refused now by all `nodes` that its pods could go to."""
        if not self._can_watch(shape):
            return
        watches = self._begun[shape] = self._begun.get(shape, 0) + 1
        # At powers of two: asking all nodes is expensive, but a shape that they all refuse needs no further watches.
        if watches >= _PATIENCE and not watches & (watches - 1) and self._all_refuse(shape):
            self.watch_everywhere(shape)
            return
        self._everywhere.pop(shape, None)
        scheduler = self._scheduler
        scores = scheduler.scores(shape)
        fits: Bools = scores >= 0
        count = int(fits.sum())
        all_seen = scheduler.scans_all_nodes or count < scheduler.feasible_limit
        self._nodes[shape] = dict.fromkeys(nodes.tolist())
        self._least[shape] = int(scores[nodes].max()) if all_seen else 0
        self._fits[shape], self._count[shape] = fits, count

    def watch_everywhere(self, shape: int) -> bool:
        """Watch a shape that all feasible nodes refuse.

        Only a node that admits it matters then, as long as the shape is feasible anywhere, since its pods go on being
        sent there. Returns False where it is feasible nowhere, or where more than ledgers decides.
        """
        if not self._can_watch(shape):
            return False
        fits: Bools = self._scheduler.scores(shape) >= 0
        self._fits[shape], self._count[shape] = fits, int(fits.sum())
        self._everywhere[shape] = None
        return self._count[shape] > 0

    def _all_refuse(self, shape: int) -> bool:
        """Whether all feasible nodes refuse the shape; nodes in equal states are asked once."""
        states = self._scheduler.columns.state
        seen: dict[int, None] = {}
        for node in self._scheduler.feasible_nodes(shape).tolist():
            state = int(states[node])
            if state not in seen:
                seen[state] = None
                if self._admits(shape, node):
                    return False
        return True

    def _can_watch(self, shape: int) -> bool:
        """Whether nothing but ledgers decides about the shape: a watch does not follow groups, other pods or taints."""
        scheduler, columns = self._scheduler, self._scheduler.columns
        grouped = columns.shapes[shape].max_per_node >= 0
        return not grouped and shape not in columns.domains.constrained and scheduler.is_plain(shape)

    def find_affected(self, shapes: Iterable[int], node: int) -> list[int]:
        """Return the shapes that must be checked again because a node has changed, and end their watches."""
        columns = self._scheduler.columns
        fits = columns.loads.fits_by_shape(int(columns.load[node]))
        found = [shape for shape in shapes if self._is_affected(shape, node, fits=fits[shape])]
        for shape in found:
            for known in (self._nodes, self._least, self._fits, self._count, self._everywhere):
                known.pop(shape, None)  # type: ignore[attr-defined]
        return found

    def _is_affected(self, shape: int, node: int, *, fits: bool) -> bool:
        """Whether a change of a node could end the loop of a shape; `fits`: the node has enough for it."""
        everywhere = shape in self._everywhere
        if not everywhere and (shape not in self._nodes or node in self._nodes[shape]):
            return True
        fits = fits and self._scheduler.is_open(shape, node)
        fitted = bool(self._fits[shape][node])
        self._fits[shape][node] = fits
        self._count[shape] += fits - fitted
        if everywhere:
            return not self._count[shape] or (fits and self._admits(shape, node))
        # One more feasible node: the search may now end before nodes that it reached until now.
        if fits and not fitted and self._count[shape] >= self._scheduler.feasible_limit:
            return True
        least = self._least[shape]
        good = fits and (not least or self._scheduler.score(shape, node) >= least)
        return good and self._admits(shape, node)
