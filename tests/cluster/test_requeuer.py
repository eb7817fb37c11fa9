"""Requeues of pods that are not nominated, once there is room that only journals show: which, how soon, and how
rarely."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from e2e.hollow_nodes import HollowJournals, HollowNodes

from podslice.cluster.extender.messages import BindRequest
from podslice.cluster.nominate.nominator import NominationLimits
from podslice.cluster.nominate.requeuer import RequeueLimits
from podslice.cluster.service import ServiceSettings
from podslice.replica.events import encode
from podslice.service.clusterobjects import ScheduledPod, read_node
from tests.clock import run
from tests.cluster.bench import LIKE, filter_body, node_object, pod_object, scheduled_pod, shared_pod, wire_service
from tests.cluster.fake_api import FakeClusterApi, Json

APART: Json = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
"""Whose pod is not nominated ahead."""
NOWHERE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def picky(name: str, cpus: str = "8", **spec: Any) -> Json:
    """A pod that is not nominated ahead."""
    return pod_object(name, cpus, affinity=APART, **spec)


class Scene:
    """A service beside nodes of 7 and 8 CPUs on two NUMA nodes. `troubles` are the failures that it reported."""

    def __init__(self, *names: str, heard: Sequence[str] | None = None, **settings: Any) -> None:
        self.now = 0.0
        self.names = names
        self.api = FakeClusterApi()
        self.troubles: list[str] = []
        self.nodes = HollowNodes(names, None, like=LIKE)
        self.journals = HollowJournals(self.nodes.source)
        self.nodes.send = self.journals.feed
        self.service = wire_service(
            self.api, self.journals, ServiceSettings(**settings), clock=lambda: self.now,
            trouble=lambda where, what: self.troubles.append(f"{where}: {what}"),
        )  # fmt: skip
        self._pods: dict[str, ScheduledPod] = {}
        for name in names:
            self.service.nodes.on_change(None, read_node(json.dumps(node_object(name)).encode()))
        self.journals.catch_up(names if heard is None else heard)
        self.service.pods.ready = True

    def watch_pod(self, document: Json) -> None:
        """The watch says so, to the service and to the node."""
        new = scheduled_pod(document)
        old = self._pods.get(new.uid)
        self._pods[new.uid] = new
        self.service.pods.on_change(old, new)
        self.nodes.pod_changed(None if old is None or not old.node else old, new)

    def ask(self, document: Json, *names: str) -> list[str]:
        """Return the nodes that the scheduler gets of these, or of all."""
        answer: Any = self.service.extender.filter(filter_body(document, list(names or self.names)))
        found: list[str] = json.loads(answer.body)["NodeNames"]
        return found

    def refuse(self, document: Json, *names: str) -> None:
        """A pod comes, and none of these nodes, or of all, takes it."""
        self.watch_pod(document)
        assert self.ask(document, *names) == []

    def fill(self, *nodes: str) -> None:
        """The larger NUMA node of each is taken."""
        for node in nodes or self.names:
            self.watch_pod(pod_object(f"fill-{node}", "8", node))

    def leave(self, node: str) -> None:
        """Remove the pod that fills it, by its journal alone."""
        self.nodes.send(node, encode(self.nodes.nodes[node].remove(f"uid-fill-{node}")))

    def come(self, node: str) -> None:
        """The same pod is there again."""
        why, stamped = self.nodes.nodes[node].admit(scheduled_pod(pod_object(f"fill-{node}", "8", node)).pod)
        assert not why
        self.nodes.send(node, encode(stamped))

    async def seconds(self, count: int = 3) -> list[str]:
        """Nodes that were said to have room meanwhile."""
        before = len(self.api.woken)
        for _ in range(count):
            self.now += 1.0
            self.service.placing.expire()
            await asyncio.sleep(1.0)
        return self.api.woken[before:]


def playing(scene: Scene, test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(scene.service.requeuer.run())
        try:
            await test(scene)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_room_that_only_the_journal_shows() -> None:
    """The node that takes the pod again is said to have room, once, and by the second; nothing is said while there is
    no room, of other nodes, or when the pod has its node."""

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.refuse(picky("p"))
        assert await scene.seconds(10) == []
        scene.leave("b")
        assert await scene.seconds(2) == ["b"]
        assert await scene.seconds(400) == []
        assert scene.service.placing.model.holds() == ()
        assert scene.service.metrics.registry.get_sample_value("podslice_cluster_pods_refused") == 1
        written = {"kind": "wake", "result": "done"}
        assert scene.service.metrics.registry.get_sample_value("podslice_cluster_api_writes_total", written) == 1
        assert scene.ask(picky("p")) == ["b"]
        scene.watch_pod(picky("p", node="b"))
        assert scene.service.requeuer.waiting == 0
        scene.leave("a")
        assert await scene.seconds(10) == []

    playing(Scene("a", "b"), test)


def test_pods_that_are_not_requeued() -> None:
    """No Node is annotated for a pod without exclusive resources, one that is nominated ahead, of another scheduler, or
    gone; nor for one that was never refused by that node."""

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.watch_pod(shared_pod("shared") | {"spec": {**shared_pod("shared")["spec"], "affinity": APART}})
        assert scene.ask(shared_pod("shared")) == ["a", "b"]
        scene.refuse(pod_object("simple", "8"))
        scene.refuse(picky("foreign", schedulerName="other"))
        scene.refuse(picky("gone"))
        scene.service.pods.on_change(scene._pods["uid-gone"], None)
        scene.ask(picky("late"), "b")
        scene.refuse(picky("odd", tolerations=5))
        scene.refuse(picky("elsewhere", priority=1), "a")
        scene.leave("b")
        assert await scene.seconds(10) == []
        assert scene.service.requeuer.waiting == 1
        scene.leave("a")
        assert await scene.seconds() == ["a"]

    playing(Scene("a", "b"), test)


@pytest.mark.parametrize("settings", [{"nominate": False}, {"nominate": False, "advise": True}, {"wake": False}])
def test_settings(settings: dict[str, bool]) -> None:
    """Without nominations every pod is requeued; with `wake` off none."""

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.refuse(picky("p") if "wake" in settings else pod_object("p", "8"))
        scene.leave("a")
        assert await scene.seconds() == ([] if "wake" in settings else ["a"])

    playing(Scene("a", **settings), test)


def test_lines_that_are_full() -> None:
    """A pod that would be nominated ahead, if not so many kinds of them waited already."""

    async def test(scene: Scene) -> None:
        scene.service.nominator.limits = NominationLimits(lines=1)
        scene.fill()
        for number in range(2):
            scene.refuse(pod_object(f"p{number}", "8", priority=number))
        assert (scene.service.nominator.waiting, scene.service.requeuer.waiting) == (1, 1)
        scene.leave("a")
        assert await scene.seconds() == ["a"]

    playing(Scene("a"), test)


def test_a_hold_that_falls() -> None:
    """An expired hold is room."""

    async def test(scene: Scene) -> None:
        scene.watch_pod(picky("first"))
        assert scene.ask(picky("first")) == ["a"]
        scene.refuse(picky("p"))
        assert await scene.seconds(25) == []
        assert await scene.seconds(10) == ["a"]

    playing(Scene("a"), test)


def test_a_node_that_is_heard_again() -> None:
    """A node that was unconfirmed, and one that was unknown before its state came, are room."""

    async def test(scene: Scene) -> None:
        scene.service.placing.confirm("a", confirmed=False)
        scene.refuse(picky("p"))
        assert await scene.seconds() == []
        scene.service.placing.confirm("a", confirmed=True)
        assert await scene.seconds() == ["a"]
        assert await scene.seconds(100) == []
        scene.journals.catch_up(["new"])
        assert await scene.seconds() == ["new"]

    playing(Scene("a", "new", heard=["a"]), test)


def test_a_node_that_is_trusted_again() -> None:
    """A minute after a node did otherwise than expected it gets such pods again."""

    async def test(scene: Scene) -> None:
        model = scene.service.placing.model
        signature = model.classes.signature(scheduled_pod(picky("p")).pod)
        model.verdicts.distrust(signature, model.node("a"), scene.now)
        scene.refuse(picky("p"))
        assert await scene.seconds(55) == []
        assert await scene.seconds(10) == ["a"]

    playing(Scene("a"), test)


@pytest.mark.slow
def test_the_less_it_helps() -> None:
    """Room that is gone before the scheduler asks has the pod requeued more and more rarely, every five minutes in the
    end; once a pod of its kind has found a node, or nothing has happened for a while, at once again."""

    async def flicker(scene: Scene, seconds: int) -> list[int]:
        """Room comes and goes every second; the seconds between two wakes."""
        times = []
        for second in range(seconds):
            scene.leave("a")
            times += [second] * len(await scene.seconds(1))
            scene.come("a")
            scene.ask(picky("p"))
        return [later - sooner for sooner, later in pairwise(times)]

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.refuse(picky("p"))
        scene.refuse(picky("q"))
        gaps = await flicker(scene, 1500)
        assert gaps[:6] == [1, 2, 4, 8, 16, 32]
        assert gaps[8:] == [256, 300, 300, 300]
        scene.watch_pod(picky("q", node="elsewhere"))
        assert (await flicker(scene, 10))[:2] == [1, 2]
        assert await scene.seconds(80) == []
        scene.leave("a")
        assert await scene.seconds(2) == ["a"]

    playing(Scene("a"), test)


def test_no_storm() -> None:
    """Fifty kinds of pods and thirty nodes that have room at once: a Node or two a second, and few in all, since each
    has every refused pod tried again."""

    async def test(scene: Scene) -> None:
        scene.fill()
        for number in range(50):
            scene.refuse(picky(f"p{number}", priority=number))
        for name in scene.names:
            scene.leave(name)
        for _ in range(60):
            assert len(await scene.seconds(1)) <= RequeueLimits().nodes
        assert scene.api.woken == ["n0"] * 4

    playing(Scene(*(f"n{number}" for number in range(30))), test)


def test_a_crowd() -> None:
    """With thousands of waiting pods the scheduler has the time to try all of them before the next requeue."""

    async def test(scene: Scene) -> None:
        scene.service.nominator._line_of |= dict.fromkeys(map(str, range(20_000)), "others")
        scene.fill()
        scene.refuse(picky("p"))
        scene.refuse(picky("q", priority=1))
        scene.leave("a")
        assert await scene.seconds(2) == ["a"]
        scene.leave("b")
        assert await scene.seconds(18) == []
        assert await scene.seconds(4) == ["b"]

    playing(Scene("a", "b"), test)


def test_refused_before_the_service_began() -> None:
    """Pods that the first list shows as refused are requeued for any node that comes to take them."""

    async def test(scene: Scene) -> None:
        scene.fill("a")
        scene.service.pods.ready = False
        for document in (picky("p"), picky("q"), pod_object("simple", "8"), picky("r", nodeSelector={"zone": "x"})):
            scene.watch_pod(document | {"status": {**document["status"], **NOWHERE}})
        shared = shared_pod("s")
        scene.watch_pod(shared | {"status": NOWHERE, "spec": {**shared["spec"], "affinity": APART}})
        odd = picky("odd", tolerations=5)
        scene.watch_pod(odd | {"status": NOWHERE})
        scene.service.pods.ready = True
        assert scene.service.requeuer.waiting == 3
        assert await scene.seconds() == []
        scene.journals.catch_up(["b"])
        assert await scene.seconds() == ["b"]

    playing(Scene("a", "b", heard=["a"]), test)


def test_a_server_that_does_not_do_it() -> None:
    """It is reported, tried again later, more and more rarely, and done once it can be; a node that is gone is no
    failure."""

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.refuse(picky("p"))
        scene.api.refuse = 403
        scene.leave("a")
        assert await scene.seconds(20) == []
        assert scene.troubles == ["wake: refused"] * 5
        scene.api.refuse = 404
        assert await scene.seconds(20) == []
        assert len(scene.troubles) == 5
        scene.api.refuse, scene.api.broken = 0, "no connection"
        assert await scene.seconds(40) == []
        assert scene.troubles[5:] == ["wake: no connection"]
        scene.api.broken = ""
        assert await scene.seconds(70) == ["a"]
        assert await scene.seconds(400) == []
        scene.api.broken = "no connection"
        scene.come("a")
        for number in range(9):
            scene.refuse(picky(f"p{number}", priority=number + 1))
        before = len(scene.troubles)
        scene.leave("a")
        for _ in range(9):
            await scene.seconds(1)
            assert len(scene.troubles) == before + 1
            before += 1

    playing(Scene("a"), test)


def test_pods_on_their_way_are_left_alone() -> None:
    """A pod that is held is not requeued; its hold may still fall, and then it is."""

    async def test(scene: Scene) -> None:
        scene.fill()
        scene.refuse(picky("p"))
        scene.leave("a")
        assert scene.ask(picky("p"), "a") == ["a"]
        assert scene.service.placing.bind(BindRequest("p", "default", "uid-p", "a")).error == ""
        scene.leave("b")
        assert await scene.seconds(5) == []
        scene.service.placing.model.unbind("uid-p")
        assert len(await scene.seconds(5)) == 1

    playing(Scene("a", "b"), test)


def test_so_many_kinds() -> None:
    """Kinds beyond so many wait as long as the scheduler has them wait; each is forgotten with its last pod."""

    async def test(scene: Scene) -> None:
        requeuer = scene.service.requeuer
        requeuer.limits = RequeueLimits(kinds=2)
        scene.fill()
        for number in range(3):
            scene.refuse(picky(f"p{number}", priority=number))
        assert requeuer.waiting == 2
        scene.service.pods.on_change(scene._pods["uid-p0"], None)
        assert scene.ask(picky("p2", priority=2)) == []
        assert requeuer.waiting == 2
        for number in (1, 2):
            scene.service.pods.on_change(scene._pods[f"uid-p{number}"], None)
        assert (requeuer.waiting, len(requeuer._kinds)) == (0, 0)

    playing(Scene("a"), test)
