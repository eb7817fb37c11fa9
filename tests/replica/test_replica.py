"""A replica that follows a node's journal is that node, and notices whenever it is not."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import ResourceRequirements
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.holding import digest
from podslice.replica.differences import differences
from podslice.replica.events import PodAdmitted, Stamped, WholeState, decode, encode
from podslice.replica.journal import Journal
from podslice.replica.json_values import from_json, to_json
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.replica.state_message import state_message
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity
from tests.conftest import make_node, make_pod
from tests.replica.lives import VERSION, Life

PROFILES = ("podslice", "kubelet-1.36")


def replica() -> Replica:
    return Replica(Rulebook(), {VERSION})


def over_the_wire(stamped: Stamped) -> Stamped:
    data = encode(stamped)
    read = decode(data)
    assert encode(read) == data
    return read


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9), profile=st.sampled_from(PROFILES))
def test_digests_are_equal_after_every_event(seed: int, profile: str) -> None:
    """Whatever happens on a node of any kind, a replica that hears of it comes to the same digests, event by event."""
    life, other = Life(seed, profile), replica()
    for stamped in life.steps(25):
        applied = other.apply(over_the_wire(stamped))
        assert applied.outcome in ("equal", "adopted"), applied.why
        assert applied.outcome == "equal" or isinstance(stamped.event, WholeState)
        assert other.proven
        assert other.digest == stamped.digest
    assert other.digest == digest(life.node.state)
    assert other.missing is None


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9), profile=st.sampled_from(PROFILES), at=st.integers(0, 20))
def test_a_state_decides_on_as_the_node(seed: int, profile: str, at: int) -> None:
    """A replica that adopts the state in the middle of a life follows the rest of it without a mismatch."""
    life, other = Life(seed, profile), replica()
    for _ in range(at):
        life.happen()
    for stamped in life.steps(12):
        assert other.apply(over_the_wire(stamped)).outcome in ("equal", "adopted")
    assert state_message(other.state) == msgspec.structs.replace(
        state_message(life.node.state), leftovers=other.state.leftovers
    )


def disturbed(events: list[Stamped], rng: random.Random) -> list[Stamped]:
    """The events with some lost, doubled and moved."""
    told_events = [one for one in events if rng.random() > 0.2]
    told_events += rng.sample(told_events, len(told_events) // 4)
    for _ in range(5):
        one = rng.randrange(len(told_events))
        told_events.insert(rng.randrange(len(told_events)), told_events.pop(one))
    return told_events


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9), profile=st.sampled_from(PROFILES))
def test_lost_doubled_and_moved_events_are_noticed_and_healed(seed: int, profile: str) -> None:
    """Lost events are requested, doubled ones are skipped; while it is proven, the replica is right."""
    life, other, rng = Life(seed, profile), replica(), random.Random(seed)
    events = list(life.steps(20))
    digests = {one.sequence: one.digest for one in events}
    for stamped in disturbed(events, rng):
        outcome = other.apply(stamped).outcome
        assert outcome != "mismatch"
        assert outcome not in ("equal", "adopted") or other.digest == digests[other.sequence]
    for _ in range(2):
        if (wanted := other.missing) is not None:
            missing = (life.journal.whole_state(),) if wanted.state else life.journal.events_after(*wanted[:2])
            for stamped in missing:
                other.apply(stamped)
    last = life.journal.events_after(life.journal.epoch, other.sequence)
    assert all(other.apply(one).outcome == "equal" for one in last)
    assert other.proven
    assert other.digest == digest(life.node.state)


def node_and_journal(epoch: int = 1) -> tuple[Node, Journal]:
    node = make_node()
    return node, Journal(node.rules, node.state, epoch=epoch, version=VERSION)


def admit(node: Node, journal: Journal, uid: str, cpus: str = "2") -> Stamped:
    before, pod = node.state, make_pod(uid, ("c", cpus))
    assert node.admit(pod).admitted
    return journal.record_admission(node.rules, before, node.state, pod)


def test_an_event_is_small() -> None:
    """The admission of an ordinary pod takes less than 600 bytes on the wire."""
    node, journal = node_and_journal()
    assert len(encode(admit(node, journal, "p1"))) < 600


def test_a_mismatch_is_adopted_and_both_states_are_kept() -> None:
    """A node that has done something else than the core would is believed, at once, and what the replica thought is
    there for the log."""
    node, journal = node_and_journal()
    other = replica()
    other.apply(journal.whole_state())
    true = admit(node, journal, "p1")
    lie = replace(true, allocation="0" * 32)
    applied = other.apply(lie)
    assert (applied.outcome, other.proven) == ("mismatch", False)
    assert applied.mine is not None
    assert "p1" in applied.mine.pods
    assert other.missing == (1, 0, True)
    assert other.apply(true).outcome == "gap"
    healed = other.apply(journal.whole_state())
    assert healed.outcome == "adopted"
    assert healed.mine is applied.mine
    assert healed.theirs is other.state
    assert other.proven


def test_another_result_is_a_mismatch_whatever_the_digest() -> None:
    """An event whose result is not what its digest says does not pass."""
    node, journal = node_and_journal()
    other = replica()
    other.apply(journal.whole_state())
    true = admit(node, journal, "p1")
    assert isinstance(true.event, PodAdmitted)
    nothing = replace(true.event.holding, containers=())
    assert other.apply(replace(true, event=replace(true.event, holding=nothing))).outcome == "mismatch"


def test_another_epoch_needs_the_state() -> None:
    """After a new start of the agent nothing counts until its state is there."""
    node, journal = node_and_journal()
    other = replica()
    other.apply(journal.whole_state())
    again = Journal(node.rules, node.state, epoch=2, version=VERSION)
    event = admit(node, again, "p1")
    assert other.apply(event).outcome == "otherEpoch"
    assert not other.proven
    assert other.apply(again.whole_state()).outcome == "adopted"
    assert other.proven


def test_another_version_is_not_predicted() -> None:
    """A node whose core may decide otherwise has no replica, and nothing is wanted of it."""
    node = make_node()
    journal = Journal(node.rules, node.state, epoch=1, version="another")
    other = replica()
    assert other.apply(journal.whole_state()).outcome == "otherVersion"
    assert not other.compatible
    assert not other.proven
    assert other.state is None
    assert other.missing is None
    assert other.apply(admit(node, journal, "p1")).outcome == "otherVersion"


def test_who_is_far_behind_gets_the_state() -> None:
    """A journal remembers so many events; a reader that misses earlier ones gets the whole state."""
    node = make_node()
    journal = Journal(node.rules, node.state, epoch=1, version=VERSION, kept=3)
    for number in range(4):
        admit(node, journal, f"p{number}", "500m")
    assert [one.sequence for one in journal.events_after(1, 2)] == [3, 4]
    assert [type(one.event) for one in journal.events_after(1, 0)] == [WholeState]
    assert [type(one.event) for one in journal.events_after(7, 4)] == [WholeState]
    assert journal.events_after(1, 4) == ()


def test_an_unrecorded_change_becomes_a_state() -> None:
    """A change of the node that was not recorded comes as a whole state, also right before the next event."""
    node, journal = node_and_journal()
    other = replica()
    other.apply(journal.whole_state())
    node.admit(make_pod("silent", ("c", "1")))
    admit(node, journal, "p1")
    outcomes = [other.apply(one).outcome for one in journal.events_after(1, 0)]
    assert outcomes == ["adopted", "equal"]
    assert other.digest == digest(node.state)


def test_equal_nodes_share_their_rules() -> None:
    """Replicas of nodes that differ in their names only have the same rules."""
    rulebook = Rulebook()
    replicas = []
    for name in ("one", "two"):
        machine = replace(from_synthetic("pack:2 core:4 pu:2"), name=name)
        node = Node(machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
        other = Replica(rulebook, {VERSION})
        other.apply(over_the_wire(Journal(node.rules, node.state, epoch=1, version=VERSION).whole_state()))
        replicas.append(other)
    assert replicas[0].rules is replicas[1].rules
    assert replicas[0].rules is not None


def test_a_changed_machine_is_followed() -> None:
    """CPUs that go while the node runs arrive as a state with other rules, and decisions go on equal."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    node = Node(from_synthetic("pack:2 core:4 pu:2"), config, predicates=False)
    journal, other = Journal(node.rules, node.state, epoch=1, version=VERSION), replica()
    other.apply(over_the_wire(journal.whole_state()))
    node.change_machine(from_synthetic("pack:2 core:3 pu:2"))
    journal.settle(node.rules, node.state)
    event = admit(node, journal, "p1")
    outcomes = [other.apply(over_the_wire(one)).outcome for one in journal.events_after(1, 0)]
    assert outcomes == ["adopted", "equal"]
    assert event.sequence == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: replace(s, cpu=replace(s.cpu, default=-1)), id="a negative set"),
        pytest.param(lambda s: replace(s, cpu=replace(s.cpu, default=1 << 20000)), id="an endless set"),
        pytest.param(lambda s: replace(s, used={"example.com/gpu": 1 << 70}), id="devices nobody listed"),
        pytest.param(lambda s: replace(s, cpu=replace(s.cpu, loans={"p": {"c": (-4,)}})), id="a negative CPU"),
    ],
)
def test_an_impossible_state_breaks_its_own_replica_only(change: object) -> None:
    """The messages of a lying agent end as a mismatch of its node, without an exception and without a loop."""
    _, journal = node_and_journal()
    true = journal.whole_state()
    assert isinstance(true.event, WholeState)
    lie = replace(true, event=replace(true.event, state=change(true.event.state)))  # type: ignore[operator]
    other = replica()
    assert other.apply(lie).outcome == "mismatch"
    assert not other.proven
    assert other.apply(true).outcome == "adopted"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b"[" * 100000, id="deep"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b'{"epoch":1,"sequence":1,"allocation":"","named":"","event":{"type":"Nothing"}}', id="unknown"),
        pytest.param(b'{"epoch":' + b"9" * 5000 + b"}", id="a long number"),
    ],
)
def test_what_is_no_event_is_an_input_error(data: bytes) -> None:
    """Anything that is not an event is refused with one typed error."""
    with pytest.raises(InputError, match="event"):
        decode(data)


