"""Some rows of many, each as likely, read one by one."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from podslice.fleet.engine.streams import draw_below

T = TypeVar("T")


def chosen(chance: Random, items: Iterable[T], count: int) -> list[T]:
    """So many of the items in their own order, all of them where there are no more."""
    kept: list[tuple[int, T]] = []
    for number, item in enumerate(items):
        if len(kept) < count:
            kept.append((number, item))
        elif (place := draw_below(chance, number + 1)) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
