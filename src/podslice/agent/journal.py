"""The journal of this node: its events for those who follow it, and the plans that come back.

Every decision is recorded as it is made; that takes less than a millisecond and never waits. Each opening of the state
begins an epoch. The state outlives the agent, the journal does not.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from podslice.api.pod.spec import Pod
from podslice.node.decision import Decision, ResizeDecision
from podslice.node.holding import holding_of
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.replica.compatibility import DECISIONS
from podslice.replica.events import PlanOutcome
from podslice.replica.journal import Journal
from podslice.replica.planned_admission import admit_as_planned
from podslice.replica.stream_messages import PlanGiven
from podslice.version import UNPACKAGED

_MOST_PLANS = 1024


def _microseconds() -> int:
    return time.time_ns() // 1000


class NodeJournal:
    """Events of the node since its state was opened.

    `journal` is None before that, and always where `version` of the core is empty: then no service follows. `honours`:
    pods get what their plan names where that is free and no worse; otherwise plans are only compared. `observed`: the
    events are those of a kubelet that decides. `binding_outcomes`: number of plans by outcome. `streams`: addresses
    that follow now. `listeners`: what `notifying` has called now."""

    def __init__(
        self,
        *,
        version: str,
        honours: bool = False,
        observed: bool = False,
        now: Callable[[], int] = _microseconds,
    ) -> None:
        self.version = version
        self.honours = honours
        self._observed = observed
        self.journal: Journal | None = None
        self.binding_outcomes: dict[PlanOutcome, int] = {}
        self.streams: set[str] = set()
        self.listeners: list[Callable[[], None]] = []
        self._now = now
        self._epoch = 0
        self._node: Node | None = None
        self._refused = ""
        self._plans: OrderedDict[str, PlanGiven] = OrderedDict()

    # Plans

    def plan(self, plan: PlanGiven) -> None:
        """Keep the plan of a coming pod; the oldest plans are dropped first."""
        self._plans[plan.uid] = plan
        self._plans.move_to_end(plan.uid)
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def withdraw(self, uid: str) -> None:
        """Drop the plan of a pod that does not come."""
        self._plans.pop(uid, None)

    # What the owner does

    def begin(self, node: Node) -> None:
        """Begin an epoch with the opened state."""
        if not self.version:
            return
        # Followers compare epochs, so a clock that was set back must not repeat one.
        self._epoch = max(self._now(), self._epoch + 1)
        self._node = node
        self.journal = Journal(
            node.rules, node.state, epoch=self._epoch, version=self.version, observed=self._observed,
            # What a tree that is not installed decides is not known.
            decisions=0 if self.version == UNPACKAGED else DECISIONS,
        )  # fmt: skip
        self._announce()

    def follow(self, node: Node) -> None:
        """Record this node from now on; differences are sent with the next event, or by `record_changes`."""
        self._node = node

    def admission_for(self, pod: Pod) -> Callable[[Node, Pod], Decision]:
        """Return the function that decides about the pod."""
        plan = self._plans.get(pod.metadata.uid)
        return partial(_as_planned, plan=plan) if self.honours and plan is not None else Node.admit

    def record_decision(self, before: NodeState, pod: Pod, decision: Decision) -> None:
        """Record that a pod was admitted or refused."""
        if self.journal is None or self._node is None:
            return
        node = self._node
        if decision.admitted:
            outcome = self._outcome(node, before, pod, decision)
            self.journal.record_admission(node.rules, before, node.state, pod, plan=outcome)
        else:
            self._refused = decision.uid
            reason, message = decision.reason, decision.message
            self.journal.record_refusal(node.rules, before, node.state, pod, reason=reason, message=message)
        self._announce()

    def _outcome(self, node: Node, before: NodeState, pod: Pod, decision: Decision) -> PlanOutcome:
        plan = self._plans.pop(decision.uid, None)
        if plan is None:
            return ""
        outcome: PlanOutcome = "declined" if self.honours else "differs"
        if holding_of(node.state, decision.uid) == plan.holding:
            free = Node.of(node.rules, before)
            free.admit(pod)
            same = not self.honours or holding_of(free.state, decision.uid) == plan.holding
            outcome = "agreed" if same else "honoured"
        self.binding_outcomes[outcome] = self.binding_outcomes.get(outcome, 0) + 1
        return outcome

    def record_refusal(self, uid: str, reason: str, message: str) -> None:
        """Record that the agent refuses a pod; nothing where the core's refusal was recorded just before."""
        if self.journal is not None and uid != self._refused:
            self.record_changes()
            self.journal.record_agent_refusal(uid, reason=reason, message=message)
            self._announce()
        self._refused = ""

    def record_removal(self, before: NodeState, uid: str) -> None:
        """Record that a pod has gone."""
        self.withdraw(uid)
        if self.journal is not None and self._node is not None and uid in before.pods:
            self.journal.record_removal(self._node.rules, before, self._node.state, uid)
            self._announce()

    def record_resize(self, before: NodeState, pod: Pod, decision: ResizeDecision) -> None:
        """Record a resize."""
        if self.journal is not None and self._node is not None:
            node = self._node
            self.journal.record_resize(node.rules, before, node.state, pod, outcome=decision.outcome)
            self._announce()

    def record_move(self) -> None:
        """Record that a running pod moved, or owns both places during a move."""
        self.record_changes()
        self._announce()

    def record_changes(self) -> None:
        """Record all other changes: device plugins, CPUs that came or went, moves."""
        if self.journal is not None and self._node is not None:
            self.journal.settle(self._node.rules, self._node.state)

    @contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` when there is something to send, for as long as the context is open."""
        # Streams come and go with the addresses of the services, so the wiring cannot know them.
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def _announce(self) -> None:
        for listener in self.listeners:
            listener()


def _as_planned(node: Node, pod: Pod, *, plan: PlanGiven) -> Decision:
    return admit_as_planned(node, pod, plan.holding).decision
