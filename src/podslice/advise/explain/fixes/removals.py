"""Searching for the running pods that must leave so that another one is admitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import PodNeeds

MOST_TRIES = 60
FEW_PODS = 12


class Removals:
    """Sets of pods that must leave.

    Among up to `FEW_PODS` every single one and every pair is tried. Among more they are found by halving: whatever a
    set of pods frees, a larger set frees too, so a set that does not help rules out its parts. (That is not true for a
    rare pod: one whose first container goes elsewhere when more is free, and spoils the place of the second.)
    """

    def __init__(self, nodes: Alternatives, needs: PodNeeds, *, limit: int | None = None) -> None:
        """`limit`: after this many tries `helps` returns False for every new set."""
        self._limit = limit
        self._nodes = nodes
        self._asking = needs
        self._known: dict[frozenset[str], bool] = {}
        # A pod that comes to the node again leaves nothing for itself that these sums see.
        self._sums = None if needs.admission.uid in nodes.view.pods else nodes.shortages
        self._lack = nodes.lack(needs)
        self._fewest = 0 if self._sums is None else self._sums.fewest(self._lack)

    @property
    def is_exhausted(self) -> bool:
        return self._limit is not None and len(self._known) >= self._limit

    def helps(self, uids: Sequence[str]) -> bool:
        """Whether the pod is admitted once these pods have left."""
        key = frozenset(uids)
        if not self._may_help(uids):
            return False
        if key not in self._known:
            if self.is_exhausted:
                return False
            self._known[key] = self._nodes.admits_without(uids, self._asking)
        return self._known[key]

    def _may_help(self, uids: Sequence[str]) -> bool:
        """Whether the sums say that these pods may free enough."""
        return self._sums is None or (len(uids) >= self._fewest and self._sums.is_met(self._lack, uids))

    def singles(self, uids: tuple[str, ...]) -> Iterator[str]:
        """Yield every pod of `uids` whose departure is enough, in order."""
        if self._fewest > 1:
            return
        some = uids if self._sums is None else tuple(self._sums.singles(uids, self._lack))
        # The first ones are tried directly, as most that free enough do; then whole halves rule out the rest.
        yield from (uid for uid in some[:FEW_PODS] if self.helps((uid,)))
        yield from self._bisect(some[FEW_PODS:], ())

    def _bisect(self, uids: tuple[str, ...], beside: tuple[str, ...]) -> Iterator[str]:
        """Yield every pod whose departure is enough when those in `beside` leave as well."""
        if not uids or not self.helps((*beside, *uids)):
            return
        if len(uids) == 1:
            yield uids[0]
            return
        half = len(uids) // 2
        yield from self._bisect(uids[:half], beside)
        yield from self._bisect(uids[half:], beside)

    def pair(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        """Return two pods whose departure is enough, empty for none; gives up after `MOST_TRIES` tries on a full
        node."""
        if self._fewest > 2:
            return ()
        if len(uids) <= FEW_PODS:
            return next((pair for pair in combinations(uids, 2) if self.helps(pair)), ())
        pairs = None if self._sums is None else self._sums.pairs(uids, self._lack)
        if pairs is not None:
            return next((pair for pair in islice(pairs, MOST_TRIES) if self.helps(pair)), ())
        tried = len(self._known)
        for place, one in enumerate(uids):
            if len(self._known) - tried > MOST_TRIES or not self.helps(uids[place:]):
                break
            some = tuple(uid for uid in uids[place + 1 :] if self._may_help((one, uid)))
            other = next(self._bisect(some, (one,)), None)
            if other is not None:
                return one, other
        return ()

    def few(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fewest pods found whose departure is enough, none of which can stay; empty when not even the
        departure of all helps."""
        if not uids or not self.helps(uids):
            return ()
        orders = self._nodes.shortages.orders(uids, self._lack)
        found = [some for order in orders if (some := self._fewest_of(order))]
        return self._prune(min(found, key=len) if found else uids)

    def _fewest_of(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """Return the shortest beginning of the order that is enough, empty for none."""
        low, high = min(max(0, self._fewest - 1), len(order) - 1), len(order)
        if not high or not self.helps(order):
            return ()
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.helps(order[:middle]) else (middle, high)
        return order[:high]

    def _prune(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        """Return a part of a set that helps, none of which can stay. Pods at the end are let stay first."""
        leaving = list(uids)
        size = max(1, len(leaving) // 2)
        while size:
            # Chunks of halving size, from the end: whole chunks stay where they can, then parts of them.
            for start in range(len(leaving) - size, -1, -size):
                fewer = leaving[:start] + leaving[start + size :]
                if fewer and self.helps(fewer):
                    leaving = fewer
            size //= 2
        return tuple(leaving)
