"""Confirmation of nodes by their own stream, as long as it is alive, and what it changes for pods that wait."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from podslice.cluster.journal.journals import NodeStream
from podslice.cluster.journal.node_states import SeenState, node_states
from podslice.cluster.journal.pace import STALE_SECONDS
from podslice.replica.events import WholeState
from podslice.replica.stream_messages import Beat, encode_message
from podslice.service.clusterobjects import read_node
from tests.cluster.bench import LIKE, filter_request, ignore, node_object, pod_object, scheduled_pod
from tests.cluster.fake_api import FakeClusterApi
from tests.cluster.recorded_log import RecordedLog
from tests.cluster.test_lying_agent import BAD, GOOD, HollowNode, LyingScene

SILENT = "node state not confirmed by its agent"


def beat(scene: LyingScene, name: str) -> None:
    """The node says that it is there, with nothing new."""
    replica = scene.journals.nodes[name].replica
    scene.journals.nodes[name].last_message = scene.now
    scene.say(
        name, encode_message(Beat(replica.epoch, replica.sequence, replica.digest.allocation, replica.digest.named))
    )


def confirm_all(scene: LyingScene) -> None:
    """Do what the service does twice a second."""
    asyncio.run(scene.service.upkeep.confirm_all())


def test_an_object_confirms_nothing() -> None:
    """A node of which only its NodeState is known takes no pod that wants something for itself, from the moment it is
    read; once its own stream says the same it does."""
    scene, name = LyingScene(), "seeded"
    scene.service.nodes.on_change(None, read_node(json.dumps(node_object(name)).encode()))
    scene.journals.seed(name, HollowNode(name, LIKE, 9).journal.whole_state())
    assert scene.journals.nodes[name].replica.proven
    document = pod_object("p")
    answer = scene.service.placing.filter(filter_request(document, [name]))
    assert (list(answer.nodes), answer.unresolvable) == ([], {name: SILENT})
    assert scene.service.placing.choose(scheduled_pod(document)) in (GOOD, BAD)


@pytest.mark.parametrize("event", [False, True])
def test_a_node_that_is_heard_again_is_room(event: bool) -> None:
    """A pod for which no node stood when it came is nominated as soon as one is heard again, though nothing else
    happens, or one of its pods has come meanwhile."""
    scene = LyingScene()
    scene.now += 2 * STALE_SECONDS
    confirm_all(scene)
    nominator = scene.service.nominator
    document = pod_object("p")
    document["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    scene.service.pods.on_change(None, scheduled_pod(document))
    pod = nominator._next()
    assert pod is not None
    nominator._nominate(pod)
    assert nominator._next() is None
    if event:
        why, stamped = scene.nodes[GOOD].admit(scheduled_pod(pod_object("other", "2")).pod)
        assert not why
        scene.journals.nodes[GOOD].last_message = scene.now
        scene.say(GOOD, encode_message(stamped))
    else:
        beat(scene, GOOD)
    confirm_all(scene)
    pod = nominator._next()
    assert pod is not None
    assert scene.service.placing.choose(pod) == GOOD
    confirm_all(scene)


def test_no_change_frees_no_room() -> None:
    """No line is tried again as long as nothing changes."""
    scene, rooms = LyingScene(), list[int]()
    scene.service.placing.events.room_freed.add(lambda: rooms.append(1))
    for name in (GOOD, BAD):
        beat(scene, name)
    confirm_all(scene)
    assert rooms == []
    scene.now += 2 * STALE_SECONDS
    confirm_all(scene)
    assert rooms == []
    for name in (GOOD, BAD):
        beat(scene, name)
    confirm_all(scene)
    assert rooms == [1]


def metric(scene: LyingScene, series: str) -> float:
    """The value of a series of the service."""
    lines = scene.service.metrics.text().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.split()[0] == f"podslice_cluster_{series}")
    return float(value)


def unproven(scene: LyingScene) -> dict[str, int]:
    """The causes for which nodes are not proven, as the metrics count them."""
    causes = ("noStream", "silent", "otherVersion", "outOfStep")
    found = {cause: int(metric(scene, f'nodes_unproven{{cause="{cause}"}}')) for cause in causes}
    return {cause: count for cause, count in found.items() if count}


def test_metrics_count_what_filter_takes() -> None:
    """An agent that is killed, or falls silent, ends the proof of its node in the metrics as in filter; a node that
    never had an agent is counted with the nodes only; changes are logged once, with the cause."""
    log = RecordedLog()
    scene = LyingScene(log=log)
    scene.service.nodes.on_change(None, read_node(json.dumps(node_object("bare")).encode()))
    names = [GOOD, BAD, "bare"]

    def taken() -> int:
        request = scheduled_pod(pod_object("p")).pod
        return sum(len(scene.service.placing.model.filter(request, [name], scene.now).nodes) for name in names)

    confirm_all(scene)
    assert [metric(scene, name) for name in ("nodes", "nodes_with_agent", "nodes_proven")] == [3, 2, 2]
    assert (taken(), unproven(scene)) == (2, {})
    assert log.lines == [("nodes confirmed", {"count": 2, "nodes": [GOOD, BAD]})]

    scene.journals.nodes[BAD].stream = None  # its agent was killed
    confirm_all(scene)
    assert (metric(scene, "nodes_proven"), taken(), unproven(scene)) == (1, 1, {"noStream": 1})
    assert log.lines[1:] == [("nodes lost", {"cause": "noStream", "count": 1, "nodes": [BAD]})]

    scene.now += 2 * STALE_SECONDS
    confirm_all(scene)
    confirm_all(scene)
    assert (metric(scene, "nodes_proven"), taken()) == (0, 0)
    assert unproven(scene) == {"noStream": 1, "silent": 1}
    assert log.lines[2:] == [("nodes lost", {"cause": "silent", "count": 1, "nodes": [GOOD]})]

    beat(scene, GOOD)
    confirm_all(scene)
    assert (metric(scene, "nodes_proven"), taken()) == (1, 1)
    assert log.lines[3:] == [("nodes confirmed", {"count": 1, "nodes": [GOOD]})]

    gone = read_node(json.dumps(node_object(BAD)).encode())
    scene.service.nodes.on_change(gone, None)
    confirm_all(scene)
    assert [metric(scene, name) for name in ("nodes", "nodes_with_agent", "nodes_proven")] == [2, 1, 1]
    assert unproven(scene) == {}


def test_an_agent_that_was_taken_away() -> None:
    """A node whose agent was removed on purpose is missed until its NodeState is deleted; one with a stream stays."""
    scene = LyingScene()
    states = node_states(FakeClusterApi(), scene.journals, trouble=ignore)
    scene.journals.nodes[BAD].stream = None
    asyncio.run(scene.service.upkeep.confirm_all())
    assert (metric(scene, "nodes_with_agent"), unproven(scene)) == (2, {"noStream": 1})
    for name in (GOOD, BAD):
        states.put(SeenState(name, None))
        states.drop(name)
    asyncio.run(scene.service.upkeep.confirm_all())
    assert (metric(scene, "nodes_with_agent"), metric(scene, "nodes_proven"), unproven(scene)) == (1, 1, {})
    assert not scene.service.placing.model.node(BAD).confirmed


def test_states_of_objects_prove_nothing_in_metrics() -> None:
    """A node of which only its NodeState is known had an agent, and is not proven; one of another version has a stream
    and is not proven either. Neither was confirmed before, so neither is logged as lost."""
    log = RecordedLog()
    scene = LyingScene(log=log)
    confirm_all(scene)
    for name in ("seeded", "newer"):
        scene.service.nodes.on_change(None, read_node(json.dumps(node_object(name)).encode()))
    scene.journals.seed("seeded", HollowNode("seeded", LIKE, 9).journal.whole_state())
    stamped = HollowNode("newer", LIKE, 9).journal.whole_state()
    entry = scene.journals._entry("newer")
    entry.stream, entry.last_message = NodeStream(), scene.now
    assert isinstance(stamped.event, WholeState)
    scene.say("newer", encode_message(replace(stamped, event=replace(stamped.event, version="9.9.9"))))
    confirm_all(scene)
    assert [metric(scene, name) for name in ("nodes", "nodes_with_agent", "nodes_proven")] == [4, 4, 2]
    assert unproven(scene) == {"noStream": 1, "otherVersion": 1}
    assert [event for event, _ in log.lines] == ["nodes confirmed"]
