"""An exact model of the cluster: filter, choice and holds, without I/O. Times are numbers that are passed in.

    model = ClusterModel()
    model.add_node(name, rules, state, policy="compare")       # the state of a node's replica; again, to replace it
    model.confirm_node(name, confirmed=False)                  # stream silent, not ready, other version: fails closed

    model.choose(pod, now)                      # -> the best node, which is held for the pod; to nominate ahead
    model.filter(pod, names, now)               # -> Filtered(nodes, failed, unresolvable); one node left: it is held
    model.prioritize(pod, names, now)           # -> {name: 0 or 10}; the choice is held
    model.advise(pod, names, now)               # -> {name: 0 to 10}; all that take the pod are held until bind
    model.preempt(pod, now, states=..., running=..., below=...)  # -> Eviction(node, victims)
    model.bind(uid, name, now, pod)             # -> BindVerdict(error, plan): may the Binding be written?
    model.plan(uid)                             # the holding of each container, for a node that takes plans
    model.unbind(uid)                           # the API server refused the Binding
    model.apply_assignment(pod, name, now)      # the watch shows a nodeName: also of others' pods, and after a restart
    model.apply_deletion(uid, now)              # the watch says that the pod is gone

    model.apply_admission(name, uid, state, now)  # -> BindingOutcome; `state` is the replica's after the event
    model.apply_refusal(name, uid, state, now)  # -> BindingOutcome
    model.apply_removal(name, uid, state)
    model.apply_change(name, state)             # anything else: a resize, other devices, a state that was adopted
    model.remove_node(name)
    model.expire(now)                           # -> UIDs of pods whose holds expired

Pods without exclusive resources pass every filter, without work, whatever is known of nodes. All others are only sent
where the node's own state admits them. Pods are known by UID.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from podslice.api.pod.spec import Pod
from podslice.cluster.model.classes import StateClasses
from podslice.cluster.model.eviction import Evictable, Eviction, choose_cheapest, find_victims
from podslice.cluster.model.held_pods import HeldPods
from podslice.cluster.model.holds import RESERVED, HeldNode, Hold, PlanPolicy
from podslice.cluster.model.signature_column import NOT_CONFIRMED
from podslice.cluster.model.verdicts import Filtered, ModelLimits, Verdicts
from podslice.node.answers import PodHolding
from podslice.node.decide import decide, release, shape_of
from podslice.node.holding import Holding
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.replica.signature import Signature
from podslice.replica.uids import is_among, pack_uids

__all__ = ["BindVerdict", "BindingOutcome", "ClusterModel", "Filtered", "ModelLimits", "OutcomeKind"]

OutcomeKind: TypeAlias = Literal["agreed", "honoured", "foreign", "disputed", "refused"]
"""How the journal's report of a pod compares with what was expected: equal by the node's own decision (`agreed`) or by
the plan (`honoured`); of a pod that was not sent from here (`foreign`); another holding (`disputed`); a refusal of a
pod that was sent (`refused`)."""
BEST_SCORE = 10
_NO_HOLD = "the node held for the pod is gone, and it does not fit any more: "
_UNKNOWN_POD = "nothing is known of the pod"


class BindVerdict(NamedTuple):
    """Whether a Binding may be written: `error` is empty. `plan` is what the pod will have, None for no exclusive
    resources."""

    error: str = ""
    plan: PodHolding | None = None


class BindingOutcome(NamedTuple):
    """The outcome of a pod on a node. `expected` and `found` are the holdings, where they differ."""

    kind: OutcomeKind
    expected: PodHolding | None = None
    found: PodHolding | None = None


class ClusterModel:
    """All nodes with a known state, and the pods on their way to them. `counts`: binding outcomes and ends of holds."""

    def __init__(self, limits: ModelLimits | None = None) -> None:
        self.limits = limits or ModelLimits()
        self.counts: Counter[str] = Counter()
        self.classes = StateClasses(memory=self.limits.memory, signatures=self.limits.signatures)
        self.verdicts = Verdicts(self.classes, self.limits)
        self._nodes = self.verdicts.nodes
        self._held = HeldPods(self.classes, self.verdicts, self.limits, self.counts)

    # Nodes

    def add_node(self, name: str, rules: NodeRules, state: NodeState, *, policy: PlanPolicy = "compare") -> None:
        """Add a node with its state, or replace the state of one that began anew; pods on their way to it stay."""
        node = self._nodes.get(name)
        if node is None:
            kind = self.classes.join(rules, state)
            node = self._nodes[name] = HeldNode(name, kind, kind.answers.state_of(state), policy)
        node.policy, node.confirmed = policy, True
        self._adopt(node, rules, state)

    def confirm_node(self, name: str, *, confirmed: bool) -> None:
        """Set whether the agent of a node confirms its state now."""
        node = self._nodes.get(name)
        if node is not None and node.confirmed != confirmed:
            node.confirmed = confirmed
            self.verdicts.write(node)

    def remove_node(self, name: str) -> None:
        """Remove a node, and with it the pods on their way to it."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._held.remove_node(node)
        self.verdicts.remove(node)
        self.classes.leave(node.kind)

    def _adopt(self, node: HeldNode, rules: NodeRules, state: NodeState) -> None:
        """Replace a node's state with its own; holds of pods that it has are over."""
        # Join before leave, so that a kind with this node alone keeps its number and its remembered answers.
        kind = self.classes.join(rules, state)
        self.classes.leave(node.kind)
        node.kind, node.base = kind, kind.answers.state_of(state)
        node.owners = pack_uids(dict.fromkeys(_owners(state)))
        for uid in [uid for uid in node.holds if is_among(uid, node.owners)]:
            self._held.settle(uid, node.name)
            self._held.end(node, uid)
        node.replay(self.classes)
        self.verdicts.write(node, kind.sums(state))

    # The journal

    def apply_admission(
        self, name: str, uid: str, state: NodeState, now: float, *, as_planned: bool = False
    ) -> BindingOutcome:
        """Take in that a node has admitted a pod and is in this state now. A hold of the pod on another node stays:
        only the API server can move a pod. `as_planned`: the node used a plan, maybe one of a service before this
        one."""
        node = self._nodes[name]
        self._held.settle(uid, name)
        hold = node.holds.get(uid)
        # Holdings are compared without the UID: answers are shared by equal pods.
        found = node.kind.answers.holding_of(state, uid)._replace(uid="")
        outcome = BindingOutcome("foreign") if hold is None else self._compare(node, hold, found, as_planned=as_planned)
        if hold is not None:
            self._held.end(node, uid)
        self.counts[outcome.kind] += 1
        if outcome.kind == "disputed" and hold is not None:
            self.verdicts.distrust(hold.signature, node, now)
        # A pod admitted as expected was the first of one of the proven orders: the other holds need no new proof.
        proven = node.proven is node.base and outcome.kind == "agreed"
        self._adopt(node, node.kind.rules, state)
        node.proven = node.base if proven else None
        return outcome

    def _compare(self, node: HeldNode, hold: Hold, found: PodHolding, *, as_planned: bool) -> BindingOutcome:
        alone = self.classes.admit(node.kind, node.base, hold.signature).holding
        if alone is not None and alone._replace(uid="") == found:
            return BindingOutcome("agreed")
        if node.policy == "honour" and (as_planned if hold.plan is None else hold.plan._replace(uid="") == found):
            return BindingOutcome("honoured")
        return BindingOutcome("disputed", alone, found)

    def apply_refusal(self, name: str, uid: str, state: NodeState, now: float) -> BindingOutcome:
        """Take in that a node has refused a pod and is in this state now."""
        self._held.settle(uid, name)
        node, hold = self._nodes[name], self._held.pods.get(uid)
        if hold is None or hold.node != name:
            self._adopt(node, node.kind.rules, state)
            return BindingOutcome("foreign")
        self.counts["refused"] += 1
        self.verdicts.distrust(hold.signature, node, now)
        self._held.end(node, uid)
        self._adopt(node, node.kind.rules, state)
        return BindingOutcome("refused", None if hold.answer is None else hold.answer.holding)

    def apply_removal(self, name: str, uid: str, state: NodeState) -> None:
        """Take in that a pod is gone from a node, which is in this state now."""
        self._held.settle(uid, name)
        hold = self._held.pods.get(uid)
        if hold is not None and hold.node == name:
            self._held.end(self._nodes[name], uid)
        self.apply_change(name, state)

    def apply_change(self, name: str, state: NodeState, rules: NodeRules | None = None) -> None:
        """Take in that a node is in this state now; `rules` where its machine changed."""
        node = self._nodes[name]
        self._adopt(node, rules or node.kind.rules, state)

    # The scheduler

    def filter(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> Filtered:
        """Return which of these nodes take the pod. What was held for it is dropped; where one node is left, that is
        held."""
        signature = self.classes.signature(pod)
        if not self._can_be_exclusive(signature):
            return Filtered(list(names))
        self.expire(now)
        uid = pod.metadata.uid
        self._held.begin_simulation(uid, group)
        stays = self._held.pinned_node(uid, names)
        if stays and self._held.keep_hold(uid, stays, now):
            return Filtered([stays])
        waits = self._held.is_awaiting_victims(uid)
        if not waits:
            self._held.drop(uid)
        found = self.verdicts.filter_nodes(signature, names)
        if not found.nodes and self._held.release_short_groups(group):
            found = self.verdicts.filter_nodes(signature, names)
        # The room that victims leave stays held until the pod fits anywhere at all.
        if found.nodes and waits:
            self._held.drop(uid)
        if len(found.nodes) == 1:
            self._held.hold(uid, signature, found.nodes[0], now, group=group)
        elif group and not found.nodes:
            self._held.mark_short(group, now)
        return found

    def prioritize(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> dict[str, int]:
        """Score nodes that passed every filter: the choice gets all points and is held, all others get 0."""
        scores = dict.fromkeys(names, 0)
        chosen = self.choose(pod, now, names=names, group=group) if self._wants(pod) else None
        if chosen is not None:
            scores[chosen] = BEST_SCORE
        return scores

    def advise(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> dict[str, int]:
        """Score nodes by how little the pod wastes, 10 for the best; at most `limits.best` nodes get points. The pod is
        held on each of them until the scheduler has chosen."""
        scores = dict.fromkeys(names, 0)
        signature = self.classes.signature(pod)
        if not self._can_be_exclusive(signature):
            return scores
        self.expire(now)
        self._held.drop(pod.metadata.uid)
        for place, name in self.verdicts.rank_places(signature, names):
            # At least one point, because only nodes with points are held.
            scores[name] = max(1, BEST_SCORE - place)
            self._held.hold(pod.metadata.uid, signature, name, now, group=group)
        return scores

    def choose(self, pod: Pod, now: float, *, names: Sequence[str] | None = None, group: str = "") -> str | None:
        """Choose the best node, of these or of all, that gives the pod exclusive resources, and hold it. None where
        there is none; the filter may still name nodes where the pod would only share CPUs."""
        signature = self.classes.signature(pod)
        if not self._can_be_exclusive(signature):
            return None
        self.expire(now)
        self._held.drop(pod.metadata.uid)
        name = self.verdicts.best(signature, names)
        if name is None and self._held.release_short_groups(group):
            name = self.verdicts.best(signature, names)
        if name is not None:
            self._held.hold(pod.metadata.uid, signature, name, now, group=group)
        return name

    def preempt(
        self,
        pod: Pod,
        now: float,
        *,
        states: Callable[[str], NodeState],
        running: Callable[[str], Sequence[Evictable]],
        below: int,
        names: Sequence[str] | None = None,
    ) -> Eviction | None:
        """Choose the node on which the eviction of pods with a lower priority than `below` costs least and makes room,
        and hold it for the pod.

        - `states`: returns the replica's state of a node; `running`: its pods with their priorities.

        At most `limits.evictions` nodes are looked at, those with most free CPUs on one NUMA node first; none that is
        held for another pod whose victims have yet to leave.
        """
        signature = self.classes.signature(pod)
        if not self._can_be_exclusive(signature):
            return None
        uid = pod.metadata.uid
        self.expire(now)
        self._held.drop(uid)
        found = []
        for node in self.verdicts.refusing_nodes(signature, names):
            here = running(node.name)
            if not all(hold.fits for hold in node.holds.values()):
                continue
            state = node.with_holds(states(node.name))
            victims = find_victims(node.kind.rules, state, shape_of(node.kind.rules, pod), here, below=below)
            if victims or (victims is not None and any(one.going for one in here)):
                found.append((node.name, victims))
        chosen = choose_cheapest(found)
        if chosen is not None:
            self.await_room(pod, chosen.node, now)
        return chosen

    def fits_without(self, pod: Pod, name: str, state: NodeState, victims: Sequence[str]) -> bool:
        """Whether a node in this state would admit the pod once the victims have left, beside all pods on their way."""
        node = self._nodes.get(name)
        if node is None or not node.confirmed:
            return False
        rules = node.kind.rules
        for uid in victims:
            state = release(rules, state, uid)
        state = node.with_holds(state, but={pod.metadata.uid, *victims})
        return decide(rules, state, pod).refusal is None

    def await_room(self, pod: Pod, name: str, now: float) -> bool:
        """Hold a node for a pod for which the scheduler has preempted others there. Returns False where the pod would
        get no exclusive resources, or the node is unknown."""
        uid, signature = pod.metadata.uid, self.classes.signature(pod)
        if name not in self._nodes or not self._can_be_exclusive(signature):
            return False
        self._held.drop(uid)
        self._held.hold(uid, signature, name, now, group="")
        return self._held.await_victims(uid, now)

    def keep_room(self, uid: str, now: float) -> bool:
        """Keep a hold longer while victims are leaving. Returns False where nothing is held for the pod."""
        return self._held.keep_room(uid, now)

    def wants_exclusive(self, pod: Pod) -> bool:
        """Whether the pod could get exclusive resources on some node."""
        return self._wants(pod)

    def bind(self, uid: str, name: str, now: float, pod: Pod | None = None) -> BindVerdict:
        """Return whether a pod may be bound to a node now; its hold then lasts until the node has reported it. A pod
        whose hold is gone is held again, if `pod` is given and the node still takes it."""
        self._held.settle(uid, name)
        hold = self._held.pods.get(uid)
        # The hold expired, or the service started again between filter and bind.
        if hold is None or hold.node != name:
            if pod is None:
                return BindVerdict(_UNKNOWN_POD)
            if not self._gets_exclusive(name, pod):
                return BindVerdict()
            self.counts["lost"] += 1
            filtered = self.filter(pod, [name], now, group="" if hold is None else hold.group)
            if not filtered.nodes:
                return BindVerdict(_NO_HOLD + (filtered.unresolvable.get(name) or filtered.failed.get(name, "")))
            hold = self._held.pods[uid]
        node = self._nodes[name]
        if not node.confirmed:
            return BindVerdict(NOT_CONFIRMED)
        # A repeated Binding is no further pod: the bound one has its place already.
        if not hold.fits or not (hold.bound or node.fits_in_any_order(self.classes)):
            self._held.drop(uid)
            return BindVerdict(_NO_HOLD + RESERVED)
        self._held.bind(hold)
        self.counts["bound"] += 1
        return BindVerdict("", node.fix_plan(self.classes, hold))

    def plan(self, uid: str) -> Holding | None:
        """Return the holding of each container of a pod on its way, for a node that takes plans. None where the node
        would refuse the pod."""
        hold = self._held.pods.get(uid)
        return None if hold is None else self._nodes[hold.node].plan(self.classes, uid)

    def unbind(self, uid: str) -> None:
        """Drop the hold of a pod whose Binding was refused."""
        self._held.drop(uid)

    # Pods

    def apply_assignment(self, pod: Pod, name: str, now: float) -> None:
        """Take in that a pod is bound to a node, by any scheduler: it is held until the node has reported it."""
        self._held.settle(pod.metadata.uid, name)
        uid, node, hold = pod.metadata.uid, self._nodes.get(name), self._held.pods.get(pod.metadata.uid)
        if hold is not None and hold.node == name:
            self._held.bind(hold)
            return
        self._held.drop(uid)
        if node is None or is_among(uid, node.owners):
            return
        self._held.hold(uid, self.classes.signature(pod), name, now, group="", bound=True)

    def apply_deletion(self, uid: str, now: float) -> None:
        """Take in that a pod is gone from the API server. The hold of a bound one stays a while, because its node may
        still start it."""
        self._held.apply_deletion(uid, now)

    def expire(self, now: float) -> list[str]:
        """Drop the holds whose time is over, and return the UIDs of their pods."""
        gone = self._held.expire(now)
        self.verdicts.trust(now)
        return gone

    def has_node(self, name: str) -> bool:
        """Whether the state of a node is known."""
        return name in self._nodes

    def names(self) -> list[str]:
        """Return the names of all nodes."""
        return list(self._nodes)

    def node(self, name: str) -> HeldNode:
        """Return a node with its holds. Raises `KeyError`."""
        return self._nodes[name]

    def hold_of(self, uid: str) -> Hold | None:
        """Return the hold of a pod, None where there is none."""
        return self._held.pods.get(uid)

    def holds(self) -> tuple[Hold, ...]:
        """Return the holds of all pods on their way, the earliest first."""
        return tuple(self._held.pods.values())

    # Exclusive resources

    def _wants(self, pod: Pod) -> bool:
        return self._can_be_exclusive(self.classes.signature(pod))

    def _gets_exclusive(self, name: str, pod: Pod) -> bool:
        """Whether such a pod gets exclusive resources on this node; True for an unknown node."""
        signature, node = self.classes.signature(pod), self._nodes.get(name)
        return self._can_be_exclusive(signature) and (node is None or node.kind.needs(signature).exclusive)

    def _can_be_exclusive(self, signature: Signature) -> bool:
        wants = signature.wants
        return wants.cpus or wants.devices or (wants.memory and self.classes.binds_memory)


def _owners(state: NodeState) -> Iterator[str]:
    """Yield the UIDs of pods that hold exclusive resources."""
    yield from state.cpu.assignments
    yield from state.cpu.pod_cpus
    yield from state.memory.assignments
    yield from state.memory.pod_assignments
    yield from state.device.records
