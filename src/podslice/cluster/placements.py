"""The decisions of the service: the model of all nodes, fed by watches and journals, queried by the scheduler.

One object on one event loop, and nothing here awaits I/O. The model is pure (`cluster.model.model`) and the clock is
passed in; callers write to the API server what `filter` and `bind` decide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from podslice.cluster.cluster_pods import ClusterPods
from podslice.cluster.extender.eligible import Places
from podslice.cluster.extender.messages import BindRequest, FilterAnswer, FilterRequest, NodeVictims, PreemptRequest
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import BindingOutcome, BindVerdict, ClusterModel
from podslice.node.answers import with_uid
from podslice.node.state import NodeState
from podslice.replica.events import PodAdmitted, PodRefused, PodRemoved, Stamped
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.stream_messages import PlanGiven
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_pod
from podslice.service.listeners import Listeners
from podslice.service.pacing import LoopTurn
from podslice.values.errors import PodsliceError

BOUND_ALREADY = "the pod is bound already, to node "
NOT_READABLE = "the pod cannot be read: "
NOTHING_AHEAD: Mapping[str, str] = MappingProxyType({})
MOST_TRIED = 16
"""Candidates of a preemption that are tried: each costs a decision."""


class NodeReport(NamedTuple):
    """A node's report of a pod, compared with what was expected."""

    node: str
    uid: str
    outcome: BindingOutcome

    @property
    def is_dispute(self) -> bool:
        """Whether the node did otherwise than expected."""
        return self.outcome.kind in ("disputed", "refused")


