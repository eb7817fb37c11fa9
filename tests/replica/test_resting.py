"""Replicas that are not read are a few bytes, and values that nodes have in common are there once."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice.node.holding import digest
from podslice.replica.events import Stamped, WholeState, decode, encode
from podslice.replica.journal import Journal
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.replica.shared_values import Latest, SharedValues
from podslice.replica.state_message import state_message
from podslice.replica.state_packing import PackedState, pack_state, unpack_state
from podslice.replica.stream_messages import Beat, decode_up, encode_message
from podslice.replica.uids import is_among, pack_uids
from podslice.values.errors import InputError
from tests.conftest import make_node, make_pod
from tests.replica.lives import VERSION, Life


def adopted(rulebook: Rulebook, stamped: Stamped) -> Replica:
    replica = Replica(rulebook, {VERSION})
    assert replica.apply(rulebook.common.decode(encode(stamped))).outcome == "adopted"
    return replica


def told_node(*uids: str) -> Stamped:
    node = make_node()
    for uid in uids:
        assert node.admit(make_pod(uid, ("c", "2"))).admitted
    return Journal(node.rules, node.state, epoch=1, version=VERSION).whole_state()


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**9), profile=st.sampled_from(("podslice", "kubelet-1.36")))
def test_rest_changes_nothing(seed: int, profile: str) -> None:
    """A replica that rests after every event of any life comes to the same digests, and has the same pods."""
    life, rulebook = Life(seed, profile), Rulebook()
    other = Replica(rulebook, {VERSION})
    for stamped in life.steps(12):
        applied = other.apply(rulebook.common.decode(encode(stamped)))
        assert applied.outcome in ("equal", "adopted"), applied.why
        other.rest()
        assert other.proven
        assert other.has_state
        assert other.has("nobody") is False
        assert all(other.has(uid) for uid in life.node.state.pods)
    assert other.state is not None
    assert digest(other.state) == other.digest == digest(life.node.state)
    assert state_message(other.state) == state_message(life.node.state)


def test_whoever_was_not_asked_for_longest_rests() -> None:
    """Of three replicas two are at hand; asking for the third makes another one rest."""
    rulebook = Rulebook(warm=2)
    replicas = [adopted(rulebook, told_node(uid)) for uid in ("a", "b", "c")]
    assert [one._state is None for one in replicas] == [True, False, False]
    assert replicas[0].proven
    assert replicas[0].state is not None
    assert [one._state is None for one in replicas] == [False, True, False]
    rulebook.forget(replicas[0])
    assert replicas[1].state is not None
    assert [one._state is None for one in replicas] == [False, False, False]


UUIDS = tuple(f"{n:08x}-7c1f-4e5d-9a6b-{n * 7919 % 16**12:012x}" for n in (1, 77, 2, 40000, 5))


@pytest.mark.parametrize("uids", [UUIDS, ("static-pod", *UUIDS[:2], "ab" * 16), ("a",), ()])
def test_uids_are_kept_beside_a_packed_state(uids: tuple[str, ...]) -> None:
    """At rest a pod's UID is there once, in 16 bytes, wherever the state names it; the state is the same again."""
    common, state = SharedValues(), told_node(*uids).event.state
    packed = common.pack(state)
    assert packed.uids == pack_uids(uids)
    assert common.unpack(packed) == state
    longer = SharedValues().pack(told_node(*(uid[::-1] for uid in uids)).event.state)
    assert len(packed.data) <= len(longer.data) - 15 * sum(uid in UUIDS for uid in uids)


@given(
    st.lists(st.tuples(st.sampled_from((*UUIDS, "static-pod")), st.sampled_from(("", "_c_0", "é")))), st.integers(0, 5)
)
def test_in_any_order(named: list[tuple[str, str]], count: int) -> None:
    """Whichever pods a state names, in whatever order and however often, its bytes are the same again."""
    data = msgspec.json.encode([uid + behind for uid, behind in named])
    assert unpack_state(pack_state(data, UUIDS[:count])) == data


def test_naming_pods_again_takes_hardly_anything() -> None:
    """A state with forty pods that names all of them three times more takes a few bytes more, not three for each."""
    uids = [f"{n * 2654435761 % 2**32:08x}-7c1f-4e5d-9a6b-{n * 7919 % 16**12:012x}" for n in range(40)]
    once, often = (pack_state(msgspec.json.encode([uids] * times), uids).data for times in (1, 4))
    assert len(often) < len(once) + 40


