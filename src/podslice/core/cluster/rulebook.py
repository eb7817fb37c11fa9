"""What all replicas of a service share: rules by setup, common parts of states, and room for those that are asked."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from podslice.core.cluster.common import Common
from podslice.core.cluster.setup import Setup, SetupDigests, rules_from
from podslice.core.managers.node_rules import NodeRules


class Resting(Protocol):
    """Something that can make itself small until it is asked for again."""

    def rest(self) -> None: ...


class Rulebook:
    """Rules by setup, at most `most` of them, those asked for last; what else nodes have `common`; and which replicas
    have their state at hand: the `warm` that were asked for last, all others rest."""

    def __init__(self, most: int = 1024, *, warm: int = 256) -> None:
        self.common = Common()
        self._most, self._warmest = most, warm
        self._warm: OrderedDict[Resting, None] = OrderedDict()
        self._rules: OrderedDict[SetupDigests, NodeRules] = OrderedDict()
        self._digests: OrderedDict[int, tuple[Setup, SetupDigests]] = OrderedDict()

    def rules(self, setup: Setup) -> NodeRules:
        """The rules of a setup; equal setups have the same object. Raises as `rules_from`."""
        key = self._digests_of(setup)
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = rules_from(setup)
            if len(self._rules) > self._most:
                self._rules.popitem(last=False)
        self._rules.move_to_end(key)
        return found

    def _digests_of(self, setup: Setup) -> SetupDigests:
        """Of a setup that was asked for before they are known."""
        known = self._digests.get(id(setup))
        if known is None or known[0] is not setup:
            known = self._digests[id(setup)] = setup, setup.digests
            if len(self._digests) > self._most:
                self._digests.popitem(last=False)
        return known[1]

    def warm(self, replica: Resting) -> None:
        """Somebody asks for its state; whoever has not been asked for longest rests."""
        warm = self._warm
        warm[replica] = None
        warm.move_to_end(replica)
        if len(warm) > self._warmest:
            warm.popitem(last=False)[0].rest()

    def forget(self, replica: Resting) -> None:
        """Nobody will ask for it."""
        self._warm.pop(replica, None)
