"""Best-effort that weighs resources against each other, where no set of NUMA nodes suits all (docs/policies.md).

Upstream takes the set that the fewest nodes make up, then the lowest. Here each resource says how much of what it needs
a set has, and the weighted sum decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from podslice.core.hints.hint import Hint
from podslice.core.hints.hintset import HintSet, ProviderHints
from podslice.core.values.cpuset import Bits, bits_of, iter_bits

MILLION = 10**6
DEVICES, MEMORY, HUGE_PAGES = "devices", "memory", "hugepages-"
_FEW_NODES = 8
_MOST = 512
SortKey = Callable[[Bits], tuple[int, Bits]]


class Quality(NamedTuple):
    """How well a set of NUMA nodes suits a resource, in millionths: what it has of the need, times the smallest number
    of nodes over its own."""

    resource: str
    weight: int
    millionths: int


class ScoredMerge:
    """Scores sets of NUMA nodes; `weights` by resource, `devices` for all others."""

    def __init__(self, weights: Mapping[str, int], nodes: Bits) -> None:
        self._weights = weights
        self._nodes = nodes

    def best(self, providers: Sequence[ProviderHints], winner: Bits | None, key: SortKey) -> Bits | None:
        """The set with the highest score, of equal ones the one that upstream prefers; upstream's winner where nothing
        scores."""
        resources = self._resources(providers)
        target = max((hints.narrowest.nodes for _, _, hints in resources if isinstance(hints, HintSet)), default=1)
        best: tuple[int, bool, int, tuple[int, Bits]] | None = None
        for masks in self._by_size(resources, winner):
            size = masks[0].bit_count()
            if best is not None and -best[0] > _bound(resources, size):
                continue
            for mask in masks:
                score = sum([weight * _quality(name, hints, mask) for name, weight, hints in resources])
                found = -score, size > target, abs(size - target), key(mask)
                best = found if best is None else min(best, found)
        return winner if best is None or not best[0] else best[3][1]

    def qualities(self, providers: Sequence[ProviderHints], mask: Bits) -> tuple[Quality, ...]:
        """How well a set suits each resource."""
        return tuple(
            Quality(name, weight, _quality(name, hints, mask)) for name, weight, hints in self._resources(providers)
        )

    def masks(self, providers: Sequence[ProviderHints], winner: Bits | None) -> Iterator[Bits]:
        """The sets that are scored."""
        for some in self._by_size(self._resources(providers), winner):
            yield from some

    def _resources(self, providers: Sequence[ProviderHints]) -> list[tuple[str, int, HintSet | list[Hint]]]:
        """What has a preference and can be had somewhere, with its weight."""
        return [
            (name, self._weight(name), hints)
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

    def _by_size(
        self, resources: Sequence[tuple[str, int, HintSet | list[Hint]]], winner: Bits | None
    ) -> Iterator[Sequence[Bits]]:
        nodes = list(iter_bits(self._nodes))
        if len(nodes) <= _FEW_NODES:
            for size in range(1, len(nodes) + 1):
                yield [bits_of(some) for some in combinations(nodes, size)]
            return
        known = {winner} if winner else set[Bits]()
        for _, _, hints in resources:
            known |= set(_few(hints))
        pairs = {one | other for one in known for other in known if one and other}
        found = sorted({mask & self._nodes for mask in pairs} - {0}, key=lambda mask: (mask.bit_count(), mask))[:_MOST]
        for size in sorted({mask.bit_count() for mask in found}):
            yield [mask for mask in found if mask.bit_count() == size]


def _few(hints: HintSet | list[Hint]) -> Iterable[Bits]:
    if isinstance(hints, HintSet):
        best = hints.best()
        return [1 << node for node in iter_bits(hints.singles)] + ([best.hint.mask] if best and best.hint.mask else [])
    return [hint.mask for hint in hints if hint.preferred and hint.mask]


def _bound(resources: Sequence[tuple[str, int, HintSet | list[Hint]]], size: int) -> int:
    """No set of so many nodes, or of more, scores higher."""
    return sum([weight * (MILLION * min(_smallest(hints), size) // size) for _, weight, hints in resources])


def _smallest(hints: HintSet | list[Hint]) -> int:
    if isinstance(hints, HintSet):
        return hints.smallest
    return min([hint.mask.bit_count() for hint in hints if hint.mask] or [1])


def _quality(name: str, hints: HintSet | list[Hint], mask: Bits) -> int:
    size = mask.bit_count()
    smallest = min(_smallest(hints), size)
    if not isinstance(hints, HintSet):
        return MILLION * smallest // size if any(hint.mask == mask for hint in hints) else 0
    need = hints.needs[0] if hints.needs else None
    if need is None or need.amount <= 0 or mask in hints:
        return MILLION * smallest // size if mask in hints else 0
    if _is_memory(name) and mask & ~hints.open_nodes:
        return 0
    given = max(0, need.amount - need.beside(mask).amount)
    return MILLION * min(given, need.amount) * smallest // (need.amount * size)


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGE_PAGES)
