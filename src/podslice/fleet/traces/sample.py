"""A uniform sample of rows that are read one by one."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from podslice.fleet.engine.streams import draw_below

T = TypeVar("T")


def sample_rows(chance: Random, items: Iterable[T], count: int) -> list[T]:
    """Return `count` of the items in their own order, all of them where there are no more (reservoir sampling)."""
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if len(kept) < count:
            kept.append((number, item))
        elif (place := draw_below(chance, number + 1)) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
