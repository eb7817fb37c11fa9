"""The journal of one node, on its side: events in order, and what somebody needs who missed some.

The owner of a node tells `Journal` what it did, with the state before and after (states are values, so that costs
nothing). A change that nobody told of is found by comparing, and told as a whole state: nothing can get past.

    journal = Journal(node.rules, node.state, epoch=now_us, version="0.1.0")
    journal.admitted(node.rules, before, node.state, pod, decision)    # or removed, refused, resized
    journal.settle(node.rules, node.state)                             # whatever else changed
    for stamped in journal.after(epoch, sequence): ...                 # what to send to who has these

Only the latest `kept` events are remembered; who is further behind gets the state.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.node.holding import Digest, Digester, holding_of
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.replica.events import (
    DevicesChanged,
    NodeEvent,
    PlanFate,
    PodAdmitted,
    PodRefused,
    PodRemoved,
    PodResized,
    Stamped,
    StateTold,
    Why,
)
from podslice.replica.setup import setup_of
from podslice.replica.told_state import told, told_pod, told_pool


class Journal:
    """Events of one epoch of one node. `sequence` and `digest` are those of the latest. `observed`: see `StateTold`."""

    def __init__(
        self,
        rules: NodeRules,
        state: NodeState,
        *,
        epoch: int,
        version: str,
        observed: bool = False,
        kept: int = 4096,
    ) -> None:
        self.epoch = epoch
        self.version = version
        self.observed = observed
        self.sequence = 0
        self._first = self._rules = rules
        self._setup = setup_of(rules)
        self._state = state
        self._digester = Digester()
        self.digest: Digest = self._digester.of(state)
        self._ring: deque[Stamped] = deque(maxlen=kept)
        self._ring.append(self._stamped(self._told("started")))

    # What happened

    def admitted(
        self, rules: NodeRules, before: NodeState, after: NodeState, pod: Pod, *, plan: PlanFate = ""
    ) -> Stamped:
        """A pod was admitted."""
        self.settle(rules, before)
        return self._append(PodAdmitted(told_pod(pod), holding_of(after, pod.metadata.uid), plan), after)

    def refused(
        self, rules: NodeRules, before: NodeState, after: NodeState, pod: Pod, *, reason: str, message: str
    ) -> Stamped:
        """The core refused a pod."""
        self.settle(rules, before)
        return self._append(PodRefused(pod.metadata.uid, reason, message, told_pod(pod)), after)

    def declined(self, uid: str, *, reason: str, message: str) -> Stamped:
        """The agent refused a pod without asking the core."""
        return self._append(PodRefused(uid, reason, message), self._state)

    def removed(self, rules: NodeRules, before: NodeState, after: NodeState, uid: str) -> Stamped:
        """A pod is gone."""
        self.settle(rules, before)
        return self._append(PodRemoved(uid), after)

    def resized(
        self,
        rules: NodeRules,
        before: NodeState,
        after: NodeState,
        pod: Pod,
        *,
        outcome: str,
        since: float | None = None,
    ) -> Stamped:
        """A resize was decided on."""
        self.settle(rules, before)
        return self._append(PodResized(told_pod(pod), outcome, since), after)

    def settle(self, rules: NodeRules, state: NodeState) -> None:
        """The node is in this state; what led there and was not told is told now."""
        if rules is self._rules and state == self._state:
            return
        listed = self._relisted(state) if rules is self._rules else None
        if listed is not None:
            self._append(listed, state)
            return
        if rules is not self._rules:
            self._rules, self._setup = rules, setup_of(rules, self._first)
        self._append(None, state)

    def _relisted(self, state: NodeState) -> DevicesChanged | None:
        """The event for a state in which device plugins list other devices and nothing else is new."""
        old, new = self._state.device.pools, state.device.pools
        changed = {name: told_pool(pool) for name, pool in new.items() if old.get(name) is not pool}
        gone = tuple(sorted(old.keys() - new.keys()))
        if not (changed or gone):
            return None
        same = replace(state, device=replace(state.device, pools=old, file=self._state.device.file))
        before = replace(self._state, device=replace(self._state.device, pools=old))
        return DevicesChanged(changed, gone) if same == before else None

    def _append(self, event: NodeEvent | None, state: NodeState) -> Stamped:
        self._state = state
        self.digest = self._digester.of(state)
        self.sequence += 1
        stamped = self._stamped(event or self._told("changed"))
        self._ring.append(stamped)
        return stamped

    def _stamped(self, event: NodeEvent) -> Stamped:
        return Stamped(self.epoch, self.sequence, self.digest.allocation, self.digest.named, event)

    # What others need

    def state_told(self) -> Stamped:
        """The whole state as it is after the latest event."""
        return self._stamped(self._told("asked"))

    def _told(self, why: Why) -> StateTold:
        return StateTold(self.version, self._setup, told(self._state), why, self.observed)

    def after(self, epoch: int, sequence: int) -> tuple[Stamped, ...]:
        """The events after one that somebody has; the state where they are not remembered any more, or where that one
        is not of this journal."""
        if epoch != self.epoch or not self._ring[0].sequence - 1 <= sequence <= self.sequence:
            return (self.state_told(),)
        return tuple(one for one in self._ring if one.sequence > sequence)
