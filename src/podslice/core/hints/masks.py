"""NUMA masks in upstream's enumeration order.

A provider's hint list is an ordered walk over node sets: all singles, then all pairs, …, each in lexicographic order
(spec cpu-topology 7.3). The order depends only on the node ids, so it is worked out once per machine shape.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

from podslice.core.values.cpuset import Bits, bits_of


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[Bits, ...]:
    """All non-empty subsets of `nodes` in enumeration order."""
    return tuple(bits_of(subset) for size in range(1, len(nodes) + 1) for subset in combinations(nodes, size))