@pytest.mark.parametrize("data", [b'"\xfea', b'"\xfe\x00', b'"\xff\x00', b'"\xff\xed\xa0\x80'])
def test_damaged_places(data: bytes) -> None:
    """A packed state that names a pod that is not on its node is an `InputError`, whatever the place."""
    packing = zlib.compressobj(wbits=-15)
    damaged = PackedState(packing.compress(data) + packing.flush())
    with pytest.raises(InputError, match="place"):
        unpack_state(damaged)


def test_no_text_is_taken_for_a_uid() -> None:
    """A UID of no pod of the node, and bytes that stand for UIDs elsewhere, stay what they are."""
    stamped = told_node(UUIDS[0])
    data = encode(stamped)
    before = b'"state":{"pods":'
    assert before in data
    foreign = data.replace(before, b'"state":{"deferred":["%b"],"pods":' % UUIDS[1].encode())
    found = SharedValues().decode(foreign).event
    assert SharedValues().unpack(found.packed).deferred == (UUIDS[1],)
    with pytest.raises(InputError):
        SharedValues().decode(data.replace(before, b'"state":{"deferred":["\xff\x00"],"pods":'))
    with pytest.raises(InputError):
        SharedValues().decode(data.replace(before, b'"state":{"deferred":["\xffa"],"pods":'))
    skipped = data.replace(b'"metadata":{', b'"metadata":{"unknown":"\xffa",', 1)
    assert skipped != data
    found = SharedValues().decode(skipped).event
    assert SharedValues().unpack(found.packed) == found.state == stamped.event.state


def test_equal_parts_are_one_object() -> None:
    """Two nodes share their setup and their rules, and pods of equal specifications share those; nothing else."""
    rulebook = Rulebook()
    one, two = adopted(rulebook, told_node("a", "b")), adopted(rulebook, told_node("c"))
    assert one.rules is two.rules
    assert one.state is not None
    assert two.state is not None
    a, b, c = one.state.pods["a"], one.state.pods["b"], two.state.pods["c"]
    assert a.spec.spec is b.spec.spec is c.spec.spec
    assert a.containers is c.containers
    assert [pod.uid for pod in (a, b, c)] == [pod.spec.metadata.uid for pod in (a, b, c)] == ["a", "b", "c"]


def test_the_same_is_read() -> None:
    """Decoding with shared values gives the same as without, for events, beats, and each field of a whole state."""
    stamped, common = told_node("a"), SharedValues()
    assert isinstance(stamped.event, WholeState)
    stamped = replace(stamped, event=replace(stamped.event, observed=True))
    read, plain = common.decode(encode(stamped)), decode(encode(stamped))
    assert isinstance(read.event, WholeState)
    assert isinstance(plain.event, WholeState)
    assert read.digest == plain.digest
    for field in msgspec.structs.fields(WholeState):
        assert getattr(read.event, field.name) == getattr(plain.event, field.name), field.name
    beat = Beat(1, 2, "a", "b")
    assert decode_up(encode_message(beat), common) == beat
    life = Life(5, "podslice")
    for one in life.steps(10):
        if not isinstance(one.event, WholeState):
            assert decode_up(encode_message(one), common) == decode(encode(one))


_HEAD = b'{"kind":"Event","epoch":1,"sequence":1,"allocation":"","named":"","event":'


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"kind":"Event"}', _HEAD + b"{}}", _HEAD + b'{"type":"State","version":"1","setup":1}}']
)
def test_nonsense(data: bytes) -> None:
    """Anything but an event is an `InputError`, as before."""
    with pytest.raises(InputError):
        SharedValues().decode(data)


def test_latest() -> None:
    """Only so many values are kept, those that were asked for last."""
    made: list[int] = []
    latest: Latest[int, int] = Latest(2)
    for key in (1, 2, 1, 3, 1, 2):
        assert latest.get(key, lambda key=key: made.append(key) or key) == key  # type: ignore[misc,func-returns-value]
    assert made == [1, 2, 3, 2]


def test_names() -> None:
    """A name is found as a whole only, and not at all among none."""
    names = pack_uids(["ab", "c"])
    assert [is_among(one, names) for one in ("ab", "c", "a", "b", "")] == [True, True, False, False, False]
    assert not is_among("", pack_uids([]))
