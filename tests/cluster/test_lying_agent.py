"""An agent that lies hurts its own node's entry and nothing else: the real service, its journals and its model."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from e2e.hollow_nodes import VERSION, HollowNode
from fuzz.campaign import HANG_SECONDS, mutated
from msgspec.structs import replace

from podslice.cluster.journal import replica_size
from podslice.cluster.journal.journals import Journals, NodeStream
from podslice.cluster.journal.replica_size import MOST_REPLICA, ReplicaSize
from podslice.cluster.log_lines import Log
from podslice.cluster.model.columns import MOST_NAMES, MOST_ZONES
from podslice.node.holding import Holding, digest
from podslice.node.node import Node
from podslice.replica.events import DevicesChanged, PodAdmitted, PodRefused, PodRemoved, Stamped, WholeState
from podslice.replica.journal import Journal
from podslice.replica.replica import ApplyResult
from podslice.replica.rulebook import Rulebook
from podslice.replica.state_message import PoolMessage, build_state
from podslice.replica.stream_messages import Beat, decode_up, encode_message
from podslice.service.clusterobjects import ScheduledPod, read_node
from podslice.service.pacing import LOG_SECONDS, MOST_LINES
from podslice.values.errors import InputError
from tests.cluster.bench import LIKE, node_object, pod_object, scheduled_pod, wire_service
from tests.cluster.fake_api import FakeClusterApi
from tests.conftest import make_node

CORPUS = Path(__file__).parents[1] / "corpus" / "journal"
GOOD, BAD = "good", "bad"


class LyingScene:
    """A service, an honest node, and one whose agent says whatever a test wants."""

    def __init__(self, log: Log | None = None) -> None:
        self.now = 0.0
        self.troubles: list[str] = []
        self.journals = Journals(
            Rulebook(), {VERSION}, caller=nobody, trouble=lambda where, what: self.troubles.append(what),
            clock=lambda: self.now,
        )  # fmt: skip
        self.service = wire_service(FakeClusterApi(), self.journals, clock=lambda: self.now, log=log)
        self.nodes = {name: HollowNode(name, LIKE, number + 1) for number, name in enumerate((GOOD, BAD))}
        for name, node in self.nodes.items():
            self.service.nodes.on_change(None, read_node(json.dumps(node_object(name)).encode()))
            entry = self.journals._entry(name)
            entry.stream, entry.last_message = NodeStream(), 0.0
            self.say(name, encode_message(node.journal.whole_state()))
        self.pods: dict[str, ScheduledPod] = {}

    @property
    def model(self) -> object:
        return self.service.placing.model

    def say(self, name: str, data: bytes) -> None:
        """A message arrives on the stream of a node, as `Journals` takes it in."""
        entry = self.journals.nodes[name]
        try:
            message = decode_up(data)
        except InputError:
            return
        if isinstance(message, Stamped):
            self.journals._apply(name, entry, message, len(data))
        elif isinstance(message, Beat):
            self.journals._compare(entry, message)

    def lie(self, event: object, sequence: int = 1, **changes: object) -> None:
        """An event of the bad node, with the digests of its journal unless `changes` say otherwise."""
        told = self.nodes[BAD].journal.whole_state()
        self.say(BAD, encode_message(replace(told, event=event, sequence=sequence, **changes)))

    def held(self, name: str, cpus: str = "4") -> ScheduledPod:
        """A new pod, which is held for the honest node."""
        pod = self.pods[name] = scheduled_pod(pod_object(name, cpus))
        self.service.pods.on_change(None, pod)
        placing = self.service.placing
        assert placing.model.choose(pod.pod, self.now, names=[GOOD]) == GOOD
        return pod

    def honest(self) -> None:
        """Check that the honest node's state is the true one, and confirmed."""
        node, model = self.nodes[GOOD], self.service.placing.model
        assert self.journals.is_fresh(GOOD)
        assert self.journals.nodes[GOOD].replica.digest == digest(node.node.state)
        assert model.node(GOOD).confirmed
        assert model.node(GOOD).base.cpus == node.node.state.cpu.default
        assert {hold.node for hold in model.holds()} <= {GOOD}
        planned = 0
        for hold in model.holds():
            holding = model.plan(hold.uid)
            assert holding is not None
            cpus = 0
            for one in holding.containers:
                cpus |= one.cpus
            assert not cpus & planned, "the same CPUs are promised twice"
            planned |= cpus


