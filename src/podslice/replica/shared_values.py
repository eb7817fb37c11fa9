"""Values that the states of many nodes have in common, decoded once and shared.

Equal machines send the same long setup, and pods of one Deployment have the same specification. Both are looked up by
their bytes before they are decoded, so that equal parts of thousands of states are one object.

    common = SharedValues()                # one for a whole service; a `Rulebook` has it
    stamped = common.decode(data)          # as `events.decode`
    common.admission(policy, pod, gates)   # as `make_admission_pod`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import ObjectMeta, Pod, PodSpec, PodStatus
from podslice.config.mixed import make_admission_pod
from podslice.config.policy import PodslicePolicy
from podslice.replica.events import MOST_BYTES, NodeEvent, Stamped, WholeState, Why
from podslice.replica.json_values import from_json, to_json
from podslice.replica.setup import Setup
from podslice.replica.state_message import StateMessage
from podslice.replica.state_packing import PackedState, is_text, pack_state, unpack_state
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_NO_STATUS = PodStatus()
_MOST_SETUPS, _MOST_SPECS = 256, 8192
_SETUP_BYTES, _SPEC_BYTES = 2 << 20, 1 << 20
"""Bytes of JSON whose values are kept; a value takes some ten times as much."""
_LARGEST_SPEC = 64 << 10
_MOST_VIEWS = 4


class Latest(Generic[K, V]):
    """A cache of the values that were used last: at most `most`, and at most `budget` bytes of keys (0: no limit).
    `gone` is called with each value that is dropped."""

    def __init__(self, most: int, *, budget: int = 0, gone: Callable[[V], object] | None = None) -> None:
        self._most, self._budget, self._gone = most, budget, gone
        self._known: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; call `make` where there is none."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        found = self._known[key] = make()
        self._bytes += self._size(key)
        while len(self._known) > self._most or self._bytes > self._budget > 0:
            dropped, value = self._known.popitem(last=False)
            self._bytes -= self._size(dropped)
            if self._gone is not None:
                self._gone(value)
        return found

    def _size(self, key: K) -> int:
        return len(key) if isinstance(key, bytes) else 0


class SharedSpec:
    """A specification that many pods have, and the managers' views of such a pod."""

    __slots__ = ("spec", "views")

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.views: Latest[tuple[int, bool], tuple[Pod, Mapping[str, bool], AdmissionPod]] = Latest(_MOST_VIEWS)


class ReadWholeState(WholeState, frozen=True, tag="State"):
    """A whole state that was decoded from bytes; `packed` are those bytes, compressed, to keep at rest."""

    packed: PackedState = PackedState(b"")


class _RawPod(msgspec.Struct, frozen=True, rename="camel"):
    spec: msgspec.Raw
    metadata: ObjectMeta = ObjectMeta()
    status: PodStatus = _NO_STATUS


class _RawWholeState(msgspec.Struct, frozen=True, rename="camel", tag="State"):
    version: str
    setup: msgspec.Raw
    state: msgspec.Raw
    why: Why = "started"
    observed: bool = False
    decisions: int = 0


class _RawStamped(msgspec.Struct, frozen=True, rename="camel", tag="Event", tag_field="kind"):
    epoch: int
    sequence: int
    allocation: str
    named: str
    event: msgspec.Raw


class _Kind(msgspec.Struct, frozen=True):
    type: str = ""


def _raw_state() -> type[msgspec.Struct]:
    """Return a type like `StateMessage` whose pods have specifications as undecoded bytes."""
    fields: list[Any] = []
    # Derived from `StateMessage`, so that both have every field.
    for one in msgspec.structs.fields(StateMessage):
        kind = tuple[_RawPod, ...] if one.name == "pods" else one.type
        made = one.default_factory
        fields.append(
            (one.name, kind, one.default if made is msgspec.NODEFAULT else msgspec.field(default_factory=made))
        )
    return msgspec.defstruct("RawState", fields, frozen=True, rename="camel", forbid_unknown_fields=True)


def _uids(state: StateMessage) -> list[str]:
    return [pod.metadata.uid for pod in state.pods]


_RAW_STATE: Any = _raw_state()
_STATE_FIELDS = tuple(one.name for one in msgspec.structs.fields(StateMessage) if one.name != "pods")


