"""The journal of this node: what the owner did, for those who follow it, and the plans that come back.

The owner notes every decision here as it makes it; that costs less than a millisecond and never waits. Each opening of
the state begins an epoch. What must outlive the agent is the state, not the journal.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from podslice.api.pod.spec import Pod
from podslice.node.decision import Decision, ResizeDecision
from podslice.node.holding import holding_of
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.replica.events import PlanOutcome
from podslice.replica.journal import Journal
from podslice.replica.planned_admission import admit_as_planned
from podslice.replica.stream_messages import PlanGiven

_MOST_PLANS = 1024


def _microseconds() -> int:
    return time.time_ns() // 1000


class NodeJournal:
    """Events of the node since its state was opened; `journal` is None before that, and for ever where no `version` of
    the core is named: then nobody follows. With `honours`, pods get what their plan names where that is free and no
    worse; otherwise plans are compared with what the node decides by itself. `observed`: it tells of a kubelet that
    decides by itself. `binding_outcomes` counts what became of plans,
    `streams` are the addresses that follow now. `on_event` hears that there is something to send."""

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
        self.on_event: list[Callable[[], None]] = []
        self._now = now
        self._epoch = 0
        self._node: Node | None = None
        self._refused = ""
        self._plans: OrderedDict[str, PlanGiven] = OrderedDict()

    # Plans

    def plan(self, plan: PlanGiven) -> None:
        """A pod is on its way. The oldest plans are forgotten first."""
        self._plans[plan.uid] = plan
        self._plans.move_to_end(plan.uid)
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def withdraw(self, uid: str) -> None:
        """It does not come."""
        self._plans.pop(uid, None)

    # What the owner does

    def begin(self, node: Node) -> None:
        """The state was opened: a new epoch."""
        if not self.version:
            return
        self._epoch = max(self._now(), self._epoch + 1)
        self._node = node
        self.journal = Journal(node.rules, node.state, epoch=self._epoch, version=self.version, observed=self._observed)
        self._tell()

    def follow(self, node: Node) -> None:
        """This is the node from now on; what is new about it is told with the next event, or by `settle`."""
        self._node = node

    def deciding(self, pod: Pod) -> Callable[[Node, Pod], Decision]:
        """How the pod is to be decided about."""
        plan = self._plans.get(pod.metadata.uid)
        return partial(_as_planned, plan=plan) if self.honours and plan is not None else Node.admit

    def decided(self, before: NodeState, pod: Pod, decision: Decision) -> None:
        """The owner has admitted or refused a pod."""
        if self.journal is None or self._node is None:
            return
        node = self._node
        if decision.admitted:
            fate = self._fate(node, before, pod, decision)
            self.journal.record_admission(node.rules, before, node.state, pod, plan=fate)
        else:
            self._refused = decision.uid
            reason, message = decision.reason, decision.message
            self.journal.record_refusal(node.rules, before, node.state, pod, reason=reason, message=message)
        self._tell()

    def _fate(self, node: Node, before: NodeState, pod: Pod, decision: Decision) -> PlanOutcome:
        plan = self._plans.pop(decision.uid, None)
        if plan is None:
            return ""
        fate: PlanOutcome = "declined" if self.honours else "differs"
        if holding_of(node.state, decision.uid) == plan.holding:
            free = Node.of(node.rules, before)
            free.admit(pod)
            same = not self.honours or holding_of(free.state, decision.uid) == plan.holding
            fate = "agreed" if same else "honoured"
        self.binding_outcomes[fate] = self.binding_outcomes.get(fate, 0) + 1
        return fate

    def declined(self, uid: str, reason: str, message: str) -> None:
        """The agent refuses a pod; nothing new where the core has just done so."""
        if self.journal is not None and uid != self._refused:
            self.settle()
            self.journal.record_agent_refusal(uid, reason=reason, message=message)
            self._tell()
        self._refused = ""

    def removed(self, before: NodeState, uid: str) -> None:
        """A pod is gone."""
        self.withdraw(uid)
        if self.journal is not None and self._node is not None and uid in before.pods:
            self.journal.record_removal(self._node.rules, before, self._node.state, uid)
            self._tell()

    def resized(self, before: NodeState, pod: Pod, decision: ResizeDecision) -> None:
        """A resize was decided on."""
        if self.journal is not None and self._node is not None:
            node = self._node
            self.journal.record_resize(node.rules, before, node.state, pod, outcome=decision.outcome)
            self._tell()

    def moved(self) -> None:
        """A running pod is elsewhere, or owns two places while it is on its way."""
        self.settle()
        self._tell()

    def settle(self) -> None:
        """Whatever else has changed is told now: device plugins, CPUs that came or went, moves."""
        if self.journal is not None and self._node is not None:
            self.journal.settle(self._node.rules, self._node.state)

    def _tell(self) -> None:
        for hear in self.on_event:
            hear()


def _as_planned(node: Node, pod: Pod, *, plan: PlanGiven) -> Decision:
    return admit_as_planned(node, pod, plan.holding).decision
