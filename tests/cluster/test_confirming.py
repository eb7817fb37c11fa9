"""Confirmation of nodes by their own stream, as long as it is alive, and what it changes for pods that wait."""

from __future__ import annotations

import asyncio
import json

import pytest

from podslice.cluster.journal.pace import STALE_SECONDS
from podslice.replica.stream_messages import Beat, encode_message
from podslice.service.clusterobjects import read_node
from tests.cluster.bench import LIKE, filter_request, node_object, pod_object, scheduled_pod
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
    asyncio.run(scene.service.placing.confirm_all(scene.journals.is_fresh))


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
    scene.service.pods.on_change(None, scheduled_pod(pod_object("p")))
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