class SharedValues:
    """The shared values of one service: setups, specifications of pods, and the managers' views of them."""

    def __init__(self) -> None:
        self._setups: Latest[bytes, Setup] = Latest(_MOST_SETUPS, budget=_SETUP_BYTES)
        self._by_id: dict[int, SharedSpec] = {}
        self._specs: Latest[bytes, SharedSpec] = Latest(_MOST_SPECS, budget=_SPEC_BYTES, gone=self._forget)

    def _forget(self, shared: SharedSpec) -> None:
        self._by_id.pop(id(shared.spec), None)

    def decode(self, data: bytes, *, limit: int = MOST_BYTES) -> Stamped:
        """Decode an event as `events.decode` does, with shared values. Raises `InputError`."""
        found = from_json(data, _RawStamped, limit=limit, what="event")
        return Stamped(found.epoch, found.sequence, found.allocation, found.named, self._event(found.event))

    def _event(self, raw: msgspec.Raw) -> NodeEvent:
        path = "event.event"
        if from_json(raw, _Kind, limit=MOST_BYTES, what=path).type != "State":
            return from_json(raw, NodeEvent, limit=MOST_BYTES, what=path)  # type: ignore[arg-type]
        whole = from_json(raw, _RawWholeState, limit=MOST_BYTES, what=path)
        setup, state = self.setup(whole.setup), self.state(whole.state)
        # The bytes that came are packed as they are; only where they hold a mark is the state encoded anew.
        data = bytes(whole.state)
        at_rest = pack_state(data, _uids(state)) if is_text(data) else self.pack(state)
        return ReadWholeState(whole.version, setup, state, whole.why, whole.observed, whole.decisions, packed=at_rest)

    def setup(self, raw: msgspec.Raw) -> Setup:
        """Decode a setup; equal bytes give the same object. Raises `InputError`."""
        return self._setups.get(bytes(raw), lambda: from_json(raw, Setup, limit=MOST_BYTES, what="event.event.setup"))

    def state(self, raw: bytes | msgspec.Raw) -> StateMessage:
        """Decode a state; pods with equal specifications share one. Raises `InputError`."""
        found = from_json(raw, _RAW_STATE, limit=MOST_BYTES, what="event.event.state")
        pods = tuple(Pod(self._spec(one.spec), one.metadata, one.status) for one in found.pods)
        return StateMessage(pods, *[getattr(found, name) for name in _STATE_FIELDS])

    def _spec(self, raw: msgspec.Raw) -> PodSpec:
        def read() -> PodSpec:
            return from_json(raw, PodSpec, limit=MOST_BYTES, what="event.event.state.pods[...].spec")

        def share() -> SharedSpec:
            shared = SharedSpec(read())
            self._by_id[id(shared.spec)] = shared
            return shared

        data = bytes(raw)
        return self._specs.get(data, share).spec if len(data) <= _LARGEST_SPEC else read()

    def admission(
        self,
        policy: PodslicePolicy,
        pod: Pod,
        gates: Mapping[str, bool],
        *,
        unmanaged: bool = False,
        release: Release = DEFAULT,
    ) -> AdmissionPod:
        """Return the managers' view of a pod. It is computed once per shared specification, unless annotations take
        part (mixed CPUs) or the pod has a status."""

        def look() -> AdmissionPod:
            return make_admission_pod(policy, pod, gates, unmanaged=unmanaged, release=release)

        if policy.mixed is not None or pod.status != _NO_STATUS:
            return look()
        shared = self._by_id.get(id(pod.spec))
        if shared is None or shared.spec is not pod.spec:
            return look()
        # Keyed by identity, for speed: the gates are kept beside the view, so that an equal id is the same object. They
        # are those of one node's rules, and so of one release.
        like, for_gates, found = shared.views.get((id(gates), unmanaged), lambda: (pod, gates, look()))
        if for_gates is not gates:
            return look()
        return found if like is pod else replace(found, uid=pod.metadata.uid, spec=pod)

    # States at rest

    def pack(self, state: StateMessage) -> PackedState:
        """Compress a state, to keep while nothing asks for it."""
        return pack_state(to_json(state), _uids(state))

    def unpack(self, at_rest: PackedState) -> StateMessage:
        """Return the state of `pack`. Raises `InputError` for damaged bytes."""
        return self.state(unpack_state(at_rest))
