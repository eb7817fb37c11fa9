"""Events between parts that are made one after the other: a part announces, a program's `wire()` subscribes others.

freed = Listeners[str]()               # made first, and given to the part that announces
part = Part(freed)
freed.add(other.look_again)            # only in `wire()`, in the order in which they are called
freed("a-node")                        # in the part
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """The callbacks of one event. Calling it calls them all, in the order of `add`; what one raises reaches the
    caller."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: list[Callable[P, object]] = []

    def add(self, *callbacks: Callable[P, object]) -> None:
        """Have these called for each event from now on, after those that are there."""
        self._callbacks += callbacks

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for callback in self._callbacks:
            callback(*args, **kwargs)
