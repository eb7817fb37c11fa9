"""What the service knows and decides: the model of all nodes, fed by watches and journals, asked by the scheduler.

One object on one event loop; nothing here waits for anybody. The model is pure (`cluster.model.model`), the clock
is given, and whoever calls the API server does so with what `filter`, `bind` and `Nominator` say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from podslice.cluster.cluster_pods import ClusterPods
from podslice.cluster.extender.eligible import Places
from podslice.cluster.extender.messages import BindRequest, FilterAnswer, FilterRequest, NodeVictims, PreemptRequest
from podslice.cluster.loop_turn import LoopTurn
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import BindingOutcome, BindVerdict, ClusterModel
from podslice.node.answers import with_uid
from podslice.node.state import NodeState
from podslice.replica.events import PodAdmitted, PodRefused, PodRemoved, Stamped
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.stream_messages import PlanGiven
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_pod
from podslice.service.listeners import Listeners
from podslice.service.podlist import ApiError
from podslice.values.errors import PodsliceError

BOUND_ALREADY = "the pod is bound already, to node "
NOT_READABLE = "the pod cannot be read: "
NOTHING_AHEAD: Mapping[str, str] = MappingProxyType({})
MOST_TRIED = 16
"""Candidates of a preemption that are looked at: each costs a decision."""


class NodeReport(NamedTuple):
    """What a node said of a pod, beside what was expected."""

    node: str
    uid: str
    told: BindingOutcome

    @property
    def is_dispute(self) -> bool:
        """Whether the node did otherwise than expected."""
        return self.told.fate in ("disputed", "refused")


class PlacementEvents:
    """What `Placements` announces; `cluster.wiring` says who hears it."""

    def __init__(self) -> None:
        self.pending = Listeners[ScheduledPod]()
        """A pod waits for a node."""
        self.room_reserved = Listeners[ScheduledPod, str]()
        """The scheduler has preempted pods on a node for this pod, and the model holds their room for it."""
        self.settled = Listeners[str]()
        """The pod of this UID waits no longer, or waits anew: what was nominated for it counts no more."""
        self.refused = Listeners[ScheduledPod, Sequence[str]]()
        """None of the nodes that the scheduler named takes the pod."""
        self.room_freed = Listeners[[]]()
        """Something may have become free on some node."""
        self.binding_outcome = Listeners[NodeReport]()
        """A node has reported what became of a pod that was sent to it."""


class Placements:
    """`pods` are those of the watch by UID. With `advise` the scheduler decides among nodes that get points."""

    def __init__(
        self,
        model: ClusterModel,
        events: PlacementEvents,
        *,
        schedulers: frozenset[str],
        clock: Callable[[], float],
        policy: PlanPolicy = "compare",
        advise: bool = False,
    ) -> None:
        self.model, self.events = model, events
        self.places = Places()
        self.pods = ClusterPods()
        self.replicas: dict[str, Replica] = {}
        self._mirrors: dict[str, ScheduledPod] = {}
        """Mirrors by the UID of their static pod."""
        self._schedulers = schedulers
        self._clock = clock
        self._policy = policy
        self._points = model.advise if advise else model.prioritize
        self._trusted = 0

    # What watches say

    def pod_changed(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """A pod came, changed or went."""
        for pod in (old, new):
            if pod is not None:
                self._check_mirror(pod)
        if new is None or new.ended:
            gone = new or old
            if gone is not None and gone.mirror:
                self._mirrors.pop(gone.node_uid, None)
            if gone is not None and (self.pods.pop(gone.uid, None) or old) is not None:
                self.events.settled(gone.uid)
                self.model.apply_deletion(gone.node_uid, self._clock())
                self.events.room_freed()
            return
        self.pods[new.uid] = new
        if new.node:
            if old is None or not old.node:
                self._expect_bound(new)
            elif self._is_on_node(new):
                self.pods.rest(new.uid)
        elif self._is_ours(new):
            if self.model.hold_of(new.uid) is None:
                self.events.settled(new.uid)
                if self._reserves_room(new):
                    self.events.room_reserved(new, new.nominated)
                else:
                    self.events.pending(new)
        else:
            self.events.settled(new.uid)

    def _check_mirror(self, pod: ScheduledPod) -> None:
        """A pod that has the UID of another pod of the API server for a static pod's is no mirror."""
        claimant = self._mirrors.pop(pod.uid, None)
        if claimant is not None and claimant.uid != pod.uid:
            _demote_mirror(claimant)
            self.model.unbind(pod.uid)
        if pod.mirror and pod.node_uid != pod.uid and pod.node_uid in self.pods:
            _demote_mirror(pod)
        elif pod.mirror:
            self._mirrors[pod.node_uid] = pod

    def drop_missed(self, began: float) -> None:
        """All pods that there are since this moment were listed anew. What was bound before and is not among them went
        while the watch was away, and is not coming any more."""
        for hold in self.model.holds():
            if hold.bound and hold.since < began and hold.uid not in self.pods:
                self.model.apply_deletion(hold.uid, self._clock())

    def _reserves_room(self, pod: ScheduledPod) -> bool:
        """The scheduler found no node for the pod, and has others leave one."""
        if not (pod.refused and self.model.has_node(pod.nominated)):
            return False
        try:
            return self.model.await_room(pod.pod, pod.nominated, self._clock())
        except PodsliceError:
            return False

    def is_waiting(self, pod: ScheduledPod) -> bool:
        """True for a pod that wants a node from a scheduler of ours and has none."""
        return not pod.node and self._is_ours(pod)

    def _is_ours(self, pod: ScheduledPod) -> bool:
        return pod.scheduler in self._schedulers and not (pod.gated or pod.deleting)

    def _expect_bound(self, pod: ScheduledPod) -> None:
        """The pod is bound, by whomever: until its node has spoken it is expected there."""
        self.events.settled(pod.uid)
        hold = self.model.hold_of(pod.uid)
        if hold is not None and hold.node != pod.node:
            self.model.unbind(pod.uid)
        self._expect(pod)

    def _expect(self, pod: ScheduledPod) -> None:
        """The pod counts on its node before the node has spoken of it. What its specification says is not needed
        afterwards."""
        if not self.model.has_node(pod.node):
            return
        if self._is_on_node(pod):
            self.pods.rest(pod.uid)
            return
        try:
            self.model.apply_assignment(with_uid(pod.pod, pod.node_uid), pod.node, self._clock())
        except PodsliceError:
            return

    def _is_on_node(self, pod: ScheduledPod) -> bool:
        """The node has taken the pod in, as far as it is modelled."""
        replica = self.replicas.get(pod.node)
        return replica is not None and self.model.has_node(pod.node) and replica.has(pod.node_uid)

    def node_changed(self, old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        """A node came, changed or went."""
        if new is not None:
            self.places.put(new)
            replica = self.replicas.get(new.name)
            if replica is not None and not self.model.has_node(new.name):
                self._add(new.name, replica)
            self.events.room_freed()
        elif old is not None:
            self.places.drop(old.name)
            self.model.remove_node(old.name)
            self.replicas.pop(old.name, None)

    # What nodes say

    def apply_event(self, name: str, stamped: Stamped, applied: ApplyResult, replica: Replica) -> None:
        """A node's event was taken in by its replica. What is not proven is told, and counts for nothing."""
        self.replicas[name] = replica
        if name not in self.places.nodes or applied.outcome == "doubled":
            return
        if applied.outcome == "adopted" or not self.model.has_node(name):
            self._add(name, replica)
        elif applied.outcome == "equal":
            self._event(name, stamped, replica)
        self.confirm(name, confirmed=replica.proven)

    def confirm(self, name: str, *, confirmed: bool) -> None:
        """Whether the node is heard and agrees; where not, it takes no pods that want something for themselves."""
        if self._set_confirmed(name, confirmed=confirmed):
            self.events.room_freed()

    def _set_confirmed(self, name: str, *, confirmed: bool) -> bool:
        """True where it takes such pods again."""
        if not self.model.has_node(name) or self.model.node(name).confirmed == confirmed:
            return False
        self.model.confirm_node(name, confirmed=confirmed)
        return confirmed

    async def confirm_all(self, fresh: Callable[[str], bool]) -> None:
        """The same for every node; most have not changed, and are only looked at. Others have their turn meanwhile."""
        turn, again = LoopTurn(), False
        for name in self.model.names():
            again |= self._set_confirmed(name, confirmed=fresh(name))
            await turn.give_way()
        if again:
            self.events.room_freed()

    def _add(self, name: str, replica: Replica) -> None:
        """The node stands for its state, and who is bound to it and not in it is on the way."""
        state = replica.state if replica.proven else None
        if state is None or replica.rules is None:
            return
        policy: PlanPolicy = "observe" if replica.observed else self._policy
        self.model.add_node(name, replica.rules, state, policy=policy)
        for pod in self.pods.coming(name):
            self._expect(pod)
        self.events.room_freed()

    def _event(self, name: str, stamped: Stamped, replica: Replica) -> None:
        event, state, now = stamped.event, replica.state, self._clock()
        assert state is not None
        if isinstance(event, PodAdmitted):
            as_planned = event.plan == "honoured"
            told = self.model.apply_admission(name, event.pod.metadata.uid, state, now, as_planned=as_planned)
            known = self.pods.get(event.pod.metadata.uid)
            if known is not None and known.node == name:
                self.pods.rest(known.uid)
            self.events.binding_outcome(NodeReport(name, event.pod.metadata.uid, told))
            return
        if isinstance(event, PodRefused):
            told = self.model.apply_refusal(name, event.uid, state, now)
            self.events.binding_outcome(NodeReport(name, event.uid, told))
        elif isinstance(event, PodRemoved):
            self.model.apply_removal(name, event.uid, state)
        else:
            self.model.apply_change(name, state, replica.rules)
        self.events.room_freed()

    # What the scheduler asks

    def filter(self, request: FilterRequest, ahead: Mapping[str, str] = NOTHING_AHEAD) -> FilterAnswer:
        """Which nodes take the pod. `ahead` has the nodes that were chosen ahead, by UID of the pod; the pod's is the
        answer where it still takes the pod. Raises `PodsliceError` for a pod that cannot be read."""
        pod = self.find_pod(request.pod)
        if not self.model.wants_exclusive(pod.pod):
            return FilterAnswer(request.nodes)
        bound = self.pods.get(pod.uid)
        if bound is not None and bound.node:
            return FilterAnswer(error=BOUND_ALREADY + bound.node)
        now, node = self._clock(), ahead.get(pod.uid)
        if node and node in request.nodes:
            found = self.model.filter(pod.pod, [node], now, group=pod.group)
            if found.nodes:
                return FilterAnswer(found.nodes)
        found = self.model.filter(pod.pod, request.nodes, now, group=pod.group)
        if found.nodes:
            self.events.settled(pod.uid)
        else:
            self.events.refused(pod, request.nodes)
        return FilterAnswer(found.nodes, found.failed, found.unresolvable)

    def prioritize(self, request: FilterRequest) -> dict[str, int]:
        """Points for nodes that passed every filter. Raises `PodsliceError` for a pod that cannot be read."""
        pod = self.find_pod(request.pod)
        return self._points(pod.pod, request.nodes, self._clock(), group=pod.group)

    def filter_victims(self, request: PreemptRequest) -> dict[str, NodeVictims]:
        """The candidates of the scheduler on which the pod would fit once their victims are gone; the first
        `MOST_TRIED` are looked at. Raises `PodsliceError` for a pod that cannot be read."""
        pod = self.find_pod(request.pod)
        if not self.model.wants_exclusive(pod.pod):
            return request.victims
        found = {}
        for name in list(request.victims)[:MOST_TRIED]:
            replica, victims = self.replicas.get(name), request.victims[name]
            state = replica.state if replica is not None and replica.proven else None
            if state is not None and self.model.fits_without(pod.pod, name, state, victims.pods):
                found[name] = victims
        return found

    def bind(self, request: BindRequest) -> BindVerdict:
        """Whether the Binding may be written."""
        known = self.pods.get(request.uid)
        if known is not None and known.node:
            return BindVerdict("" if known.node == request.node else BOUND_ALREADY + known.node)
        try:
            pod = None if known is None else known.pod
        except PodsliceError as error:
            return BindVerdict(NOT_READABLE + str(error))
        return self.model.bind(request.uid, request.node, self._clock(), pod)

    def plan(self, request: BindRequest) -> PlanGiven | None:
        """What the node should give the pod, for its agent; None for a pod that gets nothing for itself."""
        holding, replica = self.model.plan(request.uid), self.replicas.get(request.node)
        if holding is None or replica is None:
            return None
        return PlanGiven(request.uid, holding, replica.epoch, replica.sequence, replica.digest.allocation)

    def find_pod(self, data: bytes | bytearray | memoryview) -> ScheduledPod:
        """The pod of a request: the watch's, where that has the same one, for it is decoded already. Raises
        `PodsliceError` for one that cannot be read."""
        sent = read_pod(bytes(data))
        known = self.pods.get(sent.uid)
        if known is not None and known.has_same_spec(sent) and not known.node:
            return known
        return sent

    # What is done ahead

    def choose(self, pod: ScheduledPod) -> str:
        """The best node for a pending pod, which is held for it; empty where none takes it."""
        try:
            names = self.places.among(pod.terms)
            return self.model.choose(pod.pod, self._clock(), names=names, group=pod.group) or ""
        except PodsliceError:
            return ""

    def state_of(self, node: str) -> NodeState:
        """What a node of the model last said of itself."""
        state = self.replicas[node].state
        assert state is not None
        return state

    def on_node(self, node: str) -> list[ScheduledPod]:
        """The pods that are bound to a node and have not left it, whoever sent them."""
        coming, replica = self.pods.coming(node), self.replicas.get(node)
        there = () if replica is None else map(self.pods.get, replica.uids)
        return list({pod.uid: pod for pod in (*coming, *there) if pod is not None and pod.node == node}.values())

    def can_nominate(self, pod: ScheduledPod) -> bool:
        """True for a pod whose place the model decides, and about which the scheduler's plugins ask nothing that is not
        known here."""
        try:
            return pod.terms.simple and not pod.group and self.model.wants_exclusive(pod.pod)
        except (PodsliceError, ApiError):
            return False

    def wants_exclusive(self, pod: ScheduledPod) -> bool:
        """True for a pod that can be read and could get something for itself on some node."""
        try:
            return self.model.wants_exclusive(pod.pod)
        except PodsliceError:
            return False

    def kind_of(self, pod: ScheduledPod) -> Hashable:
        """Pods with equal kinds get equal answers."""
        return pod.priority, self.model.classes.signature(pod.pod).number, pod.terms

    def expire(self) -> list[str]:
        """UIDs of pods whose hold fell because nobody came back for it. Nodes that are trusted again are room too."""
        gone = self.model.expire(self._clock())
        if gone or self._trusted != self.model.verdicts.trusted:
            self._trusted = self.model.verdicts.trusted
            self.events.room_freed()
        return gone


def _demote_mirror(pod: ScheduledPod) -> None:
    pod.mirror, pod.node_uid = False, pod.uid
