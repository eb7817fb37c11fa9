"""A node as another process knows it: the same rules, the same state, fed with the node's own journal.

    rulebook = Rulebook()                                  # one for all replicas: equal nodes share their rules
    replica = Replica(rulebook, versions={"0.1.0"})        # versions of the core that decide as this one does
    applied = replica.apply(stamped)                       # an event of the journal, see `replica.events`
    applied.outcome                                        # equal | adopted | mismatch | gap | doubled | ...
    replica.wanted                                         # None, or what the node should send again
    replica.proven                                         # digests met after the latest event that is known of
    replica.rules, replica.state, replica.digest           # for `decide(rules, state, pod)` while it is proven

After every event the digests of node and replica are compared: that is the standing proof that the model is the node.
A mismatch is never averaged away. The replica stops being `proven`, keeps what it came to (`applied.mine`), wants the
node's state, and adopts it as it comes. Events that are lost, doubled or in another order are noticed by the sequence.
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
from podslice.replica.common import StateRead
from podslice.replica.events import (
    DevicesChanged,
    NodeEvent,
    PodAdmitted,
    PodRefused,
    PodRemoved,
    PodResized,
    Stamped,
    StateTold,
)
from podslice.replica.honour import admit_as
from podslice.replica.packing import PackedState
from podslice.replica.rulebook import ReadyState, Rulebook
from podslice.replica.told_state import check_number, check_pool, pool_of, state_from, told
from podslice.replica.uids import is_named, uids_in
from podslice.values.errors import InputError, PodsliceError

Outcome: TypeAlias = Literal["equal", "adopted", "mismatch", "gap", "doubled", "otherEpoch", "otherVersion"]
"""`equal`: the replica came to the digests of the node. `adopted`: it has taken over the node's state. `mismatch`: it
came to something else, or the node's state is not what its digests say. `gap`: events before this one are missing.
`doubled`: it was there already. `otherEpoch`: the agent has started again and its state has not come yet.
`otherVersion`: the node runs a core that may decide otherwise."""


class Applied(NamedTuple):
    """What became of an event. `mine` and `theirs`, for the log: after a mismatch what the replica came to, and when
    the node's state is adopted then, both. `why`: of a mismatch, in words."""

    outcome: Outcome
    mine: NodeState | None = None
    theirs: NodeState | None = None
    why: str = ""


class Wanted(NamedTuple):
    """What a node should send: the events after this one, or with `state` everything."""

    epoch: int
    sequence: int
    state: bool


