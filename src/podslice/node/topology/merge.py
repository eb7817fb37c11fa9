"""Merge the providers' hints into one (cpu-topology 9.3 to 9.5, 11.17).

Upstream tries every combination of one hint per list. The same winner follows from two observations. A preferred winner
is a mask that every resource prefers. Without one, the winner is the best of the masks that some combination reaches.
Hints that are described by a rule are searched (`intersect`), listed ones are folded (`fold`).
docs/development/merge.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from podslice.config.policy_options import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from podslice.node.topology import fold, intersect
from podslice.node.topology.hint import ALL_LISTED, NO_AFFINITY, Hint, enumerate_masks
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.intersect import ClosestFit, Fit
from podslice.node.topology.scored import ScoredMerge
from podslice.node.topology.search import SearchBudget, Span
from podslice.node.topology.walk import TooLongError, Walk
from podslice.values.cpuset import Bits, bits_of, iter_bits

_IMPOSSIBLE = Hint(None, False)
_TOGETHER: Mapping[str, Bits] = MappingProxyType({})
_FEW_NODES = 8
"""Up to so many nodes, ties are listed among all masks that hints can reach together."""


class Merged(msgspec.Struct, frozen=True):
    """The affinity to store and whether the pod is admitted; `proven`: no search was cut short that might have found a
    better set of nodes (docs/development/merge.md). `agrees`: where resources were weighed against each other, whether
    upstream chooses the same; `parts`: the nodes of each resource, where each has its own."""

    hint: Hint
    admitted: bool
    proven: bool
    agrees: bool | None = None
    parts: Mapping[str, Bits] = _TOGETHER

    @property
    def verdict(self) -> tuple[Hint, bool]:
        """The affinity and whether the pod is admitted."""
        return self.hint, self.admitted


class Merger:
    """Merges hints under one policy on one machine.

    `numa` lists (node id, distances or None) in machine order. `closest` is the option prefer-closest-numa-nodes, which
    single-numa-node ignores. With `distances_by_id`, distance lists are indexed by node id as upstream does. `scored`
    decides where no set of nodes suits all.
    """

    def __init__(
        self,
        policy: str,
        numa: Sequence[tuple[int, Sequence[int] | None]],
        *,
        closest: bool = False,
        distances_by_id: bool = False,
        scored: ScoredMerge | None = None,
    ) -> None:
        self.policy = policy
        self.scored = scored
        self.single_numa_node = policy == SINGLE_NUMA_NODE
        self.all_nodes: Bits = bits_of(node for node, _ in numa)
        self._fit = Fit()
        self._may_crash = False
        if closest and not self.single_numa_node:
            ids = [node for node, _ in numa]
            position = {node: node if distances_by_id else i for i, node in enumerate(sorted(ids))}
            self._fit = ClosestFit({node: distances or () for node, distances in numa}, position)
            self._may_crash = distances_by_id and max(ids) >= min(len(distances or ()) for _, distances in numa)

    def merge(self, providers: Sequence[ProviderHints], search_budget: SearchBudget | None = None) -> Merged:
        """Merge the providers' hints; `search_budget` bounds the searches."""
        if self.policy == NONE:
            return Merged(NO_AFFINITY, True, True)
        walked = self._walk(providers) if self._may_crash else None
        best, proven = (walked, True) if walked else self._fold(providers, search_budget or SearchBudget())
        agrees, parts = None, _TOGETHER
        # A preferred winner suits every resource; scores decide only where none does.
        if self.scored is not None and not best.preferred:
            chosen = self.scored.best(providers, best.mask, self._fit.key)
            agrees = chosen == best.mask
            parts = self.scored.separate(providers, chosen, self._fit.key)
            best = Hint(parts.get("cpu", chosen), False)
        # Upstream stores no affinity where the only mask left is the whole machine (cpu-topology 9.5).
        if self.single_numa_node and best.mask == self.all_nodes:
            best = Hint(None, best.preferred)
        return Merged(best, self.policy == BEST_EFFORT or best.preferred, proven, agrees, parts)

    def merge_unscored(self, providers: Sequence[ProviderHints]) -> Hint:
        """Return the affinity that is chosen where resources are not weighed against each other."""
        walked = self._walk(providers) if self._may_crash else None
        return walked or self._fold(providers, SearchBudget())[0]

    def list_tied(self, providers: Sequence[ProviderHints], winner: Hint) -> list[Bits]:
        """Return the masks that equal the winner's in everything but their number, ascending; the winner's alone where
        they cannot be listed."""
        answers = [hints for answer in providers for hints in (answer or {}).values() if hints is not None]
        mask = winner.mask
        if mask is None or not answers or self.all_nodes.bit_count() > ALL_LISTED:
            return [] if mask is None else [mask]
        if winner.preferred:
            masks = self._all_preferred(answers, mask.bit_count())
        else:
            lists = [list(hints) or [_IMPOSSIBLE] for hints in answers]
            masks = fold.reachable(lists, self.all_nodes) if self.all_nodes.bit_count() <= _FEW_NODES else {mask}
        best, span = (
            self._fit.key(mask)[0],
            _sockets_first_alignment(one for one in answers if isinstance(one, HintSet)),
        )
        aligned = span is not None and span.holds(mask)
        return sorted(
            other
            for other in masks
            if other.bit_count() == mask.bit_count()
            and self._fit.key(other)[0] == best
            and (not aligned or (span is not None and span.holds(other)))
        ) or [mask]

    def _all_preferred(self, answers: Sequence[HintSet | list[Hint]], size: int) -> set[Bits]:
        """Return all masks of one size that every resource prefers."""
        nodes = tuple(iter_bits(self.all_nodes))
        return {
            mask
            for mask in enumerate_masks(nodes)
            if mask.bit_count() == size
            and all(
                (mask in one and one.prefers(mask)) if isinstance(one, HintSet) else Hint(mask, True) in one
                for one in answers
            )
        }

    def _walk(self, providers: Sequence[ProviderHints]) -> Hint | None:
        """Return the winner as upstream finds it, where that may crash; None where the walk is too long."""
        lists = [
            list(hints) or [_IMPOSSIBLE]
            for answer in providers
            for hints in (answer.values() if answer else ())
            if hints is not None
        ]
        try:
            return Walk(lists, self.all_nodes, _target_size(lists), self._fit).best()
        except TooLongError:
            return None

    def _fold(self, providers: Sequence[ProviderHints], search_budget: SearchBudget) -> tuple[Hint, bool]:
        """Return the winner, and whether it is proven: rules are searched, lists folded."""
        sets: list[HintSet] = []
        lists: list[list[Hint]] = []
        for answer in providers:
            for hints in answer.values() if answer else ():
                if isinstance(hints, HintSet):
                    if hints.nodes or not hints.support & ~self.all_nodes:
                        sets.append(hints)
                    else:  # held on a NUMA node that the machine no longer has
                        lists.append(list(hints))
                elif hints is not None:
                    lists.append(hints or [_IMPOSSIBLE])
        if not lists:
            return self._merge_sets(sets, search_budget, impossible=False)
        impossible = any(hints == [_IMPOSSIBLE] for hints in lists)
        # Impossible resources only rule out preferred winners; the rules can still be searched.
        if all(hints == [_IMPOSSIBLE] for hints in lists):
            return self._merge_sets(sets, search_budget, impossible=impossible)
        return self._merge_lists([*map(list, sets), *lists], _sockets_first_alignment(sets)), True

    def _merge_sets(
        self, sets: Sequence[HintSet], search_budget: SearchBudget, *, impossible: bool
    ) -> tuple[Hint, bool]:
        """Return the winner where all hints are rules, and whether it is proven; `impossible`: some resource has no
        hint."""
        if not sets:
            return Hint(self.all_nodes, not impossible), True
        if self.single_numa_node:
            return self._merge_single_nodes(sets, impossible=impossible), True
        best = intersect.NOT_FOUND if impossible else intersect.find_preferred(sets, self._fit, search_budget)
        found, proven = Hint(best.mask, True), best.proven
        if not best.mask:
            best = intersect.find_nearest(sets, self.all_nodes, self._fit, search_budget)
            found, proven = Hint(best.mask or self.all_nodes, False), proven and best.proven
        # Few enough nodes to list everything: the answer is exact after all (docs/development/merge.md).
        if not proven and self.all_nodes.bit_count() <= search_budget.exact_nodes:
            lists = [*map(list, sets), *([[_IMPOSSIBLE]] if impossible else [])]
            return self._merge_lists(lists, _sockets_first_alignment(sets)), True
        for one in sets:
            proven = proven and one.proven
        return found, proven

    def _merge_single_nodes(self, sets: Sequence[HintSet], *, impossible: bool) -> Hint:
        """Return the winner under single-numa-node: the lowest node that every resource prefers alone."""
        nodes = 0 if impossible else self.all_nodes
        for one in sets:
            nodes &= one.singles if one.prefers(one.singles & -one.singles) else 0
        return Hint(nodes & -nodes or self.all_nodes, nodes != 0)

    def _merge_lists(self, lists: list[list[Hint]], span: Span | None = None) -> Hint:
        """Return the winner among listed hints; of the preferred masks, those that hold `span` come first."""
        if self.single_numa_node:
            lists = [[hint for hint in hints if _fits_one_node(hint)] for hints in lists]
        preferred = fold.common_preferred(lists, self.all_nodes)
        if preferred:
            preferred = {mask for mask in preferred if span is not None and span.holds(mask)} or preferred
            return Hint(self._find_best_fit(preferred, min(mask.bit_count() for mask in preferred)), True)
        reachable = fold.reachable(lists, self.all_nodes)
        if not reachable:
            return Hint(self.all_nodes, False)
        target = _target_size(lists)
        size = min({mask.bit_count() for mask in reachable}, key=lambda c: (c > target, abs(c - target)))
        return Hint(self._find_best_fit(reachable, size), False)

    def _find_best_fit(self, masks: Iterable[Bits], size: int) -> Bits:
        return self._fit.best_of(mask for mask in masks if mask.bit_count() == size)


def _sockets_first_alignment(sets: Iterable[HintSet]) -> Span | None:
    """Return the alignment to sockets that comes before the number of nodes, None if no resource has one."""
    return next((one.alignment for one in sets if one.sockets_first), None)


def _fits_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _target_size(lists: Iterable[list[Hint]]) -> int:
    """Return the number of nodes that a hint should have which not all resources prefer."""
    return max((_narrowest(hints) for hints in lists), default=0)


def _narrowest(hints: list[Hint]) -> int:
    return min((hint.mask.bit_count() for hint in hints if hint.mask is not None), default=0)
