"""Random numbers that are the same on every machine: one stream for each purpose of a seed, independent of the
configuration.

So every configuration meets the same pods at the same times. Where one configuration draws more often than another (a
tie, a refusal), numbers are drawn by index instead of in turn, so that no other draw changes.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from hashlib import blake2b, sha256
from random import Random
from typing import Literal, TypeAlias, TypeVar

Purpose: TypeAlias = Literal["shuffle", "inflate", "arrivals", "lifetimes", "ties", "nodes", "plan", "growth", "sample"]
T = TypeVar("T")


def stream(seed: int, purpose: Purpose) -> Random:
    """Return a generator for one purpose. Use only its `random` and `getrandbits`: Python documents that these stay the
    same."""
    # Not `hash`, which differs from process to process.
    return Random(int.from_bytes(sha256(f"{seed}/{purpose}".encode()).digest(), "big"))


def draw_below(source: Random, limit: int) -> int:
    """Draw a number from 0 to below `limit`, uniformly."""
    bits = limit.bit_length()
    # Draws that are too large are dropped: a remainder would favour small numbers, and `randrange` may change with
    # Python.
    while True:
        drawn = source.getrandbits(bits)
        if drawn < limit:
            return drawn


def shuffle(source: Random, things: MutableSequence[T]) -> None:
    """Permute in place, all orders with equal probability."""
    for last in range(len(things) - 1, 0, -1):
        other = draw_below(source, last + 1)
        things[last], things[other] = things[other], things[last]


class IndexedStream:
    """Random numbers by index: the same index always yields the same number, whatever else was drawn."""

    def __init__(self, seed: int, purpose: Purpose) -> None:
        self._key = sha256(f"{seed}/{purpose}".encode()).digest()

    def draw_below(self, limit: int, *index: int) -> int:
        """Return a number from 0 to below `limit`. The remainder of 64 bits is uniform enough: any limit is far below
        2^64."""
        digest = blake2b(repr(index).encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big") % limit
