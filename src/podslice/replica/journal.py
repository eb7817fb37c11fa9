"""The journal of one node, on the node's side: its events in order, and what a reader needs that missed some.

The owner of a node records each operation with the state before and after (states are immutable values, so keeping them
costs nothing). A change that was not recorded is found by comparing states, and becomes a whole-state event.

    journal = Journal(node.rules, node.state, epoch=now_us, version="0.1.0")
    journal.record_admission(node.rules, before, node.state, pod)      # or removal, refusal, resize
    journal.settle(node.rules, node.state)                             # whatever else changed
    for stamped in journal.events_after(epoch, sequence): ...          # what to send to a reader of these

Only the latest `kept` events are remembered; a reader that is further behind gets the whole state.
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
    PlanOutcome,
    PodAdmitted,
    PodRefused,
    PodRemoved,
    PodResized,
    Stamped,
    WholeState,
    Why,
)
from podslice.replica.setup import setup_of
from podslice.replica.state_message import pool_message, state_message, strip_pod


class Journal:
    """The events of one epoch of one node; `sequence` and `digest` are the latest event's. `observed` and
    `decisions` as in `WholeState`."""

    def __init__(
        self,
        rules: NodeRules,
        state: NodeState,
        *,
        epoch: int,
        version: str,
        observed: bool = False,
        decisions: int = 0,
        kept: int = 4096,
    ) -> None:
        self.epoch = epoch
        self.version = version
        self.observed = observed
        self.decisions = decisions
        self.sequence = 0
        self._first = self._rules = rules
        self._setup = setup_of(rules)
        self._state = state
        self._digester = Digester()
        self.digest: Digest = self._digester.of(state)
        self._ring: deque[Stamped] = deque(maxlen=kept)
        self._ring.append(self._stamp(self._whole_state("started")))

    # Recording

    def record_admission(
        self, rules: NodeRules, before: NodeState, after: NodeState, pod: Pod, *, plan: PlanOutcome = ""
    ) -> Stamped:
        """Record that the core admitted a pod."""
        self.settle(rules, before)
        return self._append(PodAdmitted(strip_pod(pod), holding_of(after, pod.metadata.uid), plan), after)

    def record_refusal(
        self, rules: NodeRules, before: NodeState, after: NodeState, pod: Pod, *, reason: str, message: str
    ) -> Stamped:
        """Record that the core refused a pod."""
        self.settle(rules, before)
        return self._append(PodRefused(pod.metadata.uid, reason, message, strip_pod(pod)), after)

    def record_agent_refusal(self, uid: str, *, reason: str, message: str) -> Stamped:
        """Record that the agent refused a pod without asking the core."""
        return self._append(PodRefused(uid, reason, message), self._state)

    def record_removal(self, rules: NodeRules, before: NodeState, after: NodeState, uid: str) -> Stamped:
        """Record that a pod is gone."""
        self.settle(rules, before)
        return self._append(PodRemoved(uid), after)

    def record_resize(
        self,
        rules: NodeRules,
        before: NodeState,
        after: NodeState,
        pod: Pod,
        *,
        outcome: str,
        since: float | None = None,
    ) -> Stamped:
        """Record the outcome of a resize; `since` is when a deferred one was first asked for."""
        self.settle(rules, before)
        return self._append(PodResized(strip_pod(pod), outcome, since), after)

    def settle(self, rules: NodeRules, state: NodeState) -> None:
        """Record whatever changed since the last event; nothing where the node is still in that state."""
        # States are compared by value: an equal state that was made anew is no change.
        if rules is self._rules and state == self._state:
            return
        listed = self._devices_change(state) if rules is self._rules else None
        if listed is not None:
            self._append(listed, state)
            return
        if rules is not self._rules:
            self._rules, self._setup = rules, setup_of(rules, self._first)
        self._append(None, state)

    def _devices_change(self, state: NodeState) -> DevicesChanged | None:
        """Return the event for a state whose only change is what device plugins list; None for any other change."""
        old, new = self._state.device.pools, state.device.pools
        changed = {name: pool_message(pool) for name, pool in new.items() if old.get(name) is not pool}
        gone = tuple(sorted(old.keys() - new.keys()))
        if not (changed or gone):
            return None
        # The pools are replaced on both sides, so that equality is about everything else.
        same = replace(state, device=replace(state.device, pools=old, file=self._state.device.file))
        before = replace(self._state, device=replace(self._state.device, pools=old))
        return DevicesChanged(changed, gone) if same == before else None

    def _append(self, event: NodeEvent | None, state: NodeState) -> Stamped:
        self._state = state
        self.digest = self._digester.of(state)
        self.sequence += 1
        stamped = self._stamp(event or self._whole_state("changed"))
        self._ring.append(stamped)
        return stamped

    def _stamp(self, event: NodeEvent) -> Stamped:
        return Stamped(self.epoch, self.sequence, self.digest.allocation, self.digest.named, event)

    # Reading

    def whole_state(self) -> Stamped:
        """Return the whole state as of the latest event."""
        return self._stamp(self._whole_state("asked"))

    def _whole_state(self, why: Why) -> WholeState:
        return WholeState(self.version, self._setup, state_message(self._state), why, self.observed, self.decisions)

    def events_after(self, epoch: int, sequence: int) -> tuple[Stamped, ...]:
        """Return the events after one that a reader has. The whole state where they are not remembered any more, or
        where that event is of another epoch."""
        # A reader that has the event before the oldest one misses none.
        if epoch != self.epoch or not self._ring[0].sequence - 1 <= sequence <= self.sequence:
            return (self.whole_state(),)
        return tuple(one for one in self._ring if one.sequence > sequence)
