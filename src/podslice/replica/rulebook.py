"""What all replicas of a service share: rules by setup, common parts of states, and room for those that are asked.

An agent that lies can tell ever other machines; what is kept of them goes with its replica.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from podslice.node.holding import Digest, Digester
from podslice.node.kubelet import Kubelet
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.replica.common import Common, Latest
from podslice.replica.events import StateTold
from podslice.replica.setup import Setup, SetupDigests, rules_from
from podslice.replica.told_state import state_from

_MOST_DIGESTS = 16


class Resting(Protocol):
    """Something that can make itself small until it is asked for again."""

    def rest(self) -> None: ...


class ReadyState(NamedTuple):
    """A whole state as a replica takes it over: worked out from what was told, and nowhere else."""

    setup: SetupDigests
    rules: NodeRules
    state: NodeState
    digest: Digest
    digester: Digester


class Rulebook:
    """Rules by setup, as long as a replica has them, and the `kept` that were asked for last; what else nodes have
    `common`; and which replicas have their state at hand: the `warm` that were asked for last, all others rest.

    One that works beside another's event loop takes the rules that the `other` has."""

    def __init__(self, *, kept: int = 4, warm: int = 64, other: Rulebook | None = None) -> None:
        self.common = Common()
        self._warmest = warm
        self._warm: OrderedDict[Resting, None] = OrderedDict()
        self._rules: WeakValueDictionary[SetupDigests, NodeRules] = WeakValueDictionary()
        self._kept: deque[NodeRules] = deque(maxlen=kept)
        self._digests: Latest[int, tuple[Setup, SetupDigests]] = Latest(_MOST_DIGESTS)
        self._other = other

    def rules(self, setup: Setup) -> NodeRules:
        """The rules of a setup; equal setups have the same object. Raises as `rules_from`."""
        key = self._digests_of(setup)
        found = self._rules.get(key)
        if found is None and self._other is not None:
            found = self._other._rules.get(key)
        if found is None:
            found = self._rules[key] = rules_from(setup)
            self._kept.append(found)
        return found

    def ready(self, event: StateTold) -> ReadyState | str:
        """What a replica takes over of a whole state: all the work there is. In words what is wrong with one that no
        node can be in."""
        try:
            return self._ready(event)
        except Exception as error:  # a state that a node made up may break anything; only its own replica
            return f"{type(error).__name__}: {error}"[:500]

    def _ready(self, event: StateTold) -> ReadyState:
        rules, digester = self.rules(event.setup), Digester()
        state = state_from(event.state, rules, self.common.admission)
        seen = Kubelet.of(rules, state).see_pods() if rules.predicates else state.seen
        return ReadyState(self._digests_of(event.setup), rules, replace(state, seen=seen), digester.of(state), digester)

    def taken(self, ready: ReadyState) -> ReadyState:
        """What another rulebook has made ready, with the rules of this one: equal setups have the same object."""
        return ready._replace(rules=self._rules.setdefault(ready.setup, ready.rules))

    def _digests_of(self, setup: Setup) -> SetupDigests:
        """Of a setup that was asked for before they are known."""
        known, digests = self._digests.get(id(setup), lambda: (setup, setup.digests))
        return digests if known is setup else setup.digests

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
