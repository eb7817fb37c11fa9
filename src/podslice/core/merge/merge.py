"""Merging the providers' hints into one (cpu-topology 9.3 to 9.5, 11.17).

Upstream tries every combination of one hint per list. The same winner follows from two observations: a preferred
winner is a mask that every resource prefers; and without one, only the masks that some combination reaches matter, and
of those the best one. Hints that are described by a rule are searched (`intersect`), listed ones are folded (`fold`).
docs/merge.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from podslice.core.config.topology_options import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from podslice.core.hints.hint import NO_AFFINITY, Hint
from podslice.core.hints.hintset import HintSet, ProviderHints
from podslice.core.hints.search import Effort, Purse, Span
from podslice.core.merge import fold, intersect
from podslice.core.merge.fit import ClosestFit, Fit
from podslice.core.merge.walk import TooLongError, Walk
from podslice.core.values.cpuset import Bits, bits_of

_IMPOSSIBLE = Hint(None, False)


class Merger:
    """Merges hints under one policy on one machine.

    `numa` lists (node id, distances or None) in machine order. `closest` is the option prefer-closest-numa-nodes,
    which single-numa-node ignores. With `distances_by_id`, distance lists are indexed by node id as upstream does.
    `ended_early`: a search in the latest merge was given up, so a better set of nodes may exist (docs/merge.md).
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
        self.ended_early = False
        self._purse = Purse()
        self._fit = Fit()
        self._may_crash = False
        if closest and not self.single_numa_node:
            ids = [node for node, _ in numa]
            position = {node: node if distances_by_id else i for i, node in enumerate(sorted(ids))}
            self._fit = ClosestFit({node: distances or () for node, distances in numa}, position)
            self._may_crash = distances_by_id and max(ids) >= min(len(distances or ()) for _, distances in numa)

    def merge(self, providers: Iterable[ProviderHints], purse: Purse | None = None) -> tuple[Hint, bool]:
        """The affinity to store and whether the pod may land (cpu-topology 9.5); `purse` pays for the searches."""
        self.ended_early = False
        self._purse = Purse() if purse is None else purse
        if self.policy == NONE:
            return NO_AFFINITY, True
        best = self._best(providers)
        if self.single_numa_node and best.mask == self.all_nodes:
            best = Hint(None, best.preferred)
        return best, self.policy == BEST_EFFORT or best.preferred

    def _best(self, providers: Iterable[ProviderHints]) -> Hint:
        if self._may_crash:
            providers = list(providers)
            with suppress(TooLongError):
                return self._walk(providers)
        return self._fold(providers)

    def _walk(self, providers: Iterable[ProviderHints]) -> Hint:
        lists = [
            list(hints) or [_IMPOSSIBLE]
            for answer in providers
            for hints in (answer.values() if answer else ())
            if hints is not None
        ]
        return Walk(lists, self.all_nodes, _target(lists), self._fit).best()

    def _fold(self, providers: Iterable[ProviderHints]) -> Hint:
        sets: list[HintSet] = []
        lists: list[list[Hint]] = []
        for answer in providers:
            for hints in answer.values() if answer else ():
                if isinstance(hints, HintSet):
                    if (
                        not hints.nodes and hints.support & ~self.all_nodes
                    ):  # held on a node that is not there (any more)
                        lists.append(list(hints))
                    else:
                        sets.append(hints)
                elif hints is not None:
                    lists.append(hints or [_IMPOSSIBLE])
        impossible = any(hints == [_IMPOSSIBLE] for hints in lists)
        if all(hints == [_IMPOSSIBLE] for hints in lists):
            return self._of_sets(sets, impossible=impossible)
        return self._of_lists([*map(list, sets), *lists], _span(sets))

    def _of_sets(self, sets: Sequence[HintSet], *, impossible: bool) -> Hint:
        """The winner where every resource describes its hints; `impossible`: some resource has none."""
        if not sets:
            return Hint(self.all_nodes, not impossible)
        if self.single_numa_node:
            return self._of_single_nodes(sets, impossible=impossible)
        efforts = Effort(self._purse), Effort(self._purse)
        mask = None if impossible else intersect.preferred(sets, self._fit, efforts[0])
        found = Hint(mask, True) if mask else None
        if found is None:
            found = Hint(intersect.nearest(sets, self.all_nodes, self._fit, efforts[1]) or self.all_nodes, False)
        exhausted = any(effort.exhausted for effort in efforts)
        if exhausted and self.all_nodes.bit_count() <= self._purse.exact_nodes:
            return self._of_lists([*map(list, sets), *([[_IMPOSSIBLE]] if impossible else [])], _span(sets))
        self.ended_early = exhausted or any(one.ended_early for one in sets)
        return found

    def _of_single_nodes(self, sets: Sequence[HintSet], *, impossible: bool) -> Hint:
        nodes = 0 if impossible else self.all_nodes
        for one in sets:
            nodes &= one.singles if one.prefers(one.singles & -one.singles) else 0
        return Hint(nodes & -nodes or self.all_nodes, nodes != 0)

    def _of_lists(self, lists: list[list[Hint]], span: Span | None = None) -> Hint:
        """The winner among listed hints; sets that hold `span` come first among the preferred ones."""
        if self.single_numa_node:
            lists = [[hint for hint in hints if _fits_one_node(hint)] for hints in lists]
        preferred = fold.common_preferred(lists, self.all_nodes)
        if preferred:
            preferred = {mask for mask in preferred if span is not None and span.holds(mask)} or preferred
            return Hint(self._fittest(preferred, min(mask.bit_count() for mask in preferred)), True)
        reachable = fold.reachable(lists, self.all_nodes)
        if not reachable:
            return Hint(self.all_nodes, False)
        target = _target(lists)
        size = min({mask.bit_count() for mask in reachable}, key=lambda c: (c > target, abs(c - target)))
        return Hint(self._fittest(reachable, size), False)

    def _fittest(self, masks: Iterable[Bits], size: int) -> Bits:
        return self._fit.best_of(mask for mask in masks if mask.bit_count() == size)


def _span(sets: Iterable[HintSet]) -> Span | None:
    return next((one.alignment for one in sets if one.sockets_first), None)


def _fits_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _target(lists: Iterable[list[Hint]]) -> int:
    """How many nodes a hint should have that not all resources prefer."""
    return max((_narrowest(hints) for hints in lists), default=0)


def _narrowest(hints: list[Hint]) -> int:
    return min((hint.mask.bit_count() for hint in hints if hint.mask is not None), default=0)
