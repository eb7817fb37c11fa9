"""Pods of lower priority that leave for one that topology keeps out: who, in which order, and who never does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from podslice.cluster.extender.messages import BindRequest
from podslice.cluster.nominate.evictor import EvictionLimits, Evictor
from podslice.cluster.nominate.nominator import Nominator
from podslice.service.clusterobjects import ScheduledPod
from tests.clock import run
from tests.cluster.bench import Bench, filter_request, mirror_object, pod_object
from tests.cluster.fake_api import FakeClusterApi, Json

NOWHERE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]


def refused_pod(name: str, cpus: str = "6", priority: int = 10, **spec: Any) -> Json:
    """A pod for which its scheduler has found no node."""
    pod = pod_object(name, cpus, priority=priority, **spec)
    return pod | {"status": {**pod["status"], "conditions": NOWHERE}}


class Scene:
    """An evictor beside nodes of 7 and 8 CPUs on two NUMA nodes. Pods leave when `leave` says so."""

    def __init__(self, *names: str, **limits: float) -> None:
        self.bench = Bench(*names)
        self.api = FakeClusterApi()
        self.binding_outcomes: list[tuple[str, str]] = []
        placing = self.bench.placing
        self.nominator = Nominator(
            self.api, choose=placing.choose, release=placing.model.unbind, kind_of=placing.kind_of, failed=self._failed
        )
        self.failures: list[str] = []
        self.evictor = Evictor(
            placing, self.nominator, self.api, on_victim=self._record_outcome, failed=self._failed,
            clock=lambda: self.bench.now, limits=EvictionLimits(**limits),  # type: ignore[arg-type]
        )  # fmt: skip
        placing.events.settled.add(self.nominator.drop)
        placing.events.pending.add(self.evictor.consider)
        placing.events.room_reserved.add(self.nominator.reserve)

    def _record_outcome(self, fate: str, victim: ScheduledPod, pod: ScheduledPod) -> None:
        self.binding_outcomes.append((fate, victim.name))

    def _failed(self, what: str) -> None:
        self.failures.append(what)

    def fill(self, node: str, **pods: tuple[str, int]) -> None:
        """Pods that run there, by name: CPUs and priority."""
        for name, (cpus, priority) in pods.items():
            self.bench.watch_pod(pod_object(name, cpus, node, priority=priority))

    async def seconds(self, count: int = 2) -> None:
        for _ in range(count):
            self.bench.now += 1.0
            await asyncio.sleep(1.0)

    @property
    def left(self) -> list[str]:
        return [name for name, dry_run in self.api.evicted if not dry_run]

    @property
    def held(self) -> dict[str, str]:
        return {hold.uid: hold.node for hold in self.bench.placing.model.holds()}


def playing(scene: Scene, test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(scene.evictor.run())
        try:
            await test(scene)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await scene.nominator.close()

    run(main())


def test_least_important_leave_and_room_is_kept() -> None:
    """The pod of the lowest priority leaves, after a dry run; no other pod gets its room, and once it is free the pod
    is nominated and bound there."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 5), q=("8", 3))
        scene.bench.watch_pod(refused_pod("big"))
        await scene.seconds()
        assert scene.api.evicted == [("q", True), ("q", False)]
        assert scene.binding_outcomes == [("evicted", "q")]
        assert scene.held == {"uid-big": "a"}
        assert scene.nominator.ahead == {"uid-big": "a"}
        scene.bench.delete_pod("q")
        assert scene.bench.placing.filter(filter_request(pod_object("thief", "6"), ["a"])).nodes == []
        await scene.seconds()
        assert set(scene.api.nominated) == {("big", "a")}
        assert scene.bench.placing.filter(filter_request(refused_pod("big"), ["a"]), {"uid-big": "a"}).nodes == ["a"]
        assert scene.bench.placing.bind(BindRequest("big", "default", "uid-big", "a")).error == ""
        scene.bench.watch_pod(pod_object("big", "6", "a", priority=10))
        await scene.seconds()
        assert (scene.evictor.open, scene.held, scene.left) == ({}, {}, ["q"])

    playing(Scene("a"), test)


