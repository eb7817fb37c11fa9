"""NUMA masks in upstream's enumeration order, and how to count over all of them at once.

A provider's hint list is an ordered walk over node sets: all singles, then all pairs, …, each in lexicographic order
(spec cpu-topology 7.3). The order depends only on the node ids, so it is worked out once per machine shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from podslice.core.values.cpuset import Bits, bits_of


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[tuple[int, Bits], ...]:
    """All non-empty subsets of `nodes` (ascending ids) in enumeration order, as (index, mask).

    `index` has bit *i* set for the *i*-th node of the tuple; it addresses the table of `sums`.
    """
    positions = range(len(nodes))
    return tuple(
        (bits_of(subset), bits_of(nodes[i] for i in subset))
        for size in range(1, len(nodes) + 1)
        for subset in combinations(positions, size)
    )


def sums(amounts: Sequence[int]) -> list[int]:
    """Total of every subset: entry *index* is the sum of `amounts[i]` over the bits *i* of *index*."""
    table = [0]
    for amount in amounts:
        table += [total + amount for total in table]
    return table


def smallest_size(amounts: Mapping[int, int], need: int) -> int:
    """Fewest nodes whose amounts together reach `need`; the number of nodes if even all do not."""
    total = 0
    for size, amount in enumerate(sorted(amounts.values(), reverse=True), 1):
        total += amount
        if total >= need:
            return size
    return len(amounts)
