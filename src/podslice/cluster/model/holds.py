"""Pods that are on their way to a node: what they will have there counts before the node knows of them.

A hold is an admission in thought. The node's state with its holds is worked out from what the node itself last said,
one hold after the other in the order in which they came; whoever drops one replays the later ones. So nothing is ever
taken back by arithmetic, and without holds the state is the node's again.

A kubelet may start pods in another order than they came. So a further pod is only let in when every order of all
unconfirmed pods admits every one of them. A node that takes plans (`honour`) gives bound pods what was planned, in any
order, but may decline a plan that is worse than its own choice: there every order counts, with any of the plans taken.
While it has a bound pod whose plan nobody here knows, of a service before this one, no further pod is let in.
Of a node whose kubelet decides alone (`observe`), one pod at a time is on its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from podslice.cluster.model.classes import NodeKind, StateClasses
from podslice.cluster.model.needs import refused_by_managers
from podslice.node.answers import FleetState, NodeAnswer, PodHolding, with_uid
from podslice.node.decide import decide
from podslice.node.holding import Holding
from podslice.node.state import NodeState
from podslice.replica.signature import Signature

PlanPolicy: TypeAlias = Literal["compare", "honour", "observe"]
RESERVED = "reserved for pods being bound"
_MOST_ORDERS = 6
"""All orders of three different pods."""
_MOST_TRIES = 128
"""Answers for the orders of pods with plans. Three different pods need 39 at most."""
FOREVER = float("inf")
_NO_HOLDS: Mapping[str, Hold] = MappingProxyType({})


class Hold:
    """A pod on its way to `node`. `bound`: told to the API server. `answer`: what the node would say after the holds
    before it; without a holding, it would refuse. `since` and `until`: when it began and when it falls, in the
    service's seconds."""

    __slots__ = ("answer", "bound", "given", "group", "node", "plan", "signature", "since", "uid", "until")

    def __init__(self, uid: str, signature: Signature, node: str, *, since: float, group: str, bound: bool) -> None:
        self.uid = uid
        self.signature = signature
        self.node = node
        self.since, self.until = since, FOREVER
        self.group = group
        self.bound = bound
        self.answer: NodeAnswer | None = None
        self.plan: PodHolding | None = None
        """What the node was told, once the pod is bound."""
        self.given: Holding | None = None
        """The same by container: a Binding that is tried again comes with the same plan."""

    @property
    def fits(self) -> bool:
        """True where the node would admit the pod."""
        return self.answer is not None and self.answer.holding is not None


class Coming(NamedTuple):
    """A pod on its way, and what it is told to take."""

    signature: Signature
    plan: PodHolding | None


class AnyPlans:
    """Pods on their way to a node of a kind that may take each plan that is still free, or decide by itself."""

    def __init__(self, classes: StateClasses, kind: NodeKind, coming: list[Coming]) -> None:
        self._classes, self._kind, self._coming = classes, kind, coming
        self._tries = _MOST_TRIES
        self._good: set[tuple[int, frozenset[int]]] = set()

    def are_admitted(self, state: FleetState) -> bool:
        """True when all are, in every order, with any of the plans taken; False too where that is too much to try."""
        return self._are_admitted(state, frozenset(range(len(self._coming))))

    def _are_admitted(self, state: FleetState, left: frozenset[int]) -> bool:
        if not left or (state.number, left) in self._good:
            return True
        for number in left:
            self._tries -= 1
            if self._tries < 0:
                return False
            pod = self._coming[number]
            alone = self._classes.admit(self._kind, state, pod.signature)
            if alone.holding is None or not self._are_admitted(alone.state, left - {number}):
                return False
            planned = None if pod.plan is None else self._kind.answers.take(state, pod.plan)
            if planned is not None and not self._are_admitted(planned, left - {number}):
                return False
        self._good.add((state.number, left))
        return True


