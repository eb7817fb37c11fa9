"""Merging the providers' hints into one (spec cpu-topology 9.3 to 9.5, 11.17).

Upstream tries every combination of one hint per list. The same winner follows from two observations: a preferred
winner is a mask that every list knows as preferred, so membership decides; and without one, only the *set* of
reachable intersections matters, which grows list by list and is bounded by the number of NUMA masks. docs/merge.md
has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podslice.core.errors import UpstreamDefectError
from podslice.core.hints.hint import NO_AFFINITY, Hint, ProviderHints
from podslice.core.merge.options import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

_ANYTHING = [Hint(None, True)]
_IMPOSSIBLE = [Hint(None, False)]


class Merger:
    """Merges hints under one policy on one machine.

    `numa` lists (node id, distances or None) in machine order. `closest` is the option prefer-closest-numa-nodes,
    which single-numa-node ignores. With `distances_by_id`, distance lists are indexed by node id as upstream does.
    """

    def __init__(
        self,
        policy: str,
        numa: Sequence[tuple[int, Sequence[int] | None]],
        *,
        closest: bool = False,
        distances_by_id: bool = False,
    ) -> None:
        self.policy = policy
        self.single_numa_node = policy == SINGLE_NUMA_NODE
        self.all_nodes: Bits = bits_of(node for node, _ in numa)
        self._distances = {node: distances or () for node, distances in numa}
        self._position = (
            {node: node for node, _ in numa}
            if distances_by_id
            else {node: i for i, node in enumerate(sorted(node for node, _ in numa))}
        )
        self._closest = closest and not self.single_numa_node

    def merge(self, providers: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """The affinity to store and whether the pod may land (spec 9.5)."""
        if self.policy == NONE:
            return NO_AFFINITY, True
        best = self._best(self._lists(providers))
        if self.single_numa_node and best.mask == self.all_nodes:
            best = Hint(None, best.preferred)
        return best, self.policy == BEST_EFFORT or best.preferred

    def _lists(self, providers: Iterable[ProviderHints]) -> list[list[Hint]]:
        lists = []
        for answer in providers:
            if not answer:
                lists.append(_ANYTHING)
                continue
            for hints in answer.values():
                lists.append(_ANYTHING if hints is None else hints or _IMPOSSIBLE)
        if self.single_numa_node:
            lists = [[hint for hint in hints if _fits_one_node(hint)] for hints in lists]
        return lists

    def _best(self, lists: list[list[Hint]]) -> Hint:
        constraining = [hints for hints in lists if hints is not _ANYTHING]
        preferred = self._preferred(constraining)
        if preferred:
            return Hint(self._fittest(preferred, min(mask.bit_count() for mask in preferred)), True)
        reachable = self._reachable(constraining)
        if not reachable:
            return Hint(self.all_nodes, False)
        target = max((_narrowest(hints) for hints in constraining), default=0)
        size = min({mask.bit_count() for mask in reachable}, key=lambda c: (c > target, abs(c - target)))
        return Hint(self._fittest(reachable, size), False)

    def _preferred(self, lists: list[list[Hint]]) -> set[Bits]:
        """Masks of all preferred merged hints: common preferred masks, cut to the machine's nodes."""
        common: set[Bits] | None = None
        optional: list[set[Bits]] = []
        for hints in lists:
            masks = {hint.mask for hint in hints if hint.preferred}
            if None in masks:
                optional.append({mask for mask in masks if mask is not None})
                continue
            known = {mask for mask in masks if mask is not None}
            common = known if common is None else common & known
            if not common:
                return set()
        if common is None:
            common = set().union(*optional)
            found = {mask & self.all_nodes for mask in common}
            found.add(self.all_nodes)
        else:
            found = {mask & self.all_nodes for mask in common}
        found.discard(0)
        return found

    def _reachable(self, lists: list[list[Hint]]) -> set[Bits]:
        """Non-empty masks that are D ∩ one hint of every list; built list by list."""
        reached = {self.all_nodes}
        for hints in lists:
            masks = {hint.mask for hint in hints if hint.mask is not None}
            following = {mask & other for mask in reached for other in masks}
            if any(hint.mask is None for hint in hints):
                following |= reached
            following.discard(0)
            if not following:
                return following
            reached = following
        return reached

    def _fittest(self, masks: Iterable[Bits], size: int) -> Bits:
        """The best mask of `size` nodes: closest together if wanted, then lowest numeric value (spec 9.4)."""
        candidates = [mask for mask in masks if mask.bit_count() == size]
        if self._closest and len(candidates) > 1:
            return min(candidates, key=lambda mask: (self._distance(mask), mask))
        return min(candidates)

    def _distance(self, mask: Bits) -> int:
        """Sum of the distances between all ordered pairs of nodes in the mask (spec 9.4, fit)."""
        nodes = list(iter_bits(mask))
        total = 0
        for node in nodes:
            distances = self._distances[node]
            for other in nodes:
                position = self._position[other]
                if position >= len(distances):
                    raise UpstreamDefectError(
                        "distances_by_node_id",
                        f"NUMA node {node} lists {len(distances)} distances, not one for {other}",
                    )
                total += distances[position]
        return total


def _fits_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _narrowest(hints: list[Hint]) -> int:
    return min((hint.mask.bit_count() for hint in hints if hint.mask is not None), default=0)
