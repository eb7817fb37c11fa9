"""Topology hints: the sets of NUMA nodes that could satisfy one resource request (cpu-topology 7, 9.3).

A provider's hint list is an ordered walk over node sets: all singles, then all pairs, …, each in lexicographic order
(cpu-topology 7.3). The order depends only on the node ids, so it is computed once per machine shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations, islice

import msgspec

from podslice.values.cpuset import Bits, bits_of

ALL_LISTED = 16
"""Up to so many nodes all sets are listed."""
MOST_LISTED = 1 << 12
"""Sets that are listed of more nodes: the smallest ones."""


class Hint(msgspec.Struct, frozen=True):
    """A NUMA mask (bit *i* = node *i*), None for "no affinity"; `preferred`: it is as narrow as the machine allows."""

    mask: Bits | None
    preferred: bool


class SplitHint(Hint, frozen=True):
    """An affinity whose `mask` is that of the CPUs; `parts` are the sets of nodes of resources that have their own."""

    parts: Mapping[str, Bits]

    def of(self, resource: str) -> Hint:
        """Return the hint of one resource: its own part, else the whole."""
        return Hint(self.parts[resource], self.preferred) if resource in self.parts else self


NO_AFFINITY = Hint(None, False)


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[Bits, ...]:
    """Return all non-empty subsets of `nodes` in enumeration order; of very many nodes only the first ones."""
    sizes = range(1, len(nodes) + 1)
    masks = (bits_of(subset) for size in sizes for subset in combinations(nodes, size))
    return tuple(masks if len(nodes) <= ALL_LISTED else islice(masks, MOST_LISTED))
