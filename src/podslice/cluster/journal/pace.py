"""The interval of agents' beats: as short as the service can process for all of them.

A beat costs 0.3 ms of a processor, nearly all of it in gRPC. So agents of up to 1 500 nodes send one every three
seconds and count as silent after ten; with more nodes they send fewer, and get more time. A lost connection is noticed
by gRPC's own pings.
"""

from __future__ import annotations

BEATS_PER_SECOND = 500.0
"""Most beats per second of all nodes together, as far as `LONGEST` allows."""
SHORTEST, LONGEST = 3.0, 30.0
STALE_SECONDS = 10.0
_BEATS = STALE_SECONDS / SHORTEST
"""Beats that may be missed before a node counts as silent."""
_STEP = 1.25
"""An interval that changed by a smaller factor is not sent to agents."""


class BeatPace:
    """`seconds` between beats of an agent without events."""

    def __init__(self, most: float = BEATS_PER_SECOND) -> None:
        self.seconds = SHORTEST
        self._most = most
        self._before = 0.0
        self._until = 0.0

    def follow(self, streams: int, now: float) -> None:
        """Adapt to the number of streams. An agent learns of a shorter interval with its next beat, so until then the
        longer patience lasts."""
        wanted = min(max(streams / self._most, SHORTEST), LONGEST)
        if self.seconds / _STEP < wanted < self.seconds * _STEP:
            return
        if wanted < self.seconds:
            self._before = self.patience(now)
            self._until = now + self._before
        self.seconds = wanted

    def patience(self, now: float) -> float:
        """Return the seconds of silence after which a node is unconfirmed."""
        return max(_BEATS * self.seconds, self._before if now < self._until else 0.0)
