"""How evenly a combination of NUMA nodes would be used (cpu-topology 4.7)."""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple


class Scored(NamedTuple):
    """A combination's score; `remainder` are positions in `candidates`, which are positions in the combination."""

    score: int
    remainder: tuple[int, ...]
    candidates: tuple[int, ...]


class Balance:
    """Population standard deviation in thousandths, rounded as upstream rounds it, from exact integers
    (cpu-topology 4.7).

    Every complete distribution leaves the same total, so the mean is fixed and the score depends on the sum of
    squares alone.
    """

    def __init__(self, size: int, total: int) -> None:
        mean = (2000 * total + size) // (2 * size)
        self.size = size
        self.offset = size * mean * mean - 2000 * mean * total

    def score(self, squares: int) -> int:
        """The integer r with (2r − 1)² · N ≤ 4K < (2r + 1)² · N, for K = Σ(1000·v − mean)²."""
        spread = 4 * (1_000_000 * squares + self.offset)
        return (isqrt(spread // self.size) + 1) // 2
