"""NUMA masks in upstream's enumeration order.

A provider's hint list is an ordered walk over node sets: all singles, then all pairs, …, each in lexicographic order
(cpu-topology 7.3). The order depends only on the node ids, so it is worked out once per machine shape.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, islice

from podslice.core.values.cpuset import Bits, bits_of

ALL_LISTED = 16
"""Up to so many nodes all sets are enumerated."""
MOST_LISTED = 1 << 12
"""Beyond, only so many: the smallest ones."""


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[Bits, ...]:
    """All non-empty subsets of `nodes` in enumeration order; of very many nodes only the first ones."""
    sizes = range(1, len(nodes) + 1)
    masks = (bits_of(subset) for size in sizes for subset in combinations(nodes, size))
    return tuple(masks if len(nodes) <= ALL_LISTED else islice(masks, MOST_LISTED))