class Replica:
    """One node. `rules` and `state` are None before the first state and with another version."""

    __slots__ = ("_digester", "_digests", "_disputed", "_packed", "_rulebook", "_state", "_versions", "_wants_state",
                 "epoch", "latest", "observed", "rules", "sequence", "version")  # fmt: skip

    def __init__(self, rulebook: Rulebook, versions: Container[str]) -> None:
        self._rulebook = rulebook
        self._versions = versions
        self._digester: Digester | None = None
        self._disputed: NodeState | None = None
        self._wants_state = True
        self.rules: NodeRules | None = None
        self._state: NodeState | None = None
        self._packed: PackedState | None = None
        """The state at rest."""
        self._digests = b""
        """Those that were met last, one after the other."""
        self.epoch = 0
        self.sequence = -1
        self.latest = -1
        self.version = ""
        self.observed = False
        """Its kubelet decides by itself; see `StateTold`."""

    @property
    def digest(self) -> Digest:
        """Of the state; empty before there is one."""
        half = len(self._digests) // 2
        return Digest(self._digests[:half].hex(), self._digests[half:].hex())

    def _met(self, digest: Digest) -> None:
        self._digests = bytes.fromhex(digest.allocation + digest.named)

    @property
    def known(self) -> bool:
        """True where there is a state."""
        return self._state is not None or self._packed is not None

    @property
    def state(self) -> NodeState | None:
        """The node's state as far as it was told; made anew where the replica was at rest."""
        if self._state is None:
            if self._packed is None or self.rules is None:
                return None
            common = self._rulebook.common
            self._state = state_from(common.unpack(self._packed), self.rules, common.admission)
        self._rulebook.warm(self)
        return self._state

    def has(self, uid: str) -> bool:
        """True for a pod that is on the node, as far as it was told."""
        return uid in self._state.pods if self._state is not None else is_named(uid, self._names)

    @property
    def uids(self) -> list[str]:
        """The pods on the node, as far as it was told."""
        return list(self._state.pods) if self._state is not None else uids_in(self._names)

    @property
    def _names(self) -> bytes:
        return b"" if self._packed is None else self._packed.uids

    def rest(self) -> None:
        """Nobody asks for the state: some bytes of it are enough, until somebody does."""
        state = self._state
        if state is not None:
            self._packed = self._packed or self._rulebook.common.pack(told(state))
            self._state = self._digester = None

    def _become(self, state: NodeState | None, packed: PackedState | None = None) -> None:
        self._state, self._packed = state, packed
        if state is not None:
            self._rulebook.warm(self)

    def _digest(self, state: NodeState) -> Digest:
        if self._digester is None:
            self._digester = Digester()
        return self._digester.of(state)

    @property
    def compatible(self) -> bool:
        """False where the node runs a core that may decide otherwise: nothing can be said for it."""
        return self.version in self._versions

    @property
    def proven(self) -> bool:
        """True when the state is the node's, as far as anybody knows: digests met, and no event is missing."""
        return self.known and not self._wants_state and self.sequence == self.latest

    @property
    def wanted(self) -> Wanted | None:
        """What the node should send again; None while nothing is missing, or nothing would help."""
        if self.proven or (self.version and not self.compatible):
            return None
        return Wanted(self.epoch, self.sequence, self._wants_state)

    def meets(self, epoch: int, sequence: int, digest: Digest) -> bool:
        """The node says that it is there, after this event, with these digests: True when so is the replica. What is
        missing is `wanted` from now on."""
        if not self.known or epoch != self.epoch:
            self._wants_state = True
        elif sequence >= self.sequence:
            self.latest = max(self.latest, sequence)
            self._wants_state |= sequence == self.sequence and digest != self.digest
        return self.proven and sequence == self.sequence

    def begin_again(self) -> None:
        """Nothing counts any more until the node has told its whole state."""
        self._wants_state = True

    def apply(self, stamped: Stamped, ready: ReadyState | str | None = None) -> Applied:
        """Take in an event of the node. Never raises, whatever the node says. `ready`: what was worked out of a whole
        state already (`Rulebook.ready`)."""
        event = stamped.event
        if isinstance(event, StateTold):
            return self._take_state(stamped, event, ready)
        if stamped.epoch != self.epoch:
            self._wants_state = True
            return Applied("otherVersion" if self.version and not self.compatible else "otherEpoch")
        state = self.state
        if state is None or self.rules is None:
            return Applied("gap" if self.compatible else "otherVersion")
        if stamped.sequence <= self.sequence:
            return Applied("doubled")
        self.latest = max(self.latest, stamped.sequence)
        if self._wants_state or stamped.sequence != self.sequence + 1:
            return Applied("gap")
        return self._follow(stamped, event, self.rules, state)

    def _follow(self, stamped: Stamped, event: NodeEvent, rules: NodeRules, state: NodeState) -> Applied:
        try:
            state, why = after_event(rules, state, event)
            digest = self._digest(state)
        except Exception as error:  # a state that a node made up may break anything; only its own replica
            return self._dispute(stamped, state, f"{type(error).__name__}: {error}"[:500])
        if why or digest != stamped.digest:
            return self._dispute(stamped, state, why or _difference(digest, stamped.digest))
        self._become(state)
        self._met(digest)
        self.sequence = stamped.sequence
        return Applied("equal")

    def _dispute(self, stamped: Stamped, mine: NodeState, why: str) -> Applied:
        self._disputed, self._wants_state = mine, True
        return Applied("mismatch", mine, None, why)

    # Whole states

    def _take_state(self, stamped: Stamped, event: StateTold, ready: ReadyState | str | None) -> Applied:
        known = stamped.epoch == self.epoch and not self._wants_state
        if known and stamped.sequence <= self.sequence and (stamped.sequence < self.sequence or self._is(stamped)):
            return Applied("doubled")
        same = stamped.epoch == self.epoch
        self.latest = max(self.latest, stamped.sequence) if same else stamped.sequence
        self.epoch, self.sequence, self.version = stamped.epoch, stamped.sequence, event.version
        mine, self._disputed = self._disputed, None
        self.rules = None
        self._become(None)
        if not self.compatible:
            return Applied("otherVersion")
        self._wants_state = True
        found = self._rulebook.ready(event) if ready is None else ready
        if isinstance(found, str):
            return Applied("mismatch", mine, None, found)
        found = self._rulebook.taken(found)
        if found.digest != stamped.digest:
            return Applied("mismatch", mine, found.state, _difference(found.digest, stamped.digest))
        self._met(found.digest)
        self.rules, self._wants_state = found.rules, False
        self._digester, self.observed = found.digester, event.observed
        self._become(found.state, event.packed if isinstance(event, StateRead) else None)
        return Applied("adopted", mine, found.state)

    def _is(self, stamped: Stamped) -> bool:
        return self.digest == stamped.digest


