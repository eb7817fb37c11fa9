"""What the states of many nodes have in common, read once and shared.

Nodes of one make say the same long setup, and pods of one deployment have the same specification. So the bytes of both
are looked up before they are decoded: whoever has seen them takes the value that is there, and equal parts of thousands
of states are one object.

    common = Common()                      # one for a whole service; a `Rulebook` has it
    stamped = common.decode(data)          # as `events.decode`
    common.admission(policy, pod, gates)   # as `admission_of`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import ObjectMeta, Pod, PodSpec, PodStatus
from podslice.config.mixed import admission_of
from podslice.config.policy import PodslicePolicy
from podslice.replica.events import MOST_BYTES, NodeEvent, Stamped, StateTold, Why
from podslice.replica.packing import PackedState, is_text, packed, unpacked
from podslice.replica.plain import decoded, encoded
from podslice.replica.setup import Setup
from podslice.replica.told_state import ToldState

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_NO_STATUS = PodStatus()
_MOST_SETUPS, _MOST_SPECS = 256, 8192
_SETUP_BYTES, _SPEC_BYTES = 2 << 20, 1 << 20
"""Bytes of JSON whose values are kept; a value takes some ten times as much."""
_LARGEST_SPEC = 64 << 10
_MOST_LOOKS = 4


class Latest(Generic[K, V]):
    """The values that were asked for last: at most so many, of keys of at most `budget` bytes together. `gone` hears of
    values that are kept no longer."""

    def __init__(self, most: int, *, budget: int = 0, gone: Callable[[V], object] | None = None) -> None:
        self._most, self._budget, self._gone = most, budget, gone
        self._known: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where it is not there."""
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
    """The specification of many pods, and how the managers see such a pod."""

    __slots__ = ("looks", "spec")

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.looks: Latest[tuple[int, bool], tuple[Pod, Mapping[str, bool], AdmissionPod]] = Latest(_MOST_LOOKS)


class StateRead(StateTold, frozen=True, tag="State"):
    """A whole state that came as bytes; `packed` is what to keep of it."""

    packed: PackedState = PackedState(b"")


class _RawPod(msgspec.Struct, frozen=True, rename="camel"):
    spec: msgspec.Raw
    metadata: ObjectMeta = ObjectMeta()
    status: PodStatus = _NO_STATUS


class _RawTold(msgspec.Struct, frozen=True, rename="camel", tag="State"):
    version: str
    setup: msgspec.Raw
    state: msgspec.Raw
    why: Why = "started"
    observed: bool = False


class _RawStamped(msgspec.Struct, frozen=True, rename="camel", tag="Event", tag_field="kind"):
    epoch: int
    sequence: int
    allocation: str
    named: str
    event: msgspec.Raw


class _Kind(msgspec.Struct, frozen=True):
    type: str = ""


def _raw_state() -> type[msgspec.Struct]:
    """`ToldState` with pods whose specifications are still bytes."""
    fields: list[Any] = []
    for one in msgspec.structs.fields(ToldState):
        kind = tuple[_RawPod, ...] if one.name == "pods" else one.type
        made = one.default_factory
        fields.append(
            (one.name, kind, one.default if made is msgspec.NODEFAULT else msgspec.field(default_factory=made))
        )
    return msgspec.defstruct("RawState", fields, frozen=True, rename="camel", forbid_unknown_fields=True)


def _uids(state: ToldState) -> list[str]:
    return [pod.metadata.uid for pod in state.pods]


_RAW_STATE: Any = _raw_state()
_STATE_FIELDS = tuple(one.name for one in msgspec.structs.fields(ToldState) if one.name != "pods")


class Common:
    """See the module."""

    def __init__(self) -> None:
        self._setups: Latest[bytes, Setup] = Latest(_MOST_SETUPS, budget=_SETUP_BYTES)
        self._by_id: dict[int, SharedSpec] = {}
        self._specs: Latest[bytes, SharedSpec] = Latest(_MOST_SPECS, budget=_SPEC_BYTES, gone=self._forget)

    def _forget(self, shared: SharedSpec) -> None:
        self._by_id.pop(id(shared.spec), None)

    def decode(self, data: bytes, *, limit: int = MOST_BYTES) -> Stamped:
        """An event; see `events.decode`. Raises `InputError`."""
        found = decoded(data, _RawStamped, limit=limit, what="event")
        return Stamped(found.epoch, found.sequence, found.allocation, found.named, self._event(found.event))

    def _event(self, raw: msgspec.Raw) -> NodeEvent:
        path = "event.event"
        if decoded(raw, _Kind, limit=MOST_BYTES, what=path).type != "State":
            return decoded(raw, NodeEvent, limit=MOST_BYTES, what=path)  # type: ignore[arg-type]
        told = decoded(raw, _RawTold, limit=MOST_BYTES, what=path)
        setup, state = self.setup(told.setup), self.state(told.state)
        data = bytes(told.state)
        at_rest = packed(data, _uids(state)) if is_text(data) else self.pack(state)
        return StateRead(told.version, setup, state, told.why, observed=told.observed, packed=at_rest)

    def setup(self, raw: msgspec.Raw) -> Setup:
        """A setup; equal bytes, the same object. Raises `InputError`."""
        return self._setups.get(bytes(raw), lambda: decoded(raw, Setup, limit=MOST_BYTES, what="event.event.setup"))

    def state(self, raw: bytes | msgspec.Raw) -> ToldState:
        """A state whose pods share equal specifications. Raises `InputError`."""
        found = decoded(raw, _RAW_STATE, limit=MOST_BYTES, what="event.event.state")
        pods = tuple(Pod(self._spec(one.spec), one.metadata, one.status) for one in found.pods)
        return ToldState(pods, *[getattr(found, name) for name in _STATE_FIELDS])

    def _spec(self, raw: msgspec.Raw) -> PodSpec:
        def read() -> PodSpec:
            return decoded(raw, PodSpec, limit=MOST_BYTES, what="event.event.state.pods[...].spec")

        def share() -> SharedSpec:
            shared = SharedSpec(read())
            self._by_id[id(shared.spec)] = shared
            return shared

        data = bytes(raw)
        return self._specs.get(data, share).spec if len(data) <= _LARGEST_SPEC else read()

    def admission(
        self, policy: PodslicePolicy, pod: Pod, gates: Mapping[str, bool], *, unmanaged: bool = False
    ) -> AdmissionPod:
        """The managers' view of a pod; of pods with the very same specification it is worked out once, unless their
        annotations have a say."""

        def look() -> AdmissionPod:
            return admission_of(policy, pod, gates, unmanaged=unmanaged)

        if policy.mixed is not None or pod.status != _NO_STATUS:
            return look()
        shared = self._by_id.get(id(pod.spec))
        if shared is None or shared.spec is not pod.spec:
            return look()
        like, for_gates, found = shared.looks.get((id(gates), unmanaged), lambda: (pod, gates, look()))
        if for_gates is not gates:
            return look()
        return found if like is pod else replace(found, uid=pod.metadata.uid, spec=pod)

    # States that nobody asks for

    def pack(self, state: ToldState) -> PackedState:
        """What is kept of a state."""
        return packed(encoded(state), _uids(state))

    def unpack(self, at_rest: PackedState) -> ToldState:
        """The state again. Raises `InputError` for what is none."""
        return self.state(unpacked(at_rest))