async def nobody(token: str) -> str:
    raise AssertionError("nobody calls here")


def whole_state_of(node: Node, epoch: int) -> Stamped:
    """Return the state that an agent of such a node would send at its start."""
    return Journal(node.rules, node.state, epoch=epoch, version=VERSION).whole_state()


def with_resources(scene: LyingScene, turn: int, count: int) -> Stamped:
    """The bad node's state with so many resources, of other names each time, and digests that fit."""
    honest = scene.nodes[BAD].journal.whole_state()
    assert isinstance(honest.event, WholeState)
    pools = {
        f"lie.example/r{turn}-{number}": PoolMessage(("d",), 1, 0, 1, 0, registered=True) for number in range(count)
    }
    state = replace(honest.event.state, pools=pools)
    return replace(honest, epoch=100 + turn, sequence=0, event=replace(honest.event, state=state))


def true_digest(scene: LyingScene, stamped: Stamped) -> Stamped:
    """The same with the digests of its state, as a liar would work them out."""
    assert isinstance(stamped.event, WholeState)
    found = digest(build_state(stamped.event.state, scene.nodes[BAD].node.rules))
    return replace(stamped, allocation=found.allocation, named=found.named)


def other_nodes_pods(scene: LyingScene, uid: str) -> Iterator[object]:
    pod = scene.pods["p"].pod
    holding = scene.service.placing.model.plan(uid)
    assert holding is not None
    yield PodAdmitted(pod, holding)
    yield PodRefused(uid, "TopologyAffinityError", "no", pod)
    yield PodRefused(uid, "UnexpectedAdmissionError")
    yield PodRemoved(uid)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.slow
def test_about_pods_of_other_nodes(which: int) -> None:
    """A pod on its way to the honest node stays so, bound or not, whatever another agent reports of it: its CPUs are
    promised to no other pod, and its own node confirms it."""
    scene = LyingScene()
    pod = scene.held("p")
    scene.held("q")
    scene.lie(list(other_nodes_pods(scene, pod.uid))[which])
    scene.honest()
    model = scene.service.placing.model
    hold = model.hold_of(pod.uid)
    assert hold is not None
    assert hold.node == GOOD
    assert not model.bind(pod.uid, GOOD, scene.now, pod.pod).error
    scene.service.pods.on_change(pod, scheduled_pod(pod_object("p", node=GOOD)))
    scene.lie(list(other_nodes_pods(scene, pod.uid))[which], 2)
    scene.honest()
    node = scene.nodes[GOOD]
    why, stamped = node.admit(pod.pod)
    assert not why
    scene.say(GOOD, encode_message(stamped))
    assert model.hold_of(pod.uid) is None
    scene.honest()
    assert model.counts["agreed"] == 1


def test_a_told_admission_of_anothers_pod() -> None:
    """An admission that the bad node's replica follows, digests and all, takes no hold from the node that the pod is on
    its way to, nor what the watch knows of the pod: when that node begins anew the pod is expected there again."""
    scene = LyingScene()
    pod = scene.held("p", "8")
    assert not scene.service.placing.model.bind(pod.uid, GOOD, 0.0, pod.pod).error
    scene.service.pods.on_change(pod, scheduled_pod(pod_object("p", "8", GOOD)))
    _, stamped = scene.nodes[BAD].admit(pod.pod)
    scene.say(BAD, encode_message(stamped))
    assert scene.journals.nodes[BAD].replica.proven
    scene.honest()
    model = scene.service.placing.model
    assert model.hold_of(pod.uid) is not None
    scene.nodes[GOOD].restart()
    scene.service.placing.model.remove_node(GOOD)
    scene.say(GOOD, encode_message(scene.nodes[GOOD].journal.whole_state()))
    found = model.hold_of(pod.uid)
    assert found is not None
    assert (found.node, found.bound) == (GOOD, True)


