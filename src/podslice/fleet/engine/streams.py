"""Chance that is the same everywhere: one stream for each purpose of a seed, none for a configuration.

So every configuration meets the same pods at the same times. Where one configuration draws more often than another (a
tie, a refusal), it draws by index instead of in turn, so that nothing else moves.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from hashlib import blake2b, sha256
from random import Random
from typing import Literal, TypeAlias, TypeVar

Purpose: TypeAlias = Literal["shuffle", "inflate", "arrivals", "lifetimes", "ties", "nodes", "plan", "growth", "sample"]
T = TypeVar("T")


def stream(seed: int, purpose: Purpose) -> Random:
    """Numbers in turn; ask it for `random` and `getrandbits` only, which are documented to stay what they are."""
    return Random(int.from_bytes(sha256(f"{seed}/{purpose}".encode()).digest(), "big"))


def below(source: Random, limit: int) -> int:
    """A number from 0 to below `limit`, each as likely."""
    bits = limit.bit_length()
    while True:
        drawn = source.getrandbits(bits)
        if drawn < limit:
            return drawn


def shuffle(source: Random, things: MutableSequence[T]) -> None:
    """Put them into another order, each as likely."""
    for last in range(len(things) - 1, 0, -1):
        other = below(source, last + 1)
        things[last], things[other] = things[other], things[last]


class IndexedStream:
    """Numbers by index: whoever asks for the same index gets the same number, whatever else was drawn."""

    def __init__(self, seed: int, purpose: Purpose) -> None:
        self._key = sha256(f"{seed}/{purpose}".encode()).digest()

    def below(self, limit: int, *index: int) -> int:
        """A number from 0 to below `limit`; 2^64 is so much more than any limit that all are as likely."""
        digest = blake2b(repr(index).encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big") % limit
