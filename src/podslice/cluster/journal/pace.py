"""How often agents say that they are there: as often as the service can hear all of them.

Hearing one costs 0.3 ms of a processor, nearly all of it gRPC's. So agents of up to 1 500 nodes speak every three
seconds and count as silent after ten; those of more nodes speak less often, and are given more time. That a
connection is gone shows by its own pings, whoever speaks.
"""

from __future__ import annotations

BEATS_PER_SECOND = 500.0
"""Beats of all nodes together, at most, as long as `LONGEST` allows."""
SHORTEST, LONGEST = 3.0, 30.0
STALE_SECONDS = 10.0
_BEATS = STALE_SECONDS / SHORTEST
"""So many beats may be missed."""
_STEP = 1.25
"""Other paces that differ by less are not worth telling."""


class BeatPace:
    """`seconds` between the beats of an agent that has nothing else to say."""

    def __init__(self, most: float = BEATS_PER_SECOND) -> None:
        self.seconds = SHORTEST
        self._most = most
        self._before = 0.0
        self._until = 0.0

    def follow(self, streams: int, now: float) -> None:
        """There are so many streams. Who is to speak more often hears of it with the next beat, so until then its
        silence is no longer than it was to be."""
        wanted = min(max(streams / self._most, SHORTEST), LONGEST)
        if self.seconds / _STEP < wanted < self.seconds * _STEP:
            return
        if wanted < self.seconds:
            self._before = self.patience(now)
            self._until = now + self._before
        self.seconds = wanted

    def patience(self, now: float) -> float:
        """Seconds of silence after which nobody knows what a node is doing."""
        return max(_BEATS * self.seconds, self._before if now < self._until else 0.0)