class PlacementEvents:
    """The events of `Placements`; `cluster.wiring` connects them."""

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
    """The model with the API server's objects. `pods` are those of the watch by UID. With `advise` several nodes get
    points, and the scheduler decides among them."""

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
        """Mirror pods by the UID of their static pod."""
        self._started: set[str] = set()
        """UIDs of pods that their node has admitted before the watch shows them bound."""
        self._schedulers = schedulers
        self._clock = clock
        self._policy = policy
        self._points = model.advise if advise else model.prioritize
        self._trusted = 0

    # From the watches

    def pod_changed(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """Take in a pod that came, changed or went."""
        for pod in (old, new):
            if pod is not None:
                self._check_mirror(pod)
        if new is None or new.ended:
            gone = new or old
            if gone is not None:
                self._started.discard(gone.uid)
            if gone is not None and gone.mirror:
                self._mirrors.pop(gone.node_uid, None)
            # The table drops a pod from `pods` before it reports it: then only `old` shows that it was there.
            if gone is not None and (self.pods.pop(gone.uid, None) or old) is not None:
                self.events.settled(gone.uid)
                self.model.apply_deletion(gone.node_uid, self._clock())
                self.events.room_freed()
            return
        self.pods[new.uid] = new
        if new.node:
            self._started.discard(new.uid)
            if old is None or not old.node:
                self._expect_bound(new)
            # Storing an update has woken a pod that was at rest.
            elif self._is_on_node(new):
                self.pods.rest(new.uid)
        elif self._is_ours(new):
            # A pod with a hold is on its way: only bind, expiry or the watch ends that. One that has started is bound.
            if self.model.hold_of(new.uid) is None and new.uid not in self._started:
                self.events.settled(new.uid)
                if self._reserves_room(new):
                    self.events.room_reserved(new, new.nominated)
                else:
                    self.events.pending(new)
        else:
            self.events.settled(new.uid)

    def _check_mirror(self, pod: ScheduledPod) -> None:
        """Treat a mirror as an ordinary pod where the UID of its static pod is that of another pod. Anyone who may
        create pods can write that annotation."""
        claimant = self._mirrors.pop(pod.uid, None)
        if claimant is not None and claimant.uid != pod.uid:
            _demote_mirror(claimant)
            self.model.unbind(pod.uid)
        if pod.mirror and pod.node_uid != pod.uid and pod.node_uid in self.pods:
            _demote_mirror(pod)
        elif pod.mirror:
            self._mirrors[pod.node_uid] = pod

    def drop_missed(self, began: float) -> None:
        """Drop the holds of bound pods that a list, begun at this time, does not have: they went while the watch was
        away."""
        for hold in self.model.holds():
            if hold.bound and hold.since < began and hold.uid not in self.pods:
                self.model.apply_deletion(hold.uid, self._clock())

    def _reserves_room(self, pod: ScheduledPod) -> bool:
        """Hold the pod's nominated node where its scheduler has preempted others there; return whether it is held."""
        if not (pod.refused and self.model.has_node(pod.nominated)):
            return False
        try:
            return self.model.await_room(pod.pod, pod.nominated, self._clock())
        except PodsliceError:
            return False

    def is_waiting(self, pod: ScheduledPod) -> bool:
        """Whether a pod waits for a node from one of our schedulers."""
        return not pod.node and self._is_ours(pod)

    def _is_ours(self, pod: ScheduledPod) -> bool:
        return pod.scheduler in self._schedulers and not (pod.gated or pod.deleting)

    def _expect_bound(self, pod: ScheduledPod) -> None:
        """Expect a pod on the node to which it was bound, by any scheduler, until the node reports it."""
        self.events.settled(pod.uid)
        hold = self.model.hold_of(pod.uid)
        if hold is not None and hold.node != pod.node:
            self.model.unbind(pod.uid)
        self._expect(pod)

    def _expect(self, pod: ScheduledPod) -> None:
        """Hold the node of a bound pod that the node has not reported. One that it has rests, because its specification
        is not needed any more; a call of the scheduler that came after the node's report may have held room for it."""
        if not self.model.has_node(pod.node):
            return
        if self._is_on_node(pod):
            self.model.unbind(pod.node_uid)
            self.pods.rest(pod.uid)
            return
        try:
            self.model.apply_assignment(with_uid(pod.pod, pod.node_uid), pod.node, self._clock())
        except PodsliceError:
            return

    def _is_on_node(self, pod: ScheduledPod) -> bool:
        """Whether the node has the pod, as far as it is modelled."""
        replica = self.replicas.get(pod.node)
        return replica is not None and self.model.has_node(pod.node) and replica.has(pod.node_uid)

    def node_changed(self, old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        """Take in a node that came, changed or went."""
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

    # From the journals

    def apply_event(self, name: str, stamped: Stamped, applied: ApplyResult, replica: Replica) -> None:
        """Take in an event that a node's replica has applied. Outcomes other than `equal` and `adopted` change nothing
        but the confirmation."""
        self.replicas[name] = replica
        if name not in self.places.nodes or applied.outcome == "doubled":
            return
        if applied.outcome == "adopted" or not self.model.has_node(name):
            self._add(name, replica)
        elif applied.outcome == "equal":
            self._event(name, stamped, replica)
        self.confirm(name, confirmed=replica.proven)

    def confirm(self, name: str, *, confirmed: bool) -> None:
        """Set whether the node's stream is alive and its digests equal; if not, it takes no pods with exclusive
        resources."""
        if self._set_confirmed(name, confirmed=confirmed):
            self.events.room_freed()

    def _set_confirmed(self, name: str, *, confirmed: bool) -> bool:
        """Set it, and return whether the node takes such pods again."""
        if not self.model.has_node(name) or self.model.node(name).confirmed == confirmed:
            return False
        self.model.confirm_node(name, confirmed=confirmed)
        return confirmed

    async def confirm_all(self, fresh: Callable[[str], bool]) -> None:
        """Do so for every node, giving way to other work on the event loop."""
        turn, again = LoopTurn(), False
        for name in self.model.names():
            again |= self._set_confirmed(name, confirmed=fresh(name))
            await turn.give_way()
        if again:
            self.events.room_freed()

    def _add(self, name: str, replica: Replica) -> None:
        """Add a node with its proven state; bound pods that are not in it are on their way."""
        state = replica.state if replica.proven else None
        if state is None or replica.rules is None:
            return
        # Who decides for itself, or by a neighbouring version, is predicted, not promised anything.
        predicted = replica.observed or replica.relation == "neighbour"
        policy: PlanPolicy = "observe" if predicted else self._policy
        self.model.add_node(name, replica.rules, state, policy=policy)
        for pod in self.pods.coming(name):
            self._expect(pod)
        self.events.room_freed()

    def _event(self, name: str, stamped: Stamped, replica: Replica) -> None:
        event, state, now = stamped.event, replica.state, self._clock()
        assert state is not None
        if isinstance(event, PodAdmitted):
            as_planned = event.plan == "honoured"
            outcome = self.model.apply_admission(name, event.pod.metadata.uid, state, now, as_planned=as_planned)
            known = self.pods.get(event.pod.metadata.uid)
            if known is not None and known.node == name:
                self.pods.rest(known.uid)
            elif known is not None and not known.node:
                self._started.add(known.uid)
            self.events.binding_outcome(NodeReport(name, event.pod.metadata.uid, outcome))
            return
        if isinstance(event, PodRefused):
            outcome = self.model.apply_refusal(name, event.uid, state, now)
            self.events.binding_outcome(NodeReport(name, event.uid, outcome))
        elif isinstance(event, PodRemoved):
            self.model.apply_removal(name, event.uid, state)
        else:
            self.model.apply_change(name, state, replica.rules)
        self.events.room_freed()

    # Calls of the scheduler

    def filter(self, request: FilterRequest, ahead: Mapping[str, str] = NOTHING_AHEAD) -> FilterAnswer:
        """Return which nodes take the pod. `ahead` has the nodes that were chosen ahead, by UID; the pod's is the
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
        """Return points for nodes that passed every filter. Raises `PodsliceError` for a pod that cannot be read."""
        pod = self.find_pod(request.pod)
        bound = self.pods.get(pod.uid)
        # The scheduler goes on without scores that come late: the pod may be bound, and nothing would end a new hold.
        if bound is not None and bound.node:
            return dict.fromkeys(request.nodes, 0)
        return self._points(pod.pod, request.nodes, self._clock(), group=pod.group)

    def filter_victims(self, request: PreemptRequest) -> dict[str, NodeVictims]:
        """Return the scheduler's candidates on which the pod would fit once their victims are gone; only the first
        `MOST_TRIED` are tried. Raises `PodsliceError` for a pod that cannot be read."""
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
        """Return whether a Binding may be written."""
        known = self.pods.get(request.uid)
        if known is not None and known.node:
            return BindVerdict("" if known.node == request.node else BOUND_ALREADY + known.node)
        try:
            pod = None if known is None else known.pod
        except PodsliceError as error:
            return BindVerdict(NOT_READABLE + str(error))
        return self.model.bind(request.uid, request.node, self._clock(), pod)

    def plan(self, request: BindRequest) -> PlanGiven | None:
        """Return the plan for a pod, to send to the node's agent; None for a pod without exclusive resources."""
        holding, replica = self.model.plan(request.uid), self.replicas.get(request.node)
        if holding is None or replica is None:
            return None
        return PlanGiven(request.uid, holding, replica.epoch, replica.sequence, replica.digest.allocation)

    def find_pod(self, data: bytes | bytearray | memoryview) -> ScheduledPod:
        """Return the pod of a request: the watch's object where it is the same, because that is decoded already. Raises
        `PodsliceError` for a pod that cannot be read."""
        sent = read_pod(bytes(data))
        known = self.pods.get(sent.uid)
        if known is not None and known.has_same_spec(sent) and not known.node:
            return known
        return sent

    # Nominations and evictions

    def choose(self, pod: ScheduledPod) -> str:
        """Choose the best node for a pending pod, and hold it; empty where none takes the pod."""
        try:
            names = self.places.among(pod.terms)
            return self.model.choose(pod.pod, self._clock(), names=names, group=pod.group) or ""
        except PodsliceError:
            return ""

    def state_of(self, node: str) -> NodeState:
        """Return the latest state of a node in the model."""
        state = self.replicas[node].state
        assert state is not None
        return state

    def on_node(self, node: str) -> list[ScheduledPod]:
        """Return the pods that are bound to a node and have not left it, of all schedulers."""
        coming, replica = self.pods.coming(node), self.replicas.get(node)
        there = () if replica is None else map(self.pods.get, replica.uids)
        return list({pod.uid: pod for pod in (*coming, *there) if pod is not None and pod.node == node}.values())

    def can_nominate(self, pod: ScheduledPod) -> bool:
        """Whether a pod can be nominated ahead: it gets exclusive resources, and its other constraints are only ones
        that `Places` checks."""
        try:
            return pod.terms.simple and not pod.group and self.model.wants_exclusive(pod.pod)
        except PodsliceError:
            return False

    def wants_exclusive(self, pod: ScheduledPod) -> bool:
        """Whether a pod can be read and could get exclusive resources on some node."""
        try:
            return self.model.wants_exclusive(pod.pod)
        except PodsliceError:
            return False

    def kind_of(self, pod: ScheduledPod) -> Hashable:
        """Return a key; pods with equal keys get equal answers."""
        return pod.priority, self.model.classes.signature(pod.pod).number, pod.terms

    def expire(self) -> list[str]:
        """Drop holds whose time is over, and return the UIDs of their pods. Ended quarantines announce room as well."""
        gone = self.model.expire(self._clock())
        if gone or self._trusted != self.model.verdicts.trusted:
            self._trusted = self.model.verdicts.trusted
            self.events.room_freed()
        return gone


def _demote_mirror(pod: ScheduledPod) -> None:
    pod.mirror, pod.node_uid = False, pod.uid
