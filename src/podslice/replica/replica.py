"""A replica of a node in another process: equal rules and state, fed with the node's journal.

    rulebook = Rulebook()                                  # one for all replicas: equal nodes share their rules
    replica = Replica(rulebook, versions={"0.1.0"})        # versions of the core that decide as this one does
    applied = replica.apply(stamped)                       # an event of the journal, see `replica.events`
    applied.outcome                                        # equal | adopted | mismatch | gap | doubled | ...
    replica.missing                                        # None, or what the node should send again
    replica.proven                                         # digests met after the latest event that is known of
    replica.rules, replica.state, replica.digest           # for `decide(rules, state, pod)` while it is proven

After every event the digests of node and replica are compared: this is the proof that the model equals the node. After
a mismatch the replica is no longer `proven`. It keeps its own result (`applied.mine`), asks for the node's state, and
adopts that as it comes. Events that are lost, doubled or out of order are noticed by the sequence.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from podslice.node.decide import decide, release, resize
from podslice.node.holding import Digest, Digester, holding_of
from podslice.node.node import Node
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.replica.compatibility import Relation, find_relation
from podslice.replica.events import (
    DevicesChanged,
    NodeEvent,
    PodAdmitted,
    PodRefused,
    PodRemoved,
    PodResized,
    Stamped,
    WholeState,
)
from podslice.replica.planned_admission import admit_as_planned
from podslice.replica.rulebook import PreparedState, Rulebook
from podslice.replica.shared_values import ReadWholeState
from podslice.replica.state_message import build_pool, build_state, check_pool, check_pool_count, state_message
from podslice.replica.state_packing import PackedState
from podslice.replica.uids import is_among, unpack_uids
from podslice.values.errors import InputError, PodsliceError

Outcome: TypeAlias = Literal[
    "equal", "adopted", "mismatch", "otherDecision", "gap", "doubled", "otherEpoch", "otherVersion"
]  # fmt: skip
"""`equal`: the replica computed the node's digests. `adopted`: it took over the node's state. `mismatch`: it computed
other digests, or a whole state does not have the digests that it claims. `otherDecision`: the same for an event of a
node of a neighbouring version, which may decide otherwise. `gap`: events before this one are missing.
`doubled`: this event was applied before. `otherEpoch`: the agent has started again and its state has not come yet.
`otherVersion`: the node runs a core that may decide otherwise."""


class ApplyResult(NamedTuple):
    """The outcome of an event. For the log: `mine` is the replica's own state after a mismatch; once the node's state
    is adopted, `mine` and `theirs` are both set. `why` describes a mismatch."""

    outcome: Outcome
    mine: NodeState | None = None
    theirs: NodeState | None = None
    why: str = ""


class MissingEvents(NamedTuple):
    """The events that a node should send: those after this one, or with `state` the whole state."""

    epoch: int
    sequence: int
    state: bool


class Replica:
    """The replica of one node. `rules` and `state` are None before the first whole state, and with another version.
    `sequence` is the latest event that was applied, `latest` the latest that is known of."""

    __slots__ = ("_digester", "_digests", "_disputed", "_packed", "_rulebook", "_state", "_versions", "_wants_state",
                 "decisions", "epoch", "latest", "observed", "rules", "sequence", "version")  # fmt: skip

    def __init__(self, rulebook: Rulebook, versions: Container[str]) -> None:
        self._rulebook = rulebook
        self._versions = versions
        self._digester: Digester | None = None
        self._disputed: NodeState | None = None
        self._wants_state = True
        self.rules: NodeRules | None = None
        self._state: NodeState | None = None
        self._packed: PackedState | None = None
        """The state at rest; kept beside `_state` where its bytes are there already."""
        self._digests = b""
        """The node's digests after the latest event, as bytes, one after the other."""
        self.epoch = 0
        self.sequence = -1
        self.latest = -1
        self.version = ""
        self.decisions = 0
        self.observed = False
        """Whether the node's kubelet decides by itself; see `WholeState`."""

    @property
    def digest(self) -> Digest:
        """The digests of the state; empty before there is one."""
        half = len(self._digests) // 2
        return Digest(self._digests[:half].hex(), self._digests[half:].hex())

    def _set_digest(self, digest: Digest) -> None:
        self._digests = bytes.fromhex(digest.allocation + digest.named)

    @property
    def has_state(self) -> bool:
        """Whether there is a state, decoded or at rest."""
        return self._state is not None or self._packed is not None

    @property
    def state(self) -> NodeState | None:
        """The node's state as of the latest event; decoded again where the replica was at rest."""
        if self._state is None:
            if self._packed is None or self.rules is None:
                return None
            common = self._rulebook.common
            self._state = build_state(common.unpack(self._packed), self.rules, common.admission)
        self._rulebook.keep_warm(self)
        return self._state

    def has(self, uid: str) -> bool:
        """Whether a pod is on the node, as of the latest event. Does not decode a state at rest."""
        return uid in self._state.pods if self._state is not None else is_among(uid, self._names)

    @property
    def uids(self) -> list[str]:
        """UIDs of the pods on the node, as of the latest event. Does not decode a state at rest."""
        return list(self._state.pods) if self._state is not None else unpack_uids(self._names)

    @property
    def _names(self) -> bytes:
        return b"" if self._packed is None else self._packed.uids

    def rest(self) -> None:
        """Keep the state as compressed bytes until it is read."""
        state = self._state
        if state is not None:
            self._packed = self._packed or self._rulebook.common.pack(state_message(state))
            self._state = self._digester = None

    def _set_state(self, state: NodeState | None, packed: PackedState | None = None) -> None:
        self._state, self._packed = state, packed
        if state is not None:
            self._rulebook.keep_warm(self)

    def _digest(self, state: NodeState) -> Digest:
        if self._digester is None:
            self._digester = Digester()
        return self._digester.of(state)

    @property
    def compatible(self) -> bool:
        """Whether the node's core is of a version that decides as this one does, or nearly so."""
        return self.relation != "other"

    @property
    def relation(self) -> Relation:
        """How the node's core decides, as far as its version says."""
        return find_relation(self.version, self.decisions, self._versions)

    @property
    def proven(self) -> bool:
        """Whether the state is the node's as far as is known: digests were equal, and no event is missing."""
        return self.has_state and not self._wants_state and self.sequence == self.latest

    @property
    def missing(self) -> MissingEvents | None:
        """The events that the node should send; None while nothing is missing, or another version makes them
        useless."""
        if self.proven or (self.version and not self.compatible):
            return None
        return MissingEvents(self.epoch, self.sequence, self._wants_state)

    def matches(self, epoch: int, sequence: int, digest: Digest) -> bool:
        """Compare the replica with a beat: the node's latest event and digests. Returns whether they are equal;
        otherwise `missing` has what to ask for."""
        if not self.has_state or epoch != self.epoch:
            self._wants_state = True
        elif sequence >= self.sequence:
            self.latest = max(self.latest, sequence)
            self._wants_state |= sequence == self.sequence and digest != self.digest
        return self.proven and sequence == self.sequence

    def await_whole_state(self) -> None:
        """Apply nothing more until the node has sent its whole state."""
        self._wants_state = True

    def apply(self, stamped: Stamped, ready: PreparedState | str | None = None) -> ApplyResult:
        """Apply an event of the node. Never raises, whatever the node sends. `ready`: the result of `Rulebook.prepare`
        for a whole state, where a thread has computed it already."""
        event = stamped.event
        if isinstance(event, WholeState):
            return self._take_state(stamped, event, ready)
        if stamped.epoch != self.epoch:
            self._wants_state = True
            return ApplyResult("otherVersion" if self.version and not self.compatible else "otherEpoch")
        state = self.state
        if state is None or self.rules is None:
            return ApplyResult("gap" if self.compatible else "otherVersion")
        if stamped.sequence <= self.sequence:
            return ApplyResult("doubled")
        self.latest = max(self.latest, stamped.sequence)
        if self._wants_state or stamped.sequence != self.sequence + 1:
            return ApplyResult("gap")
        return self._follow(stamped, event, self.rules, state)

    def _follow(self, stamped: Stamped, event: NodeEvent, rules: NodeRules, state: NodeState) -> ApplyResult:
        try:
            state, why = apply_event(rules, state, event)
            digest = self._digest(state)
        except Exception as error:  # a state that a node made up may raise anything; it breaks only its own replica
            return self._dispute(stamped, state, f"{type(error).__name__}: {error}"[:500])
        if why or digest != stamped.digest:
            return self._dispute(stamped, state, why or _difference(digest, stamped.digest))
        self._set_state(state)
        self._set_digest(digest)
        self.sequence = stamped.sequence
        return ApplyResult("equal")

    def _dispute(self, stamped: Stamped, mine: NodeState, why: str) -> ApplyResult:
        self._disputed, self._wants_state = mine, True
        return ApplyResult("mismatch" if self.relation == "same" else "otherDecision", mine, None, why)

    # Whole states

    def _take_state(self, stamped: Stamped, event: WholeState, ready: PreparedState | str | None) -> ApplyResult:
        known = stamped.epoch == self.epoch and not self._wants_state
        if known and stamped.sequence <= self.sequence and (stamped.sequence < self.sequence or self._is(stamped)):
            return ApplyResult("doubled")
        same = stamped.epoch == self.epoch
        # Within an epoch later events may be known of already; another epoch counts anew.
        self.latest = max(self.latest, stamped.sequence) if same else stamped.sequence
        self.epoch, self.sequence = stamped.epoch, stamped.sequence
        self.version, self.decisions = event.version, event.decisions
        # From here on the old state is gone, whatever comes of the new one.
        mine, self._disputed = self._disputed, None
        self.rules = None
        self._set_state(None)
        if not self.compatible:
            return ApplyResult("otherVersion")
        self._wants_state = True
        found = self._rulebook.prepare(event) if ready is None else ready
        if isinstance(found, str):
            return ApplyResult("mismatch", mine, None, found)
        found = self._rulebook.adopt(found)
        if found.digest != stamped.digest:
            return ApplyResult("mismatch", mine, found.state, _difference(found.digest, stamped.digest))
        self._set_digest(found.digest)
        self.rules, self._wants_state = found.rules, False
        self._digester, self.observed = found.digester, event.observed
        self._set_state(found.state, event.packed if isinstance(event, ReadWholeState) else None)
        return ApplyResult("adopted", mine, found.state)

    def _is(self, stamped: Stamped) -> bool:
        return self.digest == stamped.digest