def test_more_resources_than_there_are() -> None:
    """A state with thousands of resources, of other names each time, takes no more memory than one: unused names are
    dropped, and the resources of one node are limited."""
    scene = LyingScene()
    table = scene.service.placing.model.verdicts.table
    for turn in range(6):
        scene.say(BAD, encode_message(true_digest(scene, with_resources(scene, turn, 1000))))
        assert scene.journals.nodes[BAD].replica.proven
        assert len(table.device_names) <= 3 * MOST_NAMES
        assert len(table.sum_names) <= 3 * MOST_NAMES
        scene.held(f"p{turn}", "1")
        scene.honest()
    assert scene.service.placing.model.choose(scene.held("last", "1").pod, 0.0) in (GOOD, BAD)


def test_more_numa_nodes_than_there_are() -> None:
    """A machine of so many NUMA nodes takes no more room in the columns than one of `MOST_ZONES`, and what it is
    asked is still right."""
    scene = LyingScene()
    huge = make_node("pack:2 numa:64(memory=1GiB) core:2 pu:1", topology_manager_policy="none")
    scene.say(BAD, encode_message(whole_state_of(huge, 7)))
    assert scene.journals.nodes[BAD].replica.proven
    model = scene.service.placing.model
    assert len(model.verdicts.table.cpus) <= MOST_ZONES
    scene.honest()
    pod = scheduled_pod(pod_object("p", "2"))
    assert model.filter(pod.pod, [GOOD], 0.0).nodes == [GOOD]
    assert model.filter(pod.pod, [BAD], 0.0).nodes == ([BAD] if huge.try_admit(pod.pod).admitted else [])


def test_beats_of_nobody() -> None:
    """Beats of other epochs, from the far future and with made up digests end the trust in their own node only."""
    scene = LyingScene()
    for beat in (Beat(5, 10**15, "", ""), Beat(2, 10**15, "x", "y"), Beat(0, -1, "", "")):
        scene.say(BAD, encode_message(beat))
        assert not scene.journals.is_fresh(BAD)
        scene.honest()


def test_mismatches_without_end_are_some_lines() -> None:
    """One node has so many lines a minute in the log; how many were left out is said with the next one."""
    scene = LyingScene()
    outcomes: list[str] = []
    scene.journals.events.applied.add(lambda node, stamped, applied: outcomes.append(applied.outcome))
    for turn in range(3 * MOST_LINES):
        scene.lie(scene.nodes[BAD].journal.whole_state().event, turn + 1, allocation=f"{turn:032x}")
    assert outcomes == ["mismatch"] * 3 * MOST_LINES
    assert len(scene.troubles) == MOST_LINES
    scene.now += LOG_SECONDS
    scene.lie(scene.nodes[BAD].journal.whole_state().event, 3 * MOST_LINES + 1, allocation="")
    assert len(scene.troubles) == MOST_LINES + 1
    assert scene.troubles[-1].endswith(f" ({2 * MOST_LINES} lines of this node were left out before)")


