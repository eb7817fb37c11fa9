"""The cluster as its nodes will answer: filter, choice and holds, without I/O. The clock is a number that is passed in.

    model = ClusterModel()
    model.add_node(name, rules, state, policy="compare")       # what a node's replica has; again, to replace it
    model.confirm_node(name, confirmed=False)                  # stream silent, not ready, other version: fails closed

    model.choose(pod, now)                      # -> the best node, which is held for the pod; to nominate ahead
    model.filter(pod, names, now)               # -> Filtered(nodes, failed, unresolvable); one node left: it is held
    model.prioritize(pod, names, now)           # -> {name: 0 or 10}; the choice is held
    model.preempt(pod, now, states=..., running=...)  # -> Eviction(node, victims): who would have to leave
    model.bind(uid, name, now, pod)             # -> BindVerdict(error, plan): may the Binding be written?
    model.plan(uid)                             # what each container is to have, for a node that takes plans
    model.unbind(uid)                           # the API server refused the Binding
    model.assigned(pod, name, now)              # the watch shows a nodeName: others' pods, and all after a restart
    model.deleted(uid, now)                     # the watch says that the pod is gone

    model.admitted(name, uid, state, now, pod)  # -> Told: the journal says so; `state` is the replica's after it
    model.refused(name, uid, state, now)        # -> Told
    model.removed(name, uid, state)
    model.changed(name, state)                  # anything else: a resize, other devices, a state that was adopted
    model.remove_node(name)
    model.expire(now)                           # -> UIDs of holds that nobody came back for

Pods that want nothing for themselves pass unchanged and without work, whatever is known of nodes; all others are only
sent where the node's own state says yes. A pod is known by its UID.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from podslice.core.answers import PodHolding
from podslice.core.cluster.classes import StateClasses
from podslice.core.cluster.columns import Ints, NodeTable
from podslice.core.cluster.eviction import Evictable, Eviction, cheapest, victims_on
from podslice.core.cluster.holds import FOREVER, RESERVED, HeldNode, Hold, PlanPolicy
from podslice.core.cluster.signature import Signature
from podslice.core.cluster.verdicts import FAR, NOT_CONFIRMED, PROVEN, SHARED, UNKNOWN, SignatureColumn
from podslice.core.decide import shape_of
from podslice.core.holding import Holding
from podslice.core.managers.node_rules import NodeRules
from podslice.core.managers.node_state import NodeState
from podslice.core.pod.spec import Pod

BEST_SCORE = 10
QUARANTINED = "answered such a pod otherwise than expected a moment ago"
_NO_HOLD = "the node held for the pod is gone, and it does not fit any more: "
_UNKNOWN_POD = "nothing is known of the pod"
_NONE: Mapping[str, str] = MappingProxyType({})
Fate: TypeAlias = Literal["agreed", "honoured", "foreign", "disputed", "refused"]
"""What the journal said of a pod: the node came to what was expected, by itself or by the plan; nobody here had sent
the pod; it came to something else; it refused a pod that was sent."""


class Filtered(NamedTuple):
    """`nodes` are proven to take the pod, best first. Of those that do not, the cause: `failed` where pods that leave
    could help as the scheduler sees it, `unresolvable` where only the node's topology is in the way or nobody stands
    for its state. Nodes beyond the best ones that were asked for are in none of them."""

    nodes: list[str]
    failed: Mapping[str, str] = _NONE
    unresolvable: Mapping[str, str] = _NONE


class BindVerdict(NamedTuple):
    """`error` empty: the Binding may be written. `plan` is what the pod will have, None where it wants nothing."""

    error: str = ""
    plan: PodHolding | None = None


class Told(NamedTuple):
    """What became of a pod on a node. `expected` and `found`: what it was to have and what it has, if it differs."""

    fate: Fate
    expected: PodHolding | None = None
    found: PodHolding | None = None


class ModelLimits(NamedTuple):
    """`best`: nodes that a filter names at most. `budget`: how many nodes are asked for a filter, of which nothing is
    remembered, before it is content with those it has. `memory`: bytes of remembered answers. `signatures`, `columns`:
    how many kinds of pods are known, and of how many there is a verdict on every node. Seconds: `hold` and `group_hold`
    until a hold falls, `quarantine` until a node that did otherwise is trusted with such pods again, `deleted` until a
    pod that was deleted before its node knew of it is forgotten, `eviction_hold` until victims have left. `evictions`:
    nodes that are looked at for victims."""

    best: int = 16
    budget: int = 8
    memory: int = 64 << 20
    signatures: int = 4096
    columns: int = 64
    hold: float = 15.0
    group_hold: float = 310.0
    quarantine: float = 60.0
    deleted: float = 30.0
    eviction_hold: float = 90.0
    evictions: int = 16


class ClusterModel:
    """All nodes that tell their state, and the pods on their way to them. `counts`: what became of holds."""

    def __init__(self, limits: ModelLimits | None = None) -> None:
        self.limits = limits or ModelLimits()
        self.counts: Counter[str] = Counter()
        self.classes = StateClasses(memory=self.limits.memory, signatures=self.limits.signatures)
        self.table = NodeTable()
        self._nodes: dict[str, HeldNode] = {}
        self._by_row: dict[int, HeldNode] = {}
        self._holds: dict[str, Hold] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._groups: dict[str, set[str]] = {}
        self._quarantined: dict[tuple[int, str], float] = {}
        self._evicting: set[str] = set()
        """UIDs of pods that are held where others have yet to leave."""
        self._columns: OrderedDict[int, SignatureColumn] = OrderedDict()

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
            self._write(node)

    def remove_node(self, name: str) -> None:
        """The node is gone, and with it the pods on their way to it."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        for uid in list(node.holds):
            self._forget(self._holds.pop(uid))
        del self._by_row[node.row]
        self.table.remove(name)
        self.classes.leave(node.kind)

    def _adopt(self, node: HeldNode, rules: NodeRules, state: NodeState) -> None:
        """What the node says of itself is true from now on."""
        kind = self.classes.join(rules, state)
        self.classes.leave(node.kind)
        node.kind, node.base = kind, kind.answers.state_of(state)
        node.owners = frozenset(_owners(state))
        node.sums = kind.sums(state)
        for uid in [uid for uid in node.holds if uid in node.owners]:
            self._forget(node.holds.pop(uid))
            del self._holds[uid]
        node.replay(self.classes)
        self._write(node)

    def _write(self, node: HeldNode) -> None:
        table = self.table
        row = node.row = table.add(node.name, node.kind.number, node.kind.room)
        self._by_row[row] = node
        table.confirmed[row] = node.confirmed
        table.write_sums(row, node.sums, node.asked())
        table.write(row, node.kind.counts(node.state))

    # The journal

    def admitted(self, name: str, uid: str, state: NodeState, now: float, pod: Pod | None = None) -> Told:
        """The node has admitted a pod and is in this state now."""
        node = self._nodes[name]
        hold = self._holds.get(uid)
        if hold is not None and hold.node != name:
            self._drop(uid)
            hold = None
        found = node.kind.answers.holding_of(state, uid)._replace(uid="")
        told = Told("foreign") if hold is None else self._compared(node, hold, found)
        if hold is not None:
            self._forget(node.holds.pop(uid))
            del self._holds[uid]
        self.counts[told.fate] += 1
        if told.fate == "disputed" and hold is not None:
            self._quarantine(node, hold, now)
        proven = node.proven is node.base and told.fate == "agreed"
        self._adopt(node, node.kind.rules, state)
        node.proven = node.base if proven else None
        return told

    def _compared(self, node: HeldNode, hold: Hold, found: PodHolding) -> Told:
        alone = self.classes.admit(node.kind, node.base, hold.signature).holding
        planned = None if hold.answer is None else hold.answer.holding
        if alone is not None and alone._replace(uid="") == found:
            return Told("agreed")
        if node.policy == "honour" and planned is not None and planned._replace(uid="") == found:
            return Told("honoured")
        return Told("disputed", alone, found)

    def refused(self, name: str, uid: str, state: NodeState, now: float) -> Told:
        """The node has refused a pod and is in this state now."""
        node, hold = self._nodes[name], self._holds.get(uid)
        if hold is None or hold.node != name:
            self._adopt(node, node.kind.rules, state)
            return Told("foreign")
        self.counts["refused"] += 1
        self._quarantine(node, hold, now)
        self._forget(node.holds.pop(uid))
        del self._holds[uid]
        self._adopt(node, node.kind.rules, state)
        return Told("refused", None if hold.answer is None else hold.answer.holding)

    def removed(self, name: str, uid: str, state: NodeState) -> None:
        """A pod is gone from the node, which is in this state now."""
        hold = self._holds.get(uid)
        if hold is not None and hold.node == name:
            self._forget(self._nodes[name].holds.pop(uid))
            del self._holds[uid]
        self.changed(name, state)

    def changed(self, name: str, state: NodeState, rules: NodeRules | None = None) -> None:
        """The node is in this state now, whatever happened; with other `rules` where its machine changed."""
        node = self._nodes[name]
        self._adopt(node, rules or node.kind.rules, state)

    # The scheduler

    def filter(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> Filtered:
        """Which of these nodes take the pod. It is held where one is left; whatever was held for it falls."""
        signature = self.classes.signature(pod)
        if not self._concerns(signature):
            return Filtered(list(names))
        self.expire(now)
        uid = pod.metadata.uid
        self._begin(uid, group)
        if len(names) == 1 and self._stays(uid, names[0], now):
            return Filtered([names[0]])
        waits = uid in self._evicting and not self._holds[uid].fits
        if not waits:
            self._drop(uid)
        rows = self._rows(names)
        column = self._column(signature)
        found = [self.table.names[row] for row in self._best(column, rows[rows >= 0], self.limits.best)]
        if found and waits:
            self._drop(uid)
        if len(found) == 1:
            self._hold(uid, signature, found[0], now, group=group)
        return self._filtered(column, names, rows, found)

    def prioritize(self, pod: Pod, names: Sequence[str], now: float, *, group: str = "") -> dict[str, int]:
        """The choice among nodes that passed every filter gets all points, and is held."""
        scores = dict.fromkeys(names, 0)
        chosen = self.choose(pod, now, names=names, group=group) if self._wants(pod) else None
        if chosen is not None:
            scores[chosen] = BEST_SCORE
        return scores

    def choose(self, pod: Pod, now: float, *, names: Sequence[str] | None = None, group: str = "") -> str | None:
        """The best proven node, of these or of all, that gives the pod something for itself, and is held for it. None
        where there is none; the filter may still name nodes where it would only share."""
        signature = self.classes.signature(pod)
        if not self._concerns(signature):
            return None
        self.expire(now)
        self._drop(pod.metadata.uid)
        rows = np.arange(self.table.count, dtype=np.int64) if names is None else self._rows(names)
        best = self._best(self._column(signature), rows[rows >= 0], 1, most=SHARED)
        if not best:
            return None
        name = self.table.names[best[0]]
        self._hold(pod.metadata.uid, signature, name, now, group=group)
        return name

    def preempt(
        self,
        pod: Pod,
        now: float,
        *,
        states: Callable[[str], NodeState],
        running: Callable[[str], Sequence[Evictable]],
        names: Sequence[str] | None = None,
    ) -> Eviction | None:
        """The pods of lower priority that leave the node where that costs least, so that this one fits; what they leave
        is held for it. `states` are the replicas', `running` the pods of a node with their priorities. At most
        `limits.evictions` nodes are looked at, those with most CPUs on one NUMA node first."""
        signature = self.classes.signature(pod)
        if not self._concerns(signature):
            return None
        uid, below = pod.metadata.uid, pod.spec.priority or 0
        self.expire(now)
        self._drop(uid)
        found = []
        for node in self._refusing(self._column(signature), names):
            state = node.with_holds(states(node.name))
            victims = victims_on(
                node.kind.rules, state, shape_of(node.kind.rules, pod), running(node.name), below=below
            )
            if victims:
                found.append((node.name, victims))
        chosen = cheapest(found)
        if chosen is not None:
            self._hold(uid, signature, chosen.node, now, group="")
            self._until(self._holds[uid], now + self.limits.eviction_hold)
            self._evicting.add(uid)
        return chosen

    def _refusing(self, column: SignatureColumn, names: Sequence[str] | None) -> list[HeldNode]:
        """Nodes that do not take such a pod as they are, and might without some of their pods."""
        rows = np.arange(self.table.count, dtype=np.int64) if names is None else self._rows(names)
        rows = rows[(rows >= 0) & (column.verdict[rows] > UNKNOWN)]
        order = np.argsort(-self.table.cpus[:, rows].max(axis=0), kind="stable")
        nodes = [self._by_row[row] for row in rows[order].tolist()]
        able = [one for one in nodes if not one.kind.needs(column.signature).refusal and one.confirmed]
        return able[: self.limits.evictions]

    def wants(self, pod: Pod) -> bool:
        """True for a pod that could get something for itself on some node; others are none of our business."""
        return self._wants(pod)

    def bind(self, uid: str, name: str, now: float, pod: Pod | None = None) -> BindVerdict:
        """Whether a pod may be bound to a node now; then it stays held until the node has spoken. Where its hold is
        gone it is let in again, if `pod` is given and the node still takes it."""
        hold = self._holds.get(uid)
        if hold is None or hold.node != name:
            if pod is None:
                return BindVerdict(_UNKNOWN_POD)
            if not self._takes_something(name, pod):
                return BindVerdict()
            self.counts["lost"] += 1
            filtered = self.filter(pod, [name], now, group="" if hold is None else hold.group)
            if not filtered.nodes:
                return BindVerdict(_NO_HOLD + (filtered.unresolvable.get(name) or filtered.failed.get(name, "")))
            hold = self._holds[uid]
        if not self._nodes[name].confirmed:
            return BindVerdict(NOT_CONFIRMED)
        if not hold.fits or not (hold.bound or self._nodes[name].stands(self.classes)):
            self._drop(uid)
            return BindVerdict(_NO_HOLD + RESERVED)
        hold.bound, hold.until = True, FOREVER
        self.counts["bound"] += 1
        return BindVerdict("", None if hold.answer is None else hold.answer.holding)

    def plan(self, uid: str) -> Holding | None:
        """What each container of a pod on its way is to have, for a node that takes plans; None where it would be
        refused."""
        hold = self._holds.get(uid)
        return None if hold is None else self._nodes[hold.node].plan(self.classes, uid)

    def unbind(self, uid: str) -> None:
        """The API server refused the Binding: the pod is not on its way."""
        self._drop(uid)

    # Pods

    def assigned(self, pod: Pod, name: str, now: float) -> None:
        """The API server says that the pod is on a node, whoever sent it: it is held until the node has spoken."""
        uid, node, hold = pod.metadata.uid, self._nodes.get(name), self._holds.get(pod.metadata.uid)
        if hold is not None and hold.node == name:
            hold.bound, hold.until = True, FOREVER
            return
        self._drop(uid)
        if node is None or uid in node.owners:
            return
        self._hold(uid, self.classes.signature(pod), name, now, group="", bound=True)

    def deleted(self, uid: str, now: float) -> None:
        """The pod is gone from the API server. What its node may still be about to start stays held for a while."""
        hold = self._holds.get(uid)
        if hold is not None and hold.bound:
            self._until(hold, now + self.limits.deleted)
        else:
            self._drop(uid)

    def expire(self, now: float) -> list[str]:
        """Drop what nobody came back for."""
        gone = []
        while self._deadlines and self._deadlines[0][0] <= now:
            until, uid = heappop(self._deadlines)
            hold = self._holds.get(uid)
            if hold is not None and hold.until == until:
                self._drop(uid)
                self.counts["expired"] += 1
                gone.append(uid)
        for key in [key for key, until in self._quarantined.items() if until <= now]:
            del self._quarantined[key]
        return gone

    def node(self, name: str) -> HeldNode:
        """What is known of a node. Raises `KeyError`."""
        return self._nodes[name]

    def hold_of(self, uid: str) -> Hold | None:
        """Where a pod is on its way to; None for one that nothing is held for."""
        return self._holds.get(uid)

    def held(self) -> tuple[Hold, ...]:
        """The pods on their way, in the order in which they were held."""
        return tuple(self._holds.values())

    # Holds

    def _hold(self, uid: str, signature: Signature, name: str, now: float, *, group: str, bound: bool = False) -> None:
        node = self._nodes[name]
        if not node.kind.needs(signature).exclusive:
            return
        hold = Hold(uid, signature, name, until=FOREVER, group=group, bound=bound)
        node.add(self.classes, hold)
        if bound:
            node.proven = None
        self._holds[uid] = hold
        if not bound:
            self._until(hold, now + (self.limits.group_hold if group else self.limits.hold))
        self._write(node)

    def _until(self, hold: Hold, until: float) -> None:
        hold.until = until
        heappush(self._deadlines, (until, hold.uid))

    def _stays(self, uid: str, name: str, now: float) -> bool:
        """The scheduler asks for the very node that is held."""
        hold = self._holds.get(uid)
        if hold is None or hold.node != name or not hold.fits or not self._nodes[name].confirmed:
            return False
        if not hold.bound and not self._nodes[name].stands(self.classes):
            return False
        if not hold.bound:
            self._until(hold, now + (self.limits.group_hold if hold.group else self.limits.hold))
        return True

    def _drop(self, uid: str) -> None:
        hold = self._holds.pop(uid, None)
        if hold is None:
            return
        node = self._nodes[hold.node]
        del node.holds[uid]
        self._forget(hold)
        node.replay(self.classes)
        self._write(node)

    def _forget(self, hold: Hold) -> None:
        self._evicting.discard(hold.uid)
        members = self._groups.get(hold.group)
        if members is not None and not any(one.group == hold.group for one in self._holds.values()):
            del self._groups[hold.group]

    def _begin(self, uid: str, group: str) -> None:
        """The first member of a group that is filtered again begins another simulation: what is held for it falls."""
        if not group:
            return
        members = self._groups.setdefault(group, set())
        if uid in members:
            for other in [one.uid for one in self._holds.values() if one.group == group and not one.bound]:
                self._drop(other)
            members = self._groups.setdefault(group, set())
            members.clear()
        members.add(uid)

    def _quarantine(self, node: HeldNode, hold: Hold, now: float) -> None:
        self._quarantined[hold.signature.number, node.name] = now + self.limits.quarantine
        self.counts["quarantined"] += 1

    # Verdicts

    def _wants(self, pod: Pod) -> bool:
        return self._concerns(self.classes.signature(pod))

    def _takes_something(self, name: str, pod: Pod) -> bool:
        """True where such a pod has something for itself on this node, as far as anybody knows."""
        signature, node = self.classes.signature(pod), self._nodes.get(name)
        return self._concerns(signature) and (node is None or node.kind.needs(signature).exclusive)

    def _concerns(self, signature: Signature) -> bool:
        wants = signature.wants
        return wants.cpus or wants.devices or (wants.memory and self.classes.binds_memory)

    def _column(self, signature: Signature) -> SignatureColumn:
        column = self._columns.get(signature.number)
        if column is None:
            column = SignatureColumn(signature, self.table, self.classes.numbered)
            self._columns[signature.number] = column
            if len(self._columns) > self.limits.columns:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(signature.number)
        column.refresh()
        return column

    def _rows(self, names: Sequence[str]) -> Ints:
        row = self.table.row
        try:
            return np.fromiter(map(row.__getitem__, names), dtype=np.int64, count=len(names))
        except KeyError:
            return np.array([row.get(name, -1) for name in names], dtype=np.int64)

    def _best(self, column: SignatureColumn, rows: Ints, count: int, *, most: int = FAR) -> list[int]:
        """The best rows that take such a pod and cost less than `most`, the best first."""
        found: list[int] = []
        asked = self.classes.answers.computed
        for row in column.best_first(rows, count, most):
            if self._takes(column, row):
                found.append(row)
            if len(found) == count or (found and self.classes.answers.computed - asked > self.limits.budget):
                break
        return found

    def _takes(self, column: SignatureColumn, row: int) -> bool:
        node = self._by_row[row]
        if (column.signature.number, node.name) in self._quarantined:
            return False
        if column.verdict[row] == PROVEN:
            return True
        cause = node.cause(self.classes, column.signature)
        column.settle(row, cause)
        return not cause

    def _filtered(self, column: SignatureColumn, names: Sequence[str], rows: Ints, found: list[str]) -> Filtered:
        """The answer about these nodes, with the causes of those that refuse."""
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        verdicts = np.where(rows < 0, UNKNOWN, column.verdict[rows])
        for verdict in np.unique(verdicts[verdicts > PROVEN]).tolist():
            cause = column.causes[verdict]
            refused = failed if cause.by_sums else unresolvable
            refused.update(
                dict.fromkeys([names[at] for at in np.flatnonzero(verdicts == verdict).tolist()], cause.text)
            )
        for number, name in self._quarantined:
            if number == column.signature.number and name in self._nodes and name not in failed and name in names:
                unresolvable.setdefault(name, QUARANTINED)
        return Filtered(found, failed, unresolvable)


def _owners(state: NodeState) -> Iterator[str]:
    """UIDs of pods that have something for themselves."""
    yield from state.cpu.assignments
    yield from state.cpu.bubbles
    yield from state.memory.assignments
    yield from state.memory.pod_assignments
    yield from state.device.records
