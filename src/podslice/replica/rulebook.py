"""The values that all replicas of a service share: rules by setup, common parts of states, and a bound on warm states.

An agent that lies can send ever new machines; their rules go with its replica, because they are only weakly held.
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
from podslice.replica.events import WholeState
from podslice.replica.setup import Setup, SetupDigests, build_rules
from podslice.replica.shared_values import Latest, SharedValues
from podslice.replica.state_message import build_state

_MOST_DIGESTS = 16


class Resting(Protocol):
    """A replica that can compress its state until it is read again."""

    def rest(self) -> None: ...


class PreparedState(NamedTuple):
    """A whole state as a replica adopts it, computed from the message alone."""

    setup: SetupDigests
    rules: NodeRules
    state: NodeState
    digest: Digest
    digester: Digester


class Rulebook:
    """Rules by setup, shared values (`common`), and a bound on replicas with decoded states.

    - `kept`: rules to hold beyond those that a replica uses, the latest ones.
    - `warm`: replicas that keep their state decoded, those that were read last; all others rest.
    - `other`: a rulebook whose rules this one uses too; for one that works in a thread beside the event loop.
    """

    def __init__(self, *, kept: int = 4, warm: int = 64, other: Rulebook | None = None) -> None:
        self.common = SharedValues()
        self._warmest = warm
        self._warm: OrderedDict[Resting, None] = OrderedDict()
        self._rules: WeakValueDictionary[SetupDigests, NodeRules] = WeakValueDictionary()
        self._kept: deque[NodeRules] = deque(maxlen=kept)
        self._digests: Latest[int, tuple[Setup, SetupDigests]] = Latest(_MOST_DIGESTS)
        self._other = other

    def rules(self, setup: Setup) -> NodeRules:
        """Return the rules of a setup; equal setups have the same object. Raises as `build_rules`."""
        key = self._digests_of(setup)
        found = self._rules.get(key)
        if found is None and self._other is not None:
            # Only read: the other rulebook belongs to another thread.
            found = self._other._rules.get(key)
        if found is None:
            found = self._rules[key] = build_rules(setup)
            self._kept.append(found)
        return found

    def prepare(self, event: WholeState) -> PreparedState | str:
        """Do all the work of adopting a whole state. Returns the problem in words for a state that no node can have."""
        try:
            return self._prepare(event)
        except Exception as error:  # a state that a node made up may break anything; only its own replica
            return f"{type(error).__name__}: {error}"[:500]

    def _prepare(self, event: WholeState) -> PreparedState:
        rules, digester = self.rules(event.setup), Digester()
        state = build_state(event.state, rules, self.common.admission)
        seen = Kubelet.of(rules, state).see_pods() if rules.predicates else state.seen
        return PreparedState(
            self._digests_of(event.setup), rules, replace(state, seen=seen), digester.of(state), digester
        )

    def adopt(self, ready: PreparedState) -> PreparedState:
        """Return a state that another rulebook prepared, with this one's rules for its setup."""
        return ready._replace(rules=self._rules.setdefault(ready.setup, ready.rules))

    def _digests_of(self, setup: Setup) -> SetupDigests:
        """Return a setup's digests; cached by identity, because hashing a machine takes long."""
        # The setup is kept beside its digests: an id alone may belong to another object by now.
        known, digests = self._digests.get(id(setup), lambda: (setup, setup.digests))
        return digests if known is setup else setup.digests

    def keep_warm(self, replica: Resting) -> None:
        """Note that the replica's state is read; the one that was read longest ago rests where there are too many."""
        warm = self._warm
        warm[replica] = None
        warm.move_to_end(replica)
        if len(warm) > self._warmest:
            warm.popitem(last=False)[0].rest()

    def forget(self, replica: Resting) -> None:
        """Drop a replica that will not be read again."""
        self._warm.pop(replica, None)