def _difference(mine: Digest, theirs: Digest) -> str:
    what = "names" if mine.allocation == theirs.allocation else "allocation"
    return f"{what}: {mine} here, {theirs} on the node"


def apply_event(rules: NodeRules, state: NodeState, event: NodeEvent) -> tuple[NodeState, str]:
    """Return the state after an event that is not a whole state, and the difference to the node's outcome, empty for
    none. Raises `PodsliceError` for an event that cannot have happened."""
    if isinstance(event, PodAdmitted):
        return _apply_admission(rules, state, event)
    if isinstance(event, PodRefused):
        return _apply_refusal(rules, state, event)
    if isinstance(event, PodRemoved):
        return release(rules, state, event.uid), ""
    if isinstance(event, PodResized):
        state, answer = resize(rules, state, event.pod, since=event.since)
        return state, "" if answer.outcome == event.outcome else f"{event.outcome} there, {answer.outcome} here"
    if isinstance(event, DevicesChanged):
        return _apply_devices(rules, state, event), ""
    raise InputError("has no state before it", path="event")


def _apply_admission(rules: NodeRules, state: NodeState, event: PodAdmitted) -> tuple[NodeState, str]:
    if event.plan == "honoured":
        node = Node.of(rules, state)
        moved = admit_as_planned(node, event.pod, event.holding).moved
        return node.state, "" if moved else "the plan was used there, and cannot be here"
    decided = decide(rules, state, event.pod)
    if decided.refusal is not None:
        return decided.state, f"admitted there, refused here: {decided.refusal}"
    mine = holding_of(decided.state, event.pod.metadata.uid)
    return decided.state, "" if mine == event.holding else f"{event.holding} there, {mine} here"


def _apply_refusal(rules: NodeRules, state: NodeState, event: PodRefused) -> tuple[NodeState, str]:
    if event.pod is None:
        return state, ""
    decided = decide(rules, state, event.pod)
    if decided.refusal is None:
        return decided.state, f"refused there, admitted here: {event.reason}: {event.message}"
    reason = decided.refusal.reason
    return decided.state, "" if reason == event.reason else f"{event.reason} there, {reason} here"


def _apply_devices(rules: NodeRules, state: NodeState, event: DevicesChanged) -> NodeState:
    pools = {name: pool for name, pool in state.device.pools.items() if name not in event.gone}
    check_pool_count(len(pools.keys() | event.pools.keys()))
    for resource, said in event.pools.items():
        check_pool(said, resource)
        known = pools.get(resource)
        if known is not None and said.ids[: len(known.ids)] != known.ids:
            raise PodsliceError(f"{resource}: devices have other positions")
        pools[resource] = build_pool(said, rules.machine_nodes)
    return replace(state, device=replace(state.device, pools=pools))
