"""A progress bar on standard error, after two seconds and on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")
PATIENCE = 2.0
"""Seconds of work before a bar appears."""
_WIDTH = 24
_CLEAR = "\r\x1b[K"


def progress(
    items: Iterable[T],
    *,
    total: int,
    what: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield the items as they come. While the next one is made, a bar shows how many of `total` there are; it is wiped
    before an item is yielded, so that output about the item stands alone."""
    stream = stream or sys.stderr
    if total < 2 or not stream.isatty():
        yield from items
        return
    start, shown = clock(), False
    try:
        for count, item in enumerate(items, 1):
            if shown:
                stream.write(_CLEAR)
                stream.flush()
            yield item
            # After the last item nothing is being made, so there is nothing to show progress of.
            shown = clock() - start >= PATIENCE and count < total
            if shown:
                stream.write(f"{_CLEAR}{_bar(count, total)} {count} of {total} {what}")
                stream.flush()
    finally:
        if shown:
            stream.write(_CLEAR)
            stream.flush()


def _bar(count: int, total: int) -> str:
    done = _WIDTH * count // total
    return f"[{'#' * done}{'.' * (_WIDTH - done)}]"