NASTY: dict[str, Callable[[LyingScene, int], bytes]] = {
    "another machine each time": lambda scene, turn: encode_message(
        whole_state_of(make_node(f"pack:1 numa:2(memory={turn + 1}GiB) core:4 pu:2"), 1000 + turn)
    ),
    "other resources each time": lambda scene, turn: encode_message(
        true_digest(scene, with_resources(scene, turn, 50))
    ),
    "refusals": lambda scene, turn: encode_message(
        replace(scene.nodes[BAD].journal.whole_state(), sequence=1, event=PodRefused(f"u{turn}", "r" * 100, "m" * 1000))
    ),
    "beats": lambda scene, turn: encode_message(Beat(turn, turn, f"a{turn}", f"b{turn}")),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", NASTY)
def test_memory_does_not_grow(which: str) -> None:
    """However long an agent goes on lying, what the service remembers of it stays the same."""
    scene = LyingScene()
    scene.held("p")
    sizes, turns = [], 30
    tracemalloc.start()
    try:
        for part in range(3):
            for turn in range(part * turns, (part + 1) * turns):
                scene.say(BAD, NASTY[which](scene, turn))
            scene.troubles.clear()
            scene.honest()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[1] < 512 << 10, sizes


def test_kept_bytes_are_counted() -> None:
    """Events of pods that left and resources that went count no more; beyond the bound a state is due, and counts
    alone."""
    size, pod = ReplicaSize(), scheduled_pod(pod_object("p")).pod
    for _ in range(3):
        assert size.add(PodAdmitted(pod, Holding(())), 1000)
        assert size.add(DevicesChanged({"a": PoolMessage()}), 100)
    assert size.total == 1100
    assert size.add(PodRemoved("uid-p"), 50)
    assert size.add(DevicesChanged(gone=("a",)), 50)
    assert size.total == 0
    assert not size.add(PodRefused("u", "no"), MOST_REPLICA + 1)
    scene = LyingScene()
    state = scene.nodes[BAD].journal.whole_state().event
    assert size.add(state, 10)
    assert size.total == 10


def test_pods_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that takes one pod after the other and lets none go is asked for its state once its events exceed the
    bound, is unconfirmed before it comes, and confirmed afterwards."""
    scene = LyingScene()
    monkeypatch.setattr(replica_size, "MOST_REPLICA", 20_000)
    node, replica = scene.nodes[BAD], scene.journals.nodes[BAD].replica
    for turn in range(60):
        _, stamped = node.admit(scheduled_pod(pod_object(f"endless-{turn}", "500m")).pod)
        scene.say(BAD, encode_message(stamped))
    assert replica.missing is not None
    assert replica.missing.state
    assert replica.state is not None
    assert len(replica.state.pods) < 60
    assert not scene.service.placing.model.node(BAD).confirmed
    scene.honest()
    scene.say(BAD, encode_message(node.journal.whole_state()))
    assert scene.journals.is_fresh(BAD)


ODD = (None, True, 0, -1, 1 << 62, 1 << 64, 1 << 70, 1 << 14000, 0.5, "", "x", "0-16383", "uid-p", [], {}, {"": {}})


def leaf(draw: Random, value: object) -> object:
    """Return a JSON value with a part replaced by an unexpected one."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(sorted(value))
        return {**value, key: leaf(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], leaf(draw, value[at]), *value[at + 1 :]]
    return draw.choice([*ODD, [value] * 50, {"a": value}])


@pytest.mark.slow
def test_messages_with_other_values() -> None:
    """Messages that are JSON with one value of another kind or size never raise, take no longer than a reader may, and
    leave the honest node as it is."""
    scene = LyingScene()
    scene.held("p")
    outcomes: Counter[str] = Counter()

    def counted(node: str, stamped: Stamped, applied: ApplyResult) -> None:
        outcomes[applied.outcome] += 1

    scene.journals.events.applied.add(counted)
    draw = Random(19)
    recorded = (Path(__file__).parents[1] / "replica" / "events.jsonl").read_bytes().splitlines()
    said = [*recorded, *(encode_message(scene.nodes[name].journal.whole_state()) for name in (GOOD, BAD))]
    true = encode_message(scene.nodes[BAD].journal.whole_state())
    for turn in range(4000):
        data = json.dumps(leaf(draw, json.loads(draw.choice(said)))).encode()
        if turn % 3 == 0:
            scene.say(BAD, true)
        began = time.process_time()
        scene.say(BAD, data)
        assert time.process_time() - began < HANG_SECONDS, data
        if turn % 100 == 0:
            scene.honest()
    assert min(outcomes[one] for one in ("adopted", "mismatch", "otherEpoch")) > 10, outcomes
    scene.honest()


@pytest.mark.slow
def test_mutated_messages() -> None:
    """Messages that were cut, doubled and spliced never raise or hang, and leave the honest
    node as it is; then the bad one's true state is adopted again."""
    scene = LyingScene()
    scene.held("p")
    draw, seeds = Random(18), [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    seeds += [encode_message(scene.nodes[name].journal.whole_state()) for name in (GOOD, BAD)]
    for turn in range(3000):
        data = mutated(draw, seeds)
        began = time.process_time()
        scene.say(BAD, data)
        assert time.process_time() - began < HANG_SECONDS, data
        if turn % 100 == 0:
            scene.honest()
    scene.honest()
    scene.nodes[BAD].restart()
    scene.say(BAD, encode_message(scene.nodes[BAD].journal.whole_state()))
    assert scene.journals.is_fresh(BAD)
    assert scene.service.placing.model.node(BAD).confirmed
