"""Score how evenly a combination of NUMA nodes would be used (cpu-topology 4.7)."""

from __future__ import annotations

from collections.abc import Collection
from math import isqrt
from typing import NamedTuple


class Distribution(NamedTuple):
    """A request of `cpus` that nodes supply in groups of `group`: each node the same share, some of them further
    groups."""

    cpus: int
    group: int

    def share(self, nodes: int) -> int:
        """Return the CPUs that each of `nodes` nodes supplies first: whole groups only."""
        return self.cpus // nodes // self.group * self.group

    def remainder(self, nodes: int) -> int:
        """Return the CPUs that some of the nodes supply in addition."""
        return self.cpus - self.share(nodes) * nodes


class ScoredCombination(NamedTuple):
    """A combination's score; `remainder` are positions in `candidates`, which are positions in the combination."""

    score: int
    remainder: tuple[int, ...]
    candidates: tuple[int, ...]


class Balance:
    """Population standard deviation in thousandths, rounded as upstream rounds it, from exact integers
    (cpu-topology 4.7).

    Every complete distribution of `count` CPUs leaves the same total of `frees`, so the mean is fixed and the score
    depends on the sum of squares alone; `squares` is the one before.
    """

    def __init__(self, frees: Collection[int], count: int) -> None:
        self.squares = sum([free * free for free in frees])
        self.size = len(frees)
        total = sum(frees) - count
        mean = (2000 * total + self.size) // (2 * self.size)
        self.offset = self.size * mean * mean - 2000 * mean * total

    def score(self, squares: int) -> int:
        """Return the integer r with (2r − 1)² · N ≤ 4K < (2r + 1)² · N, for K = Σ(1000·v − mean)²."""
        spread = 4 * (1_000_000 * squares + self.offset)
        return (isqrt(spread // self.size) + 1) // 2