def _difference(mine: Digest, theirs: Digest) -> str:
    what = "names" if mine.allocation == theirs.allocation else "allocation"
    return f"{what}: {mine} here, {theirs} on the node"


def after_event(rules: NodeRules, state: NodeState, event: NodeEvent) -> tuple[NodeState, str]:
    """The state after an event that is no state, and what the node did otherwise, empty for nothing. Raises
    `PodsliceError` for what cannot have happened."""
    if isinstance(event, PodAdmitted):
        return _after_admission(rules, state, event)
    if isinstance(event, PodRefused):
        return _after_refusal(rules, state, event)
    if isinstance(event, PodRemoved):
        return release(rules, state, event.uid), ""
    if isinstance(event, PodResized):
        state, answer = resize(rules, state, event.pod, since=event.since)
        return state, "" if answer.outcome == event.outcome else f"{event.outcome} there, {answer.outcome} here"
    if isinstance(event, DevicesChanged):
        return _with_devices(rules, state, event), ""
    raise InputError("has no state before it", path="event")


def _after_admission(rules: NodeRules, state: NodeState, event: PodAdmitted) -> tuple[NodeState, str]:
    if event.plan == "honoured":
        node = Node.of(rules, state)
        moved = admit_as(node, event.pod, event.holding).moved
        return node.state, "" if moved else "the plan was used there, and cannot be here"
    decided = decide(rules, state, event.pod)
    if decided.refusal is not None:
        return decided.state, f"admitted there, refused here: {decided.refusal}"
    mine = holding_of(decided.state, event.pod.metadata.uid)
    return decided.state, "" if mine == event.holding else f"{event.holding} there, {mine} here"


def _after_refusal(rules: NodeRules, state: NodeState, event: PodRefused) -> tuple[NodeState, str]:
    if event.pod is None:
        return state, ""
    decided = decide(rules, state, event.pod)
    if decided.refusal is None:
        return decided.state, f"refused there, admitted here: {event.reason}: {event.message}"
    reason = decided.refusal.reason
    return decided.state, "" if reason == event.reason else f"{event.reason} there, {reason} here"


def _with_devices(rules: NodeRules, state: NodeState, event: DevicesChanged) -> NodeState:
    pools = {name: pool for name, pool in state.device.pools.items() if name not in event.gone}
    check_number(len(pools.keys() | event.pools.keys()))
    for resource, said in event.pools.items():
        check_pool(said, resource)
        known = pools.get(resource)
        if known is not None and said.ids[: len(known.ids)] != known.ids:
            raise PodsliceError(f"{resource}: devices have other positions")
        pools[resource] = pool_of(said, rules.machine_nodes)
    return replace(state, device=replace(state.device, pools=pools))
