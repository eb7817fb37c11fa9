"""Best-effort that weighs resources against each other, where no set of NUMA nodes suits all (docs/policy.md).

Upstream takes the set with the fewest nodes, then the lowest. Here each resource rates a set by the share of its need
that the set has, and the weighted sum decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations
from operator import add, itemgetter
from typing import NamedTuple

import msgspec

from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.per_resource import Remoteness, ResourceWorth, choose_masks
from podslice.values.cpuset import Bits, bits_of, iter_bits

MILLION = 10**6
DEVICES, MEMORY, HUGE_PAGES = "devices", "memory", "hugepages-"
_FEW_NODES = 8  # up to so many nodes all sets are scored
_MOST = 512  # beyond, so many sets of those that hints name
_SMALL = 255
"""Up to such a need the worth of a set is looked up in a table."""
_SUMS = bytes(range(_SMALL)) + bytes([_SMALL]) * (_SMALL + 1)
"""Translation tables: the slice that begins at n adds n to each byte, up to `_SMALL`."""
SortKey = Callable[[Bits], tuple[int, Bits]]


class ScoredPart(msgspec.Struct, frozen=True, rename="camel"):
    """The worth of a set of NUMA nodes to a resource, in millionths: the share of the need it has, times the smallest
    number of nodes over its own; and the resource's weight."""

    resource: str
    weight: int
    millionths: int


class _Masks(NamedTuple):
    """Sets of equally many nodes; `of` picks their entries from a table by mask."""

    masks: Sequence[Bits]
    size: int
    of: Callable[[bytes], Sequence[int]]

    @classmethod
    def of_size(cls, masks: Sequence[Bits]) -> _Masks:
        one = masks[0]
        return cls(masks, one.bit_count(), itemgetter(*masks) if len(masks) > 1 else lambda table: (table[one],))


