"""Holds: simulated admissions of pods that are on their way to a node and that the node has not reported yet.

The state of a node with its holds is computed from the node's own latest state, one hold after the other in the order
in which they came; dropping one replays the later ones. So nothing is ever subtracted, and without holds the state is
the node's again.

A kubelet may start pods in another order than they were bound in. So a further pod is only held when every order of all
unreported pods admits all of them. A node that takes plans (`honour`) gives bound pods what was planned, in any order,
but may decline a plan that is worse than its own choice: there every order counts, with every subset of the plans used.
While it has a bound pod with an unknown plan, of a service before this one, no further pod is held. On a node whose
kubelet decides alone (`observe`) one pod at a time is held.
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
"""Most decisions for the orders of pods with plans. Three different pods need at most 39."""
FOREVER = float("inf")
_NO_HOLDS: Mapping[str, Hold] = MappingProxyType({})


class Hold:
    """A pod on its way to `node`. `bound`: the pod is bound, or its Binding is being written. `answer`: the node's
    decision after the holds before it; without a holding it is a refusal. `since` and `until`: begin and deadline in
    the service's seconds."""

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
        """The plan that was sent to the node, once the pod is bound."""
        self.given: Holding | None = None
        """The same by container: a repeated Binding has the same plan."""

    @property
    def fits(self) -> bool:
        """Whether the node would admit the pod."""
        return self.answer is not None and self.answer.holding is not None


class Coming(NamedTuple):
    """A pod on its way, and its plan."""

    signature: Signature
    plan: PodHolding | None


class AnyPlans:
    """Pods on their way to a node that may use each plan that is still free, or decide by itself."""

    def __init__(self, classes: StateClasses, kind: NodeKind, coming: list[Coming]) -> None:
        self._classes, self._kind, self._coming = classes, kind, coming
        self._tries = _MOST_TRIES
        self._good: set[tuple[int, frozenset[int]]] = set()

    def are_admitted(self, state: FleetState) -> bool:
        """Whether all pods are admitted in every order, with every subset of the plans used. False also where that is
        too much to try."""
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
    """A node with its holds: `base` is the class of its own state, `state` the class with all `holds`. `owners` are the
    UIDs of pods with exclusive resources (`uids.pack_uids`)."""

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
        """By UID, the earliest first. Most nodes have none, and share one empty mapping."""
        self.proven: FleetState | None = None
        """The `base` for which all orders of all holds were last tried, None for none."""

    def add(self, classes: StateClasses, hold: Hold) -> None:
        """Add a hold after all others."""
        # Replaced, never changed in place: nodes without holds share one mapping.
        self.holds = {**self.holds, hold.uid: hold}
        # `cause` has just tried every order with this pod; for a bound pod the caller resets it.
        self.proven = self.base
        self._place(classes, hold)

    def forget(self, uid: str) -> Hold:
        """Remove and return a hold; the caller calls `replay`. Raises `KeyError`."""
        hold = self.holds[uid]
        left = {other: one for other, one in self.holds.items() if other != uid}
        self.holds = left or _NO_HOLDS
        return hold

    def _place(self, classes: StateClasses, hold: Hold) -> None:
        hold.answer = self._as_planned(hold) or classes.admit(self.kind, self.state, hold.signature)
        if hold.fits:
            self.state = hold.answer.state

    def _as_planned(self, hold: Hold) -> NodeAnswer | None:
        """Return the answer of a node that takes plans to a pod with a plan; None where the plan is not free."""
        if hold.plan is None or self.policy != "honour":
            return None
        after = self.kind.answers.take(self.state, hold.plan)
        return None if after is None else NodeAnswer(after, hold.plan)

    def replay(self, classes: StateClasses) -> None:
        """Compute the state with holds anew from the node's own state."""
        self.state = self.base
        for hold in self.holds.values():
            self._place(classes, hold)

    def fix_plan(self, classes: StateClasses, hold: Hold) -> PodHolding | None:
        """Fix the plan of a pod that is bound, maybe again, and return its holding. Other pods were planned around an
        earlier plan, so that one stays while it is still the node's answer."""
        hold.given = self.plan(classes, hold.uid)
        hold.plan = None if hold.answer is None else hold.answer.holding
        return hold.plan

    def plan(self, classes: StateClasses, uid: str) -> Holding | None:
        """Return the holding of each container of a pod on its way; None where the node would refuse it."""
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
        """Return a whole state of the node with the pods on their way admitted, except those in `but`."""
        for hold in self.holds.values():
            if hold.fits and hold.uid not in but:
                state = decide(self.kind.rules, state, with_uid(hold.signature.pod, hold.uid)).state
        return state

    # Questions

    def cause(self, classes: StateClasses, signature: Signature) -> str:
        """Return why a further pod may not be held, empty where it may."""
        answer = classes.admit(self.kind, self.state, signature)
        if not self.holds:
            return "" if answer.holding is not None else refused_by_managers(self.kind.rules, answer.reason)
        if self.policy == "observe":
            return RESERVED
        if answer.holding is None:
            alone = classes.admit(self.kind, self.base, signature)
            return RESERVED if alone.holding is not None else refused_by_managers(self.kind.rules, alone.reason)
        # A hold that does not fit any more may still start, as the kubelet decides: nothing can be promised beside it.
        if not all(hold.fits for hold in self.holds.values()) or self._has_unknown_plans:
            return RESERVED
        coming = [*self._coming(), Coming(signature, answer.holding)]
        return "" if self._fits_in_any_order(classes, coming) else RESERVED

    def fits_in_any_order(self, classes: StateClasses) -> bool:
        """Whether the holds still fit in any order after the node may have changed. With fewer of them, or some
        admitted first, the earlier proof still holds."""
        if len(self.holds) < 2 or self.proven is self.base:
            return True
        if self._has_unknown_plans or not self._fits_in_any_order(classes, self._coming()):
            return False
        self.proven = self.base
        return True

    @property
    def _has_unknown_plans(self) -> bool:
        """Whether a bound pod has a plan of an earlier service, or none: its CPUs are only known once the node has
        reported it."""
        return self.policy == "honour" and any(hold.bound and hold.plan is None for hold in self.holds.values())

    def _coming(self) -> list[Coming]:
        """Return the pods on their way with their plans; the plan of one that is not bound is what it would get now."""
        return [
            Coming(hold.signature, hold.plan or (hold.answer.holding if hold.answer is not None else None))
            for hold in self.holds.values()
        ]

    def _fits_in_any_order(self, classes: StateClasses, coming: list[Coming]) -> bool:
        """Whether all pods are admitted in every order. False also where there are too many orders."""
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
        """Return the requests of all pods on their way, by resource."""
        total: dict[str, int] = {}
        for hold in self.holds.values():
            for name, amount in self.kind.needs(hold.signature).asked.items():
                total[name] = total.get(name, 0) + amount
        return total


def _has_few_orders(coming: Counter[Signature]) -> bool:
    """Whether there are at most `_MOST_ORDERS` orders of these pods."""
    place, orders = 0, 1  # the multinomial coefficient, factor by factor
    for times in coming.values():
        for one in range(1, times + 1):
            place += 1
            orders = orders * place // one
            if orders > _MOST_ORDERS:
                return False
    return True


def _orders(left: Counter[Signature], length: int) -> Iterator[tuple[Signature, ...]]:
    """Yield all orders; equal pods are interchangeable."""
    if not length:
        yield ()
        return
    for signature in list(left):
        if left[signature]:
            left[signature] -= 1
            for rest in _orders(left, length - 1):
                yield (signature, *rest)
            left[signature] += 1