def test_who_never_leaves() -> None:
    """Pods of the same or a higher priority, and static pods, stay; and no pod leaves for one that may not preempt,
    that was not refused yet, or that its scheduler makes room for."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 10), q=("2", 11))
        scene.bench.watch_pod(mirror_object("uid-static", "static", "6", "a", priority=0))
        scene.bench.watch_pod(refused_pod("big", "7"))
        scene.fill("b", low=("7", 1), more=("8", 1))
        scene.bench.watch_pod(refused_pod("never", preemptionPolicy="Never"))
        scene.bench.watch_pod(pod_object("early", "6", priority=10))
        kept = refused_pod("kept")
        kept["status"]["nominatedNodeName"] = "b"
        scene.bench.watch_pod(kept)
        scene.bench.watch_pod(refused_pod("elsewhere", nodeSelector={"zone": "x"}))
        await scene.seconds(3)
        assert (scene.api.evicted, scene.held) == ([], {"uid-kept": "b"})

    playing(Scene("a", "b"), test)


def test_budgets_of_disruption() -> None:
    """A budget that keeps one victim spares the others too, and the next choice does without it; where all are kept no
    pod leaves and nothing is held."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 1), q=("8", 2))
        scene.api.kept["p"] = 429
        scene.bench.watch_pod(refused_pod("big", "7"))
        await scene.seconds(3)
        assert scene.api.evicted == [("p", True), ("q", True), ("q", False)]
        assert scene.binding_outcomes == [("spared", "p"), ("evicted", "q")]

    playing(Scene("a"), test)

    async def none(scene: Scene) -> None:
        scene.fill("a", p=("7", 1), q=("8", 2))
        scene.api.kept.update(p=429, q=429)
        scene.bench.watch_pod(refused_pod("big", "7"))
        await scene.seconds(10)
        assert (scene.left, scene.held, scene.nominator.ahead) == ([], {}, {})
        assert len(scene.api.evicted) == 2

    playing(Scene("a"), none)


def test_nobody_leaves_in_vain() -> None:
    """Two pods must go and one is kept: the other is not evicted, and the pod is looked at again after a rest only."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("3", 1), r=("4", 1), q=("8", 20))
        scene.api.kept["r"] = 429
        scene.bench.watch_pod(refused_pod("big", "7"))
        await scene.seconds(5)
        assert scene.left == []
        assert ("r", True) in scene.api.evicted
        before = len(scene.api.evicted)
        await scene.seconds(20)
        assert len(scene.api.evicted) == before

    playing(Scene("a"), test)


def test_who_leaves_anyway() -> None:
    """A pod that is being deleted is waited for, and no other is evicted."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 1), q=("8", 30))
        leaving = pod_object("q", "8", "a", priority=30)
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        scene.bench.watch_pod(leaving, node_hears=False)
        scene.bench.watch_pod(refused_pod("big", "8"))
        await scene.seconds(3)
        assert (scene.api.evicted, scene.held) == ([], {"uid-big": "a"})

    playing(Scene("a"), test)


def test_victims_that_take_their_time() -> None:
    """Room is kept as long as victims are there, and given back when nothing comes of it; a pod that goes meanwhile
    leaves nothing held."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 1), q=("8", 2))
        scene.bench.watch_pod(refused_pod("big", "7"))
        await scene.seconds(200)
        scene.bench.placing.expire()
        assert (scene.left, scene.held) == (["p"], {"uid-big": "a"})
        scene.bench.delete_pod("big")
        await scene.seconds()
        assert (scene.held, scene.evictor.open, scene.nominator.ahead) == ({}, {}, {})

    playing(Scene("a"), test)


def test_server_that_does_not_answer() -> None:
    """No pod leaves, nothing is held, and it is tried again after a rest."""

    async def test(scene: Scene) -> None:
        scene.fill("a", p=("7", 1), q=("8", 2))
        scene.api.broken = "no connection"
        scene.bench.watch_pod(refused_pod("big", "7"))
        await scene.seconds(5)
        assert (scene.failures, scene.held, scene.nominator.ahead) == (["no connection"], {}, {})
        scene.api.broken = ""
        await scene.seconds(40)
        assert scene.left == ["p"]

    playing(Scene("a"), test)


def test_so_many_at_a_time() -> None:
    """No more pods wait for victims than may, the most important ones first."""

    async def test(scene: Scene) -> None:
        for name in "abc":
            scene.fill(name, **{f"p{name}": ("7", 1), f"q{name}": ("8", 1)})
        for number, priority in enumerate((10, 30, 20)):
            scene.bench.watch_pod(refused_pod(f"big{number}", "7", priority))
        await scene.seconds(10)
        assert set(scene.evictor.open) == {"uid-big1", "uid-big2"}
        assert len(scene.left) == 2

    playing(Scene("a", "b", "c", open=2), test)
