"""The cluster as its nodes will answer: filter, choice and holds, without I/O. The clock is a number that is passed in.

    model = ClusterModel()
    model.add_node(name, rules, state, policy="compare")       # what a node's replica has; again, to replace it
    model.confirm_node(name, confirmed=False)                  # stream silent, not ready, other version: fails closed

    model.choose(pod, now)                      # -> the best node, which is held for the pod; to nominate ahead
    model.filter(pod, names, now)               # -> Filtered(nodes, failed, unresolvable); one node left: it is held
    model.prioritize(pod, names, now)           # -> {name: 0 or 10}; the choice is held
    model.advise(pod, names, now)               # -> {name: 0 to 10}; all that take the pod are held until bind
    model.preempt(pod, now, states=..., running=..., below=...)  # -> Eviction(node, victims): who leaves
    model.bind(uid, name, now, pod)             # -> BindVerdict(error, plan): may the Binding be written?
    model.plan(uid)                             # what each container is to have, for a node that takes plans
    model.unbind(uid)                           # the API server refused the Binding
    model.assigned(pod, name, now)              # the watch shows a nodeName: others' pods, and all after a restart
    model.deleted(uid, now)                     # the watch says that the pod is gone

    model.admitted(name, uid, state, now)       # -> Told: the journal says so; `state` is the replica's after it
    model.refused(name, uid, state, now)        # -> Told
    model.removed(name, uid, state)
    model.changed(name, state)                  # anything else: a resize, other devices, a state that was adopted
    model.remove_node(name)
    model.expire(now)                           # -> UIDs of holds that nobody came back for

Pods that want nothing for themselves pass unchanged and without work, whatever is known of nodes; all others are only
sent where the node's own state says yes. A pod is known by its UID.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from podslice.api.pod.spec import Pod
from podslice.cluster.model.binding_outcomes import BindingOutcome, BindVerdict, OutcomeKind
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

BEST_SCORE = 10
_NO_HOLD = "the node held for the pod is gone, and it does not fit any more: "
_UNKNOWN_POD = "nothing is known of the pod"


class ClusterModel:
    """All nodes that tell their state, and the pods on their way to them. `counts`: what became of holds."""

    def __init__(self, limits: ModelLimits | None = None) -> None:
        self.limits = limits or ModelLimits()
        self.counts: Counter[str] = Counter()
        self.classes = StateClasses(memory=self.limits.memory, signatures=self.limits.signatures)
        self.verdicts = Verdicts(self.classes, self.limits)
        self._nodes = self.verdicts.nodes
        self._held = HeldPods(self.classes, self.verdicts, self.limits, self.counts)

    # Nodes

    def add_node(self, name: str, rules: NodeRules, state: NodeState, *, policy: PlanPolicy = "compare") -> None:
        """A node is there and stands for this state; or it has begun anew, and pods on their way to it still are."""
        node = self._nodes.get(name)
        if node is None:
            kind = self.classes.join(rules, state)
            node = self._nodes[name] = HeldNode(name, kind, kind.answers.state_of(state), policy)
        node.policy, node.confirmed = policy, True
        self._adopt(node, rules, state)

    def confirm_node(self, name: str, *, confirmed: bool) -> None:
        """Whether anybody stands for the state of a node now."""
        node = self._nodes.get(name)
        if node is not None and node.confirmed != confirmed:
            node.confirmed = confirmed
            self.verdicts.write(node)

    def remove_node(self, name: str) -> None:
        """The node is gone, and with it the pods on their way to it."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._held.remove_node(node)
        self.verdicts.remove(node)
        self.classes.leave(node.kind)

    def _adopt(self, node: HeldNode, rules: NodeRules, state: NodeState) -> None:
        """What the node says of itself is true from now on."""
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
        """The node has admitted a pod and is in this state now. Whatever it says, a pod on its way to another node is:
        only the API server's word moves it. `as_planned`: it says that it took a plan, which may be one of a service
        before this one."""
        node = self._nodes[name]
        self._held.settle(uid, name)
        hold = node.holds.get(uid)
        found = node.kind.answers.holding_of(state, uid)._replace(uid="")
        told = BindingOutcome("foreign") if hold is None else self._compare(node, hold, found, as_planned=as_planned)
        if hold is not None:
            self._held.end(node, uid)
        self.counts[told.fate] += 1
        if told.fate == "disputed" and hold is not None:
            self.verdicts.distrust(hold.signature, node, now)
        proven = node.proven is node.base and told.fate == "agreed"
        self._adopt(node, node.kind.rules, state)
        node.proven = node.base if proven else None
        return told

    def _compare(self, node: HeldNode, hold: Hold, found: PodHolding, *, as_planned: bool) -> BindingOutcome:
        alone = self.classes.admit(node.kind, node.base, hold.signature).holding
        if alone is not None and alone._replace(uid="") == found:
            return BindingOutcome("agreed")
        if node.policy == "honour" and (as_planned if hold.plan is None else hold.plan._replace(uid="") == found):
            return BindingOutcome("honoured")
        return BindingOutcome("disputed", alone, found)

    def apply_refusal(self, name: str, uid: str, state: NodeState, now: float) -> BindingOutcome:
        """The node has refused a pod and is in this state now."""
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
        """A pod is gone from the node, which is in this state now."""
        self._held.settle(uid, name)
        hold = self._held.pods.get(uid)
        if hold is not None and hold.node == name:
            self._held.end(self._nodes[name], uid)
        self.apply_change(name, state)

    def apply_change(self, name: str, state: NodeState, rules: NodeRules | None = None) -> None:
        """The node is in this state now, whatever happened; with other `rules` where its machine changed."""
        node = self._nodes[name]
        self._adopt(node, rules or node.kind.rules, state)

    # The scheduler

    def filter(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> Filtered:
        """Which of these nodes take the pod. It is held where one is left; whatever was held for it falls."""
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
        if found.nodes and waits:
            self._held.drop(uid)
        if len(found.nodes) == 1:
            self._held.hold(uid, signature, found.nodes[0], now, group=group)
        elif group and not found.nodes:
            self._held.mark_short(group, now)
        return found

    def prioritize(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> dict[str, int]:
        """The choice among nodes that passed every filter gets all points, and is held."""
        scores = dict.fromkeys(names, 0)
        chosen = self.choose(pod, now, names=names, group=group) if self._wants(pod) else None
        if chosen is not None:
            scores[chosen] = BEST_SCORE
        return scores

    def advise(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> dict[str, int]:
        """The less of a node the pod wastes the more points it has, 10 the best; `limits.best` of them have some, and
        the pod is held on each of these until somebody else has chosen."""
        scores = dict.fromkeys(names, 0)
        signature = self.classes.signature(pod)
        if not self._can_be_exclusive(signature):
            return scores
        self.expire(now)
        self._held.drop(pod.metadata.uid)
        for place, name in self.verdicts.rank_places(signature, names):
            scores[name] = max(1, BEST_SCORE - place)
            self._held.hold(pod.metadata.uid, signature, name, now, group=group)
        return scores

    def choose(self, pod: Pod, now: float, *, names: Sequence[str] | None = None, group: str = "") -> str | None:
        """The best proven node, of these or of all, that gives the pod something for itself, and is held for it. None
        where there is none; the filter may still name nodes where it would only share."""
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
        """The pods with a priority `below` that leave the node where that costs least, so that this one fits; what they
        leave is held for it. `states` are the replicas', `running` the pods of a node with their priorities. At most
        `limits.evictions` nodes are looked at, those with most CPUs on one NUMA node first; none that is kept for
        another pod whose victims have yet to leave."""
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
        """Whether a node in this state would admit the pod once these have left it, with all that are on their way."""
        node = self._nodes.get(name)
        if node is None or not node.confirmed:
            return False
        rules = node.kind.rules
        for uid in victims:
            state = release(rules, state, uid)
        state = node.with_holds(state, but={pod.metadata.uid, *victims})
        return decide(rules, state, pod).refusal is None

    def await_room(self, pod: Pod, name: str, now: float) -> bool:
        """The scheduler has made room for the pod on a node: what its victims leave is held for it. False where the
        pod gets nothing for itself there, or nothing is known of the node."""
        uid, signature = pod.metadata.uid, self.classes.signature(pod)
        if name not in self._nodes or not self._can_be_exclusive(signature):
            return False
        self._held.drop(uid)
        self._held.hold(uid, signature, name, now, group="")
        return self._held.await_victims(uid, now)

    def keep_room(self, uid: str, now: float) -> bool:
        """Victims are still leaving: their room is kept a while longer. False where nothing is held for the pod."""
        return self._held.keep_room(uid, now)

    def wants_exclusive(self, pod: Pod) -> bool:
        """True for a pod that could get something for itself on some node; others are none of our business."""
        return self._wants(pod)

    def bind(self, uid: str, name: str, now: float, pod: Pod | None = None) -> BindVerdict:
        """Whether a pod may be bound to a node now; then it stays held until the node has spoken. Where its hold is
        gone it is let in again, if `pod` is given and the node still takes it."""
        self._held.settle(uid, name)
        hold = self._held.pods.get(uid)
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
        if not hold.fits or not (hold.bound or node.fits_in_any_order(self.classes)):
            self._held.drop(uid)
            return BindVerdict(_NO_HOLD + RESERVED)
        self._held.bind(hold)
        self.counts["bound"] += 1
        return BindVerdict("", node.fix_plan(self.classes, hold))

    def plan(self, uid: str) -> Holding | None:
        """What each container of a pod on its way is to have, for a node that takes plans; None where it would be
        refused."""
        hold = self._held.pods.get(uid)
        return None if hold is None else self._nodes[hold.node].plan(self.classes, uid)

    def unbind(self, uid: str) -> None:
        """The API server refused the Binding: the pod is not on its way."""
        self._held.drop(uid)

    # Pods

    def apply_assignment(self, pod: Pod, name: str, now: float) -> None:
        """The API server says that the pod is on a node, whoever sent it: it is held until the node has spoken."""
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
        """The pod is gone from the API server. What its node may still be about to start stays held for a while."""
        self._held.apply_deletion(uid, now)

    def expire(self, now: float) -> list[str]:
        """Drop what nobody came back for."""
        gone = self._held.expire(now)
        self.verdicts.trust(now)
        return gone

    def has_node(self, name: str) -> bool:
        """True for a node that has told its state."""
        return name in self._nodes

    def names(self) -> list[str]:
        """All nodes that there are now."""
        return list(self._nodes)

    def node(self, name: str) -> HeldNode:
        """What is known of a node. Raises `KeyError`."""
        return self._nodes[name]

    def hold_of(self, uid: str) -> Hold | None:
        """Where a pod is on its way to; None for one that nothing is held for."""
        return self._held.pods.get(uid)

    def holds(self) -> tuple[Hold, ...]:
        """The pods on their way, in the order in which they were held."""
        return tuple(self._held.pods.values())

    # Whom it concerns

    def _wants(self, pod: Pod) -> bool:
        return self._can_be_exclusive(self.classes.signature(pod))

    def _gets_exclusive(self, name: str, pod: Pod) -> bool:
        """True where such a pod has something for itself on this node, as far as anybody knows."""
        signature, node = self.classes.signature(pod), self._nodes.get(name)
        return self._can_be_exclusive(signature) and (node is None or node.kind.needs(signature).exclusive)

    def _can_be_exclusive(self, signature: Signature) -> bool:
        wants = signature.wants
        return wants.cpus or wants.devices or (wants.memory and self.classes.binds_memory)


def _owners(state: NodeState) -> Iterator[str]:
    """UIDs of pods that have something for themselves."""
    yield from state.cpu.assignments
    yield from state.cpu.bubbles
    yield from state.memory.assignments
    yield from state.memory.pod_assignments
    yield from state.device.records