class HeldNode:
    """One node: `base` is its class as it said itself, `state` the one with all `holds`. `owners` are UIDs of pods that
    have something for themselves (`uids`)."""

    __slots__ = ("base", "confirmed", "holds", "kind", "name", "owners", "policy", "proven", "row", "state")

    def __init__(self, name: str, kind: NodeKind, base: FleetState, policy: PlanPolicy) -> None:
        self.name = name
        self.kind = kind
        self.base = self.state = base
        self.policy = policy
        self.row = -1
        self.confirmed = True
        self.owners = b""
        self.holds: Mapping[str, Hold] = _NO_HOLDS
        """In the order in which they came. Most nodes have none, and share this."""
        self.proven: FleetState | None = None
        """What the node said of itself when all orders of all its holds were last tried."""

    def add(self, classes: StateClasses, hold: Hold) -> None:
        """A pod is on its way, after all others."""
        self.holds = {**self.holds, hold.uid: hold}
        self.proven = self.base
        self._place(classes, hold)

    def forget(self, uid: str) -> Hold:
        """A pod is not on its way any more; `replay` is still to come. Raises `KeyError`."""
        hold = self.holds[uid]
        left = {other: one for other, one in self.holds.items() if other != uid}
        self.holds = left or _NO_HOLDS
        return hold

    def _place(self, classes: StateClasses, hold: Hold) -> None:
        hold.answer = self._as_planned(hold) or classes.admit(self.kind, self.state, hold.signature)
        if hold.fits:
            self.state = hold.answer.state

    def _as_planned(self, hold: Hold) -> NodeAnswer | None:
        """What a node that takes plans will say of a pod that was bound with one; None where the plan is not free."""
        if hold.plan is None or self.policy != "honour":
            return None
        after = self.kind.answers.take(self.state, hold.plan)
        return None if after is None else NodeAnswer(after, hold.plan)

    def replay(self, classes: StateClasses) -> None:
        """Work the state out again from what the node said."""
        self.state = self.base
        for hold in self.holds.values():
            self._place(classes, hold)

    def fix_plan(self, classes: StateClasses, hold: Hold) -> PodHolding | None:
        """The pod is bound, maybe once more: what the node is told for it. Others were planned around what it was told
        before, so that stays as long as it is what the node will say."""
        hold.given = self.plan(classes, hold.uid)
        hold.plan = None if hold.answer is None else hold.answer.holding
        return hold.plan

    def plan(self, classes: StateClasses, uid: str) -> Holding | None:
        """What each container of a pod on its way is to have."""
        known = self.holds[uid]
        if known.given is not None and known.answer is not None and known.answer.holding == known.plan:
            return known.given
        state = self.base
        for hold in self.holds.values():
            if hold.uid == uid:
                return self.kind.answers.plan(state, hold.signature.number) if hold.fits else None
            if hold.fits and hold.answer is not None:
                state = hold.answer.state
        raise KeyError(uid)

    def with_holds(self, state: NodeState, *, but: Container[str] = ()) -> NodeState:
        """The node's whole state with the pods on their way in it, `but` these."""
        for hold in self.holds.values():
            if hold.fits and hold.uid not in but:
                state = decide(self.kind.rules, state, with_uid(hold.signature.pod, hold.uid)).state
        return state

    # Questions

    def cause(self, classes: StateClasses, signature: Signature) -> str:
        """Why a further pod may not come; empty where it may."""
        answer = classes.admit(self.kind, self.state, signature)
        if not self.holds:
            return "" if answer.holding is not None else refused_by_managers(self.kind.rules, answer.reason)
        if self.policy == "observe":
            return RESERVED
        if answer.holding is None:
            alone = classes.admit(self.kind, self.base, signature)
            return RESERVED if alone.holding is not None else refused_by_managers(self.kind.rules, alone.reason)
        if not all(hold.fits for hold in self.holds.values()) or self._has_unknown_plans:
            return RESERVED
        coming = [*self._coming(), Coming(signature, answer.holding)]
        return "" if self._fits_in_any_order(classes, coming) else RESERVED

    def fits_in_any_order(self, classes: StateClasses) -> bool:
        """True when the holds still fit in any order, though the node may have changed since they were let in. With
        fewer on their way, or some of them admitted first, they do as before."""
        if len(self.holds) < 2 or self.proven is self.base:
            return True
        if self._has_unknown_plans or not self._fits_in_any_order(classes, self._coming()):
            return False
        self.proven = self.base
        return True

    @property
    def _has_unknown_plans(self) -> bool:
        """True while a pod is bound that was told what to take by a service before this one, or by nobody: where it
        goes is only known once the node has spoken."""
        return self.policy == "honour" and any(hold.bound and hold.plan is None for hold in self.holds.values())

    def _coming(self) -> list[Coming]:
        """The pods on their way; one that is not bound will be told what it would have now."""
        return [
            Coming(hold.signature, hold.plan or (hold.answer.holding if hold.answer is not None else None))
            for hold in self.holds.values()
        ]

    def _fits_in_any_order(self, classes: StateClasses, coming: list[Coming]) -> bool:
        """True when all are admitted, whatever order they come in; False too where there are too many orders."""
        left = Counter(one.signature for one in coming)
        if not _has_few_orders(left):
            return False
        if self.policy == "honour" and len(left) > 1:
            return AnyPlans(classes, self.kind, coming).are_admitted(self.base)
        return all(self._admits_all(classes, order) for order in _orders(left, len(coming)))

    def _admits_all(self, classes: StateClasses, order: Iterable[Signature]) -> bool:
        state = self.base
        for signature in order:
            answer = classes.admit(self.kind, state, signature)
            if answer.holding is None:
                return False
            state = answer.state
        return True

    def requested_sums(self) -> dict[str, int]:
        """What the pods on their way ask for in all."""
        total: dict[str, int] = {}
        for hold in self.holds.values():
            for name, amount in self.kind.needs(hold.signature).asked.items():
                total[name] = total.get(name, 0) + amount
        return total


def _has_few_orders(coming: Counter[Signature]) -> bool:
    """True where the orders in which they can come are no more than can be tried."""
    orders = place = 0
    orders = 1
    for times in coming.values():
        for one in range(1, times + 1):
            place += 1
            orders = orders * place // one
            if orders > _MOST_ORDERS:
                return False
    return True


def _orders(left: Counter[Signature], length: int) -> Iterator[tuple[Signature, ...]]:
    """All orders, equal pods being equal."""
    if not length:
        yield ()
        return
    for signature in list(left):
        if left[signature]:
            left[signature] -= 1
            for rest in _orders(left, length - 1):
                yield (signature, *rest)
            left[signature] += 1