class ScoredMerge:
    """Scores sets of NUMA nodes; `weights` by resource, `devices` for all others. With `distances` by node (empty where
    they are not known) each resource gets a set of its own, else all have one."""

    def __init__(
        self, weights: Mapping[str, int], nodes: Bits, distances: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        self._weights = weights
        self._remoteness = None if distances is None else Remoteness(distances)
        self._nodes = nodes
        ids = list(iter_bits(nodes))
        self._listed: list[_Masks] = []
        if len(ids) <= _FEW_NODES:
            sizes = range(1, len(ids) + 1)
            self._listed = [_Masks.of_size([bits_of(some) for some in combinations(ids, size)]) for size in sizes]

    def best(self, providers: Sequence[ProviderHints], winner: Bits | None, key: SortKey) -> Bits | None:
        """Return the set with the highest score, of equal ones the one that upstream prefers; upstream's winner where
        nothing scores."""
        supplies = self._supplies(providers)
        target = max((one.hints.narrowest.nodes for one in supplies if isinstance(one.hints, HintSet)), default=1)
        smallest = max((one.smallest for one in supplies), default=1)
        best: tuple[int, bool, int, tuple[int, Bits]] | None = None
        for some in self._by_size(supplies, winner):
            masks, size = some.masks, some.size
            # No mask of this size can beat the best one: skip scoring them.
            if best is not None and -best[0] > sum([one.weight * one.upper_bound(size) for one in supplies]):
                if size >= smallest:
                    return best[3][1]  # the bounds of larger sets are lower still
                continue
            scores = [0] * len(masks)
            for one in supplies:
                scores = one.add_scores(scores, some)
            most = max(scores)
            if best is None or -best[0] <= most:
                found = min([key(mask) for mask, score in zip(masks, scores, strict=True) if score == most])
                mine = -most, size > target, abs(size - target), found
                best = mine if best is None else min(best, mine)
        return winner if best is None or not best[0] else best[3][1]

    def separate(self, providers: Sequence[ProviderHints], winner: Bits | None, key: SortKey) -> dict[str, Bits]:
        """Return the set of each resource, beginning at the common one; memory and huge pages share one. Empty where
        all resources share one set."""
        if self._remoteness is None or not winner:
            return {}
        supplies = self._supplies(providers)
        masks = [mask for some in self._by_size(supplies, winner) for mask in some.masks]
        groups: dict[str, list[_Supply]] = {}
        for one in supplies:
            groups.setdefault(MEMORY if _is_memory(one.name) else one.name, []).append(one)
        wanting = [
            ResourceWorth(
                name, mine[0].weight, {mask: sum([one.weighted_quality(mask) for one in mine]) for mask in masks}
            )
            for name, mine in groups.items()
        ]
        return choose_masks(wanting, masks, winner, self._remoteness, key)

    def qualities(self, providers: Sequence[ProviderHints], mask: Bits) -> tuple[ScoredPart, ...]:
        """Return how each resource rates a set."""
        size = mask.bit_count()
        return tuple(ScoredPart(one.name, one.weight, one.quality(mask, size)) for one in self._supplies(providers))

    def _supplies(self, providers: Sequence[ProviderHints]) -> list[_Supply]:
        """Return the resources that have a preference and can be satisfied somewhere."""
        return [
            _Supply(name, self._weight(name), hints, self._nodes.bit_length())
            for answer in providers
            for name, hints in (answer or {}).items()
            if hints is not None and (isinstance(hints, HintSet) or hints)
        ]

    def _weight(self, name: str) -> int:
        if name in self._weights:
            return self._weights[name]
        if name.startswith(HUGE_PAGES):
            return self._weights.get(MEMORY, 0)
        return self._weights.get(DEVICES, 0)

    def _by_size(self, supplies: Sequence[_Supply], winner: Bits | None) -> Iterator[_Masks]:
        """Yield the sets to score by their number of nodes: all of them, on large machines those that hints name."""
        if self._listed:
            yield from self._listed
            return
        known = {winner} if winner else set[Bits]()
        for one in supplies:
            known |= set(_main_masks(one.hints))
        pairs = {mask | other for mask in known for other in known if mask and other}
        found = sorted({mask & self._nodes for mask in pairs} - {0}, key=lambda mask: (mask.bit_count(), mask))[:_MOST]
        for size in sorted({mask.bit_count() for mask in found}):
            yield _Masks.of_size([mask for mask in found if mask.bit_count() == size])


def _main_masks(hints: HintSet | list[Hint]) -> Iterable[Bits]:
    """Return a few masks of a resource from which larger ones are combined."""
    if isinstance(hints, HintSet):
        best = hints.best()
        return [1 << node for node in iter_bits(hints.singles)] + ([best.hint.mask] if best and best.hint.mask else [])
    return [hint.mask for hint in hints if hint.preferred and hint.mask]


class _Supply:
    """One resource's supply: how much of the need each set of nodes has."""

    def __init__(self, name: str, weight: int, hints: HintSet | list[Hint], width: int) -> None:
        self._width = width
        self.name, self.weight, self.hints = name, weight, hints
        self._values: Mapping[int, int] | None = None
        self._amount, self._tops = 0, [0]
        if isinstance(hints, HintSet):
            self.smallest = hints.smallest
            need = hints.needs[0] if hints.needs else None
            if need is not None and need.amount > 0:
                self._amount = need.amount
                if need.additive and not _is_memory(name):
                    self._values = need.values
                    self._tops = list(accumulate(sorted(need.values.values(), reverse=True)))
        else:
            self.smallest = min([hint.mask.bit_count() for hint in hints if hint.mask] or [1])
        self._given_by_mask = self._table()

    def add_scores(self, scores: list[int], some: _Masks) -> list[int]:
        """Return the scores plus this resource's rating of each mask."""
        given, size = self._given_by_mask, some.size
        if given is None:
            return [
                score + self.weight * self.quality(mask, size) for score, mask in zip(scores, some.masks, strict=True)
            ]
        smallest, whole = min(self.smallest, size), self._amount * size
        worth = [self.weight * (MILLION * some * smallest // whole) for some in range(self._amount + 1)]
        return list(map(add, scores, map(worth.__getitem__, some.of(given))))

    def weighted_quality(self, mask: Bits) -> int:
        """Return the quality of a set, times the weight."""
        return self.weight * self.quality(mask, mask.bit_count())

    def _table(self) -> bytes | None:
        """Return by mask how much of the need each set of nodes has, where that is a sum of small numbers; else
        None."""
        values, amount = self._values, self._amount
        if values is None or amount > _SMALL or self._width > _FEW_NODES:
            return None
        given = b"\0"
        for node in range(self._width):
            more = min(values.get(node, 0), _SMALL)
            given += given.translate(_SUMS[more : more + _SMALL + 1]) if more else given
        return given.translate(_SUMS[:amount] + _SUMS[amount : amount + 1] * (_SMALL + 1 - amount))

    def upper_bound(self, size: int) -> int:
        """Return an upper bound of the quality over all sets of `size` nodes."""
        smallest = min(self.smallest, size)
        if self._values is None:
            return MILLION * smallest // size
        most = min(self._amount, self._tops[min(size, len(self._tops)) - 1])
        return MILLION * most * smallest // (self._amount * size)

    def quality(self, mask: Bits, size: int) -> int:
        """Return in millionths the share of the need, times the smallest number of nodes over this one."""
        smallest = self.smallest if self.smallest < size else size
        if self._values is not None:
            values, given = self._values, 0
            # Inlined like `needs._supply`: it runs for each mask of each resource.
            while mask:
                low = mask & -mask
                given += values.get(low.bit_length() - 1, 0)
                mask ^= low
            return MILLION * (given if given < self._amount else self._amount) * smallest // (self._amount * size)
        return MILLION * smallest // size * self._partial_share(mask) // MILLION

    def _partial_share(self, mask: Bits) -> int:
        """Return the share of the need, in millionths, where that is not a sum over the nodes."""
        hints = self.hints
        if not isinstance(hints, HintSet):
            return MILLION if any(hint.mask == mask for hint in hints) else 0
        if mask in hints:
            return MILLION
        if not self._amount or (_is_memory(self.name) and mask & ~hints.open_nodes):
            return 0
        need = hints.needs[0]
        given = max(0, need.amount - need.remaining_after(mask).amount)
        return MILLION * min(given, need.amount) // need.amount


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGE_PAGES)
