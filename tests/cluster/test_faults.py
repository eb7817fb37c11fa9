"""Faults between a Binding and the node's report: pods that leave, pods that come first, other versions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from podslice.cluster.model.signature_column import NOT_CONFIRMED
from podslice.replica.events import WholeState, encode
from tests.cluster.bench import Bench, filter_request, mirror_object, pod_object, scheduled_pod
from tests.cluster.fake_api import Json

NODE = "a"


def bind_pod(bench: Bench, name: str, cpus: str) -> Json:
    """A pod that was filtered and bound, and of which its node has not heard yet."""
    document = pod_object(name, cpus)
    bench.watch_pod(document, node_hears=False)
    assert bench.placing.filter(filter_request(document, [NODE])).nodes == [NODE]
    assert not bench.placing.model.bind(f"uid-{name}", NODE, bench.now).error
    bench.watch_pod(pod_object(name, cpus, NODE), node_hears=False)
    return pod_object(name, cpus, NODE)


def starts(bench: Bench, document: Json) -> None:
    """The kubelet starts the pod."""
    bench.nodes.pod_changed(None, scheduled_pod(document))


def quiet(bench: Bench) -> None:
    """Nothing is held, and the replica is the node."""
    node, replica = bench.nodes.nodes[NODE], bench.journals.nodes[NODE].replica
    assert bench.placing.model.holds() == ()
    assert replica.proven
    assert replica.digest == node.journal.digest
    assert bench.placing.model.node(NODE).base.cpus == node.node.state.cpu.default


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("leaves", [0, 1, 2])
def test_a_pod_leaves_while_others_are_bound(order: tuple[int, int], leaves: int) -> None:
    """Two different pods are bound, a third that runs leaves before, between or after their starts, in either order:
    both are admitted, with what the model expects of the node as it is by then, and nothing is disputed."""
    bench = Bench(NODE)
    bench.watch_pod(pod_object("runs", "4", NODE))
    coming = [bind_pod(bench, "two", "2"), bind_pod(bench, "three", "3")]
    assert len(bench.placing.model.holds()) == 2
    for at in range(3):
        if at == leaves:
            bench.delete_pod("runs")
        if at < 2:
            starts(bench, coming[order[at]])
    assert (bench.disputes, bench.nodes.refused) == ([], [])
    assert bench.placing.model.counts["agreed"] == 3
    quiet(bench)


def test_another_takes_the_room_of_a_bound_pod() -> None:
    """A static pod comes between the Binding and the start and takes the room: the bound pod stays on its way, because
    the node decides; no other pod is held there meanwhile. The node refuses it: that is counted and reported, such pods
    stay away for a minute, and then go there again once there is room."""
    bench = Bench(NODE)
    bench.watch_pod(pod_object("runs", "7", NODE))
    coming = bind_pod(bench, "p", "8")
    bench.watch_pod(pod_object("static", "8", NODE, schedulerName=""))
    (hold,) = bench.placing.model.holds()
    assert (hold.uid, hold.bound, hold.fits) == ("uid-p", True, False)
    assert not bench.placing.filter(filter_request(pod_object("late", "1"), [NODE])).nodes
    starts(bench, coming)
    assert [(report.uid, report.outcome.kind) for report in bench.disputes] == [("uid-p", "refused")]
    quiet(bench)
    bench.delete_pod("static")
    again = filter_request(pod_object("again", "8"), [NODE])
    assert "differently than predicted" in bench.placing.filter(again).unresolvable[NODE]
    bench.now += 59.0
    rooms = list[float]()
    bench.placing.events.room_freed.add(lambda: rooms.append(bench.now))
    bench.placing.expire()
    assert rooms == []
    bench.now += 2.0
    assert bench.placing.filter(again).nodes == [NODE]
    bench.placing.expire()
    bench.placing.expire()
    assert rooms == [bench.now], "pods in line hear of it once, whoever found out first"


@pytest.mark.parametrize("first", ["watch", "node"])
def test_bound_elsewhere(first: str) -> None:
    """A pod is held on one node and was bound to another, by a service that is gone: whether the watch or that node
    reports first, nothing stays held."""
    bench = Bench(NODE, "b")
    bench.watch_pod(pod_object("p"), node_hears=False)
    assert bench.placing.filter(filter_request(pod_object("p"), [NODE])).nodes == [NODE]
    assert not bench.placing.model.bind("uid-p", NODE, 0.0).error
    if first == "node":
        starts(bench, pod_object("p", node="b"))
    bench.watch_pod(pod_object("p", node="b"), node_hears=False)
    if first == "watch":
        starts(bench, pod_object("p", node="b"))
    quiet(bench)


@pytest.mark.parametrize("first", ["watch", "node"])
def test_static_pods(first: str) -> None:
    """A static pod has one UID at its node and its mirror another at the API server: it counts once, whichever reports
    first, and nothing is held for the mirror once the node has reported it, nor after it is gone."""
    bench = Bench(NODE)
    own = pod_object("hash", "4", NODE)
    mirror = mirror_object("uid-hash", "mirror", "4", NODE)
    free = bench.placing.model.node(NODE).state.cpus.bit_count()
    if first == "node":
        starts(bench, own)
    bench.watch_pod(mirror, node_hears=False)
    assert bench.placing.model.node(NODE).state.cpus.bit_count() == free - 4
    if first == "watch":
        starts(bench, own)
    assert (bench.disputes, bench.placing.model.node(NODE).base.cpus.bit_count()) == ([], free - 4)
    quiet(bench)
    bench.placing.pod_changed(bench.placing.pods["uid-mirror"], None)
    bench.nodes.pod_changed(scheduled_pod(own), None)
    quiet(bench)
    assert bench.placing.model.node(NODE).state.cpus.bit_count() == free


@pytest.mark.parametrize("when", ["held", "bound", "running"])
def test_deleted_in_each_state(when: str) -> None:
    """A pod that is deleted while it is held, bound or running leaves nothing behind: at once, after half a minute
    where its node never hears of it, or when its node says so."""
    bench = Bench(NODE)
    if when == "held":
        bench.watch_pod(pod_object("p"))
        assert bench.placing.filter(filter_request(pod_object("p"), [NODE])).nodes == [NODE]
    else:
        coming = bind_pod(bench, "p", "4")
        if when == "running":
            starts(bench, coming)
    bench.delete_pod("p")
    bench.now += 31.0 if when == "bound" else 0.0
    bench.placing.expire()
    quiet(bench)


def test_another_version() -> None:
    """A node whose agent becomes one of another version takes no such pods, and does again when its version is one that
    decides alike; a pod that was bound there is expected there again."""
    bench = Bench(NODE)
    bind_pod(bench, "p", "4")
    node = bench.nodes.nodes[NODE]
    node.restart()
    true = node.journal.whole_state()
    assert isinstance(true.event, WholeState)
    bench.journals.feed(NODE, encode(replace(true, event=replace(true.event, version="other"))))
    asking = filter_request(pod_object("q"), [NODE])
    assert bench.placing.filter(asking).unresolvable == {NODE: NOT_CONFIRMED}
    node.restart()
    bench.journals.feed(NODE, encode(node.journal.whole_state()))
    assert bench.placing.filter(asking).nodes == [NODE]
    assert {hold.uid for hold in bench.placing.model.holds()} == {"uid-p", "uid-q"}


def test_the_clock_jumps() -> None:
    """An hour that passes at once expires the holds of unbound pods and no others: bind holds the other pod again."""
    bench = Bench(NODE)
    coming = bind_pod(bench, "bound", "4")
    bench.watch_pod(pod_object("held", "4"))
    assert bench.placing.filter(filter_request(pod_object("held", "4"), [NODE])).nodes == [NODE]
    bench.now += 3600.0
    assert bench.placing.expire() == ["uid-held"]
    assert [hold.uid for hold in bench.placing.model.holds()] == ["uid-bound"]
    assert not bench.placing.model.bind("uid-held", NODE, bench.now, scheduled_pod(pod_object("held", "4")).pod).error
    for document in (coming, pod_object("held", "4", NODE)):
        starts(bench, document)
    quiet(bench)