def test_too_large_an_event_is_refused() -> None:
    """No more bytes are decoded than agreed."""
    with pytest.raises(InputError, match="too many"):
        decode(b" " * 101, limit=100)


def test_the_recorded_events_are_read() -> None:
    """The events of an earlier release are read as they were written."""
    for line in (Path(__file__).parent / "events.jsonl").read_bytes().splitlines():
        assert encode(decode(line)) == line


@pytest.mark.parametrize("text", ["1", "500m", "1.5Gi", "100Ti", "0.1", "1e3", "12E", "0.0000000001", "-3"])
def test_quantities_keep_what_decides(text: str) -> None:
    """A quantity comes out as it went in, with how it was written where that decides."""
    before = Quantity.parse(text)
    for one in (before, Quantity(before.nano, before.format, before.scale, before.text, small=not before.small)):
        data = to_json(ResourceRequirements({"cpu": one}))
        after = (from_json(data, ResourceRequirements, limit=1000, what="x").requests or {})["cpu"]
        assert [getattr(after, name) for name in Quantity.__slots__] == [getattr(one, n) for n in Quantity.__slots__]


def test_differences_are_few_lines() -> None:
    """Pods with other CPUs, memory or devices are named with both; equal states give no line, and many differences a
    bounded number of lines."""
    one, other = Life(3), Life(3)
    assert differences(one.node.state, other.node.state) == ()
    for life, number in ((one, 4), (other, 60)):
        for _ in range(number):
            life.happen()
    lines = differences(one.node.state, other.node.state)
    assert 1 <= len(lines) <= 20
    assert all(len(line) < 1000 for line in lines)
