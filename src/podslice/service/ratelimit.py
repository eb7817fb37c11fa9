"""How often something may be done."""

from __future__ import annotations

import time
from collections.abc import Callable

_PER_SECOND, _BURST = 100.0, 10.0


class RateLimit:
    """A token bucket: 100 calls a second, ten at once, or what else is said."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, per_second: float = _PER_SECOND, burst: float = _BURST
    ) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._tokens = burst
        self._last = clock()

    def take(self) -> bool:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._per_second)
        self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
