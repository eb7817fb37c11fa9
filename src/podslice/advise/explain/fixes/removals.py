"""Which running pods must leave so that another one is admitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import Asking

MOST_TRIES = 60
FEW_PODS = 12


class Removals:
    """Which pods must leave.

    Among up to `FEW_PODS` every single one and every pair is tried. Among more they are found by halving: whatever a
    set of pods frees, a larger set frees too, so a set that does not help rules out its parts. (That is not true for a
    rare pod: one whose first container goes elsewhere when more is free, and spoils the place of the second.)
    """

    def __init__(self, nodes: Alternatives, asking: Asking, *, limit: int | None = None) -> None:
        """After `limit` tries nothing more is said to help."""
        self._limit = limit
        self._nodes = nodes
        self._asking = asking
        self._known: dict[frozenset[str], bool] = {}

    @property
    def exhausted(self) -> bool:
        return self._limit is not None and len(self._known) >= self._limit

    def help(self, uids: Sequence[str]) -> bool:
        """True when the pod is admitted without these."""
        return self._helps(uids)

    def _helps(self, uids: Sequence[str]) -> bool:
        key = frozenset(uids)
        if key not in self._known:
            if self.exhausted:
                return False
            self._known[key] = self._nodes.without(uids, self._asking)
        return self._known[key]

    def singles(self, uids: tuple[str, ...]) -> Iterator[str]:
        """Every pod of `uids` whose departure is enough, in order."""
        if len(uids) > FEW_PODS:
            return self._halved(uids, ())
        return (uid for uid in uids if self._helps((uid,)))

    def _halved(self, uids: tuple[str, ...], beside: tuple[str, ...]) -> Iterator[str]:
        """Every pod whose departure is enough when those in `beside` leave as well."""
        if not uids or not self._helps((*beside, *uids)):
            return
        if len(uids) == 1:
            yield uids[0]
            return
        half = len(uids) // 2
        yield from self._halved(uids[:half], beside)
        yield from self._halved(uids[half:], beside)

    def pair(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        """Two pods whose departure is enough, empty for none; gives up after `MOST_TRIES` tries on a full node."""
        if len(uids) <= FEW_PODS:
            return next((pair for pair in combinations(uids, 2) if self._helps(pair)), ())
        tried = len(self._known)
        for place, one in enumerate(uids):
            if len(self._known) - tried > MOST_TRIES or not self._helps(uids[place:]):
                break
            other = next(self._halved(uids[place + 1 :], (one,)), None)
            if other is not None:
                return one, other
        return ()

    def several(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        """A set none of which can stay; empty when not even the departure of all helps. Heavy pods stay first."""
        if not uids or not self._helps(uids):
            return ()
        leaving = list(uids)
        size = len(leaving) // 2
        while size:
            for start in range(len(leaving) - size, -1, -size):
                fewer = leaving[:start] + leaving[start + size :]
                if fewer and self._helps(fewer):
                    leaving = fewer
            size //= 2
        return tuple(leaving)
