"""Merge where a comparison can crash: upstream's walk over all choices, one comparison after the other.

With `prefer-closest-numa-nodes` upstream reads a node's distances by NUMA id, so lists that are shorter than the ids
crash it (quirk `distances_by_node_id`). It crashes only when it compares two masks with as many nodes. Which masks it
compares depends on the order of the walk, not only on the winner. The result for a partial choice and the best hint so
far is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from podslice.node.topology.hint import Hint
from podslice.node.topology.intersect import Fit
from podslice.values.cpuset import Bits
from podslice.values.errors import PodsliceError

_MOST_STEPS = 1 << 19
_DIFFERENT = -1


class TooLongError(PodsliceError):
    """Raised when the walk takes too many steps."""


class Walk:
    """One merge of listed hints. `target`: the number of nodes the best hint should have."""

    def __init__(self, lists: Sequence[Sequence[Hint]], all_nodes: Bits, target: int, fit: Fit) -> None:
        self._lists = lists
        self._all_nodes = all_nodes
        self._target = target
        self._fit = fit
        self._known: dict[tuple[object, ...], Hint | None] = {}
        self._steps = 0

    def best(self) -> Hint:
        """Return the winner. Raises `UpstreamDefectError` where upstream crashes and `TooLongError` after too many
        steps."""
        found = self._descend(0, self._all_nodes, None, None)
        return found or Hint(self._all_nodes, False)

    def _descend(self, place: int, mask: Bits, common: Bits | None, best: Hint | None) -> Hint | None:
        """Return the best hint after all choices that begin with hints whose intersection is `mask`. `common` is the
        mask that all of these hints share, None if none has any, and `_DIFFERENT` where the choice can no longer be
        preferred."""
        if place == len(self._lists):
            return self._better(best, Hint(mask, common != _DIFFERENT))
        key = (place, mask, common, best)
        if key in self._known:
            return self._known[key]
        for hint in self._lists[place]:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise TooLongError
            following = mask if hint.mask is None else mask & hint.mask
            # Upstream drops choices without a common node before it compares them.
            if following:
                best = self._descend(place + 1, following, _in_common(common, hint), best)
        self._known[key] = best
        return best

    def _better(self, best: Hint | None, found: Hint) -> Hint:
        """Return the better of two hints as upstream compares them."""
        if best is None or best == found:
            return found
        assert best.mask is not None
        assert found.mask is not None
        if found.preferred != best.preferred:
            return found if found.preferred else best
        mine, theirs = best.mask.bit_count(), found.mask.bit_count()
        if mine == theirs:
            return found if self._fit.key(found.mask) < self._fit.key(best.mask) else best
        wanted = 0 if best.preferred else self._target
        return found if (theirs > wanted, abs(theirs - wanted)) < (mine > wanted, abs(mine - wanted)) else best


def _in_common(common: Bits | None, hint: Hint) -> Bits | None:
    """Return the mask that a choice and one more hint share, as in `Walk._descend`."""
    if not hint.preferred:
        return _DIFFERENT
    if hint.mask is None or common == _DIFFERENT:
        return common
    return hint.mask if common in (None, hint.mask) else _DIFFERENT
