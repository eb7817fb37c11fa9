"""All hints of one resource as a rule instead of a list.

With n NUMA nodes a hint list has up to 2ⁿ − 1 masks, but they follow a rule: if a set of nodes supplies enough, so does
every larger set of the same kind. A `HintSet` keeps the rule. Iterating over it gives upstream's list in upstream's
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import msgspec

from podslice.node.topology.hint import ALL_LISTED, Hint, enumerate_masks
from podslice.node.topology.needs import Need, all_met, pick_enough
from podslice.node.topology.search import ALONE, SearchBudget, Size, Span, fewest, lowest, search_budget_over
from podslice.values.cpuset import Bits


class HintSet(msgspec.Struct, eq=False, dict=True):
    """The hints of one resource; there is at least one.

    `singles`: nodes that suffice alone. `multis`: sets of several nodes that suffice beside the rule. The rule: any set
    of two or more `open_nodes` that meets `needs` is a hint. If `open_nodes` is not empty, the whole of it meets them.
    `smallest` is the size of preferred sets; with `alignment` (`align-by-socket`) sets that span so many sockets are
    preferred too, and with `sockets_first` one of these wins if every resource prefers one. `nodes` are the NUMA ids in
    the order in which sets are listed. `proven`: no search for `smallest` was cut short, which would make it too large;
    `search_budget` bounds later searches.
    """

    nodes: Sequence[int]
    smallest: int
    singles: Bits
    multis: tuple[Bits, ...] = ()
    open_nodes: Bits = 0
    needs: tuple[Need, ...] = ()
    alignment: Span | None = None
    sockets_first: bool = False
    proven: bool = True
    search_budget: SearchBudget | None = None

    @classmethod
    def only(cls, mask: Bits) -> HintSet:
        """Return the hints with one preferred set of nodes."""
        size = mask.bit_count()
        return cls((), size, mask) if size == 1 else cls((), size, 0, multis=(mask,))

    def __contains__(self, mask: Bits) -> bool:
        if mask & (mask - 1) == 0:
            return mask & self.singles != 0
        return mask in self.multis or (mask & ~self.open_nodes == 0 and all_met(self.needs, mask))

    def prefers(self, mask: Bits) -> bool:
        """Whether a set of this hint set is preferred."""
        if mask.bit_count() == self.smallest:
            return True
        return self.alignment is not None and self.alignment.holds(mask)

    def __iter__(self) -> Iterator[Hint]:
        """Iterate over the hints as upstream lists them, for output and recordings; with more than 16 nodes only over
        the first sets."""
        # A set of one mask, from what a container holds already.
        if not self.nodes:
            mask = self.singles or self.multis[0]
            return iter([Hint(mask, True)])
        return iter([Hint(mask, self.prefers(mask)) for mask in enumerate_masks(tuple(self.nodes)) if mask in self])

    @property
    def is_listed(self) -> bool:
        """Whether iterating gives every hint."""
        return len(self.nodes) <= ALL_LISTED

    @cached_property
    def support(self) -> Bits:
        """Nodes that occur in some hint."""
        support = self.singles | self.open_nodes
        for mask in self.multis:
            support |= mask
        return support

    @cached_property
    def narrowest(self) -> Size:
        """Size of the smallest set."""
        # One node is the least; larger sets need no search then.
        if self.singles:
            return ALONE
        sets = self.multis + ((self.open_nodes,) if self.open_nodes else ())
        most = min([mask.bit_count() for mask in sets])
        if not self.open_nodes:
            return Size(most, True)
        found = fewest(self.open_nodes, self.needs, 2, search_budget_over(self.open_nodes, self.search_budget))
        return Size(most, True) if found is None else Size(min(most, found.nodes), found.proven)

    def best(self, within: Bits = 0) -> BestHint | None:
        """Return the hint with the fewest nodes, then the lowest mask, among those that contain `within`; None where
        there is none."""
        if within & (within - 1) == 0:
            single = self.singles & (within or -1)
            if single:
                mask = single & -single
                return BestHint(Hint(mask, self.prefers(mask)), self.proven)
        found = [(mask, True) for mask in self.multis if mask & within == within]
        if within & ~self.open_nodes == 0 and self.open_nodes:
            found += self._best_by_rule(within)
        if not found:
            return None
        mask, _ = min(found, key=lambda one: (one[0].bit_count(), one[0]))
        return BestHint(Hint(mask, self.prefers(mask)), self.proven and all(proven for _, proven in found))

    def _best_by_rule(self, within: Bits) -> list[tuple[Bits, bool]]:
        """Return the smallest and then lowest set of the rule that contains `within`, as a list with it and whether
        that is proven; an empty list where there is none."""
        needs = (*self.needs, Need.nodes(within, within.bit_count()))
        search_budget = search_budget_over(self.open_nodes, self.search_budget)
        before = search_budget.left
        size = fewest(self.open_nodes, needs, 2, search_budget)
        if size is None:
            return []
        mask = lowest(self.open_nodes, size.nodes, needs, search_budget)
        if mask is None:
            mask = pick_enough(self.open_nodes, needs)
        return [(mask, not search_budget.has_ended_since(before))]


class BestHint(NamedTuple):
    """A hint; `proven`: there is none with fewer nodes."""

    hint: Hint
    proven: bool


ResourceHints: TypeAlias = HintSet | list[Hint] | None
"""None: no preference. Empty list: cannot be satisfied. Otherwise the sets that suffice, as a rule or listed."""

ProviderHints: TypeAlias = dict[str, ResourceHints] | None
"""A provider's answer by resource name; None or empty: no preference about anything."""
