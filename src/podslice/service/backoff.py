"""How long to wait before asking again whoever did not answer."""

from __future__ import annotations

import random


class BackOff:
    """Waiting times that double from `first` to `longest` seconds, with a quarter of jitter."""

    def __init__(self, first: float = 0.1, longest: float = 5.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def next(self) -> float:
        """Seconds to wait now."""
        now, self._next = self._next, min(self._next * 2, self._longest)
        return now * random.uniform(0.75, 1.25)
