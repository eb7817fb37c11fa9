"""Resizes beside restarts: of a container by its resize policy, and of the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.agent.status.local import pod_statuses
from podslice.api.pod.spec import Pod, ResizePolicy, map_containers
from tests.agent.elastic import Elastic, asked, elastic
from tests.agent.helpers import GIB, pod_level
from tests.agent.test_resizing import app, in_elastic
from tests.conftest import make_pod


def restarting(uid: str, cpu: str) -> Pod:
    """A pod whose container wants to start again where its CPUs change."""
    policy = (ResizePolicy("cpu", "RestartContainer"),)
    pod = app(uid, cpu)
    return replace(pod, spec=map_containers(pod.spec, lambda one: replace(one, resize_policy=policy)))


@pytest.mark.parametrize(("size", "expected"), [("6", "2-7"), ("2", "2-3")])
@pytest.mark.parametrize("told", [True, False])
def test_a_container_that_restarts_for_its_resize(tmp_path: Path, size: str, expected: str, *, told: bool) -> None:
    """With `RestartContainer` the kubelet makes no update but a new container: it starts with the CPUs of its new size,
    others have left them or get them, and no delay is waited for, whether its specification is known in time or not."""

    async def test(world: Elastic) -> None:
        await world.run(restarting("a", "4"))
        if size == "2":
            world.source.add(restarting("a", "6"))
            await world.restart_container("a", "app", 6000)
            world.source.add(restarting("a", "4"))
            await world.restart_container("a", "app", 4000)
        await world.run(make_pod("s", ("app", None)))
        if told:
            world.source.add(restarting("a", size))
        await world.restart_container("a", "app", int(size) * 1000)
        assert (world.owned("a"), world.cpus("a-app")) == (expected, expected)
        assert world.notes.resize_reports[-1].result == "applied"
        assert world.notes.resizes == []
        await world.settle()
        world.agrees()
        world.start()
        assert (world.cpus("a-app"), world.owner.safe_mode) == (expected, "")

    policy = elastic(below_baseline="allow", shrink_delay_seconds=10.0)
    in_elastic(tmp_path, test, policy, wait=0.5)


def test_a_restart_without_room(tmp_path: Path) -> None:
    """Without room the container starts with the CPUs it had, and grows in place when there is room, be it an hour
    later: the kubelet thinks that it is done and does not ask again."""

    async def test(world: Elastic) -> None:
        await world.run(restarting("a", "4"))
        await world.run(app("b", "26"))
        world.source.add(restarting("a", "6"))
        await world.restart_container("a", "app", 6000)
        assert (world.owned("a"), world.cpus("a-app"), world.resizing.pending) == ("2-5", "2-5", 1)
        assert [one.result for one in world.notes.resize_reports] == ["deferred"]
        (finding,) = next(iter(pod_statuses(world.owner))).findings
        assert finding.startswith("resize deferred: ")
        await asyncio.sleep(3600)
        await world.resizing.retry()
        world.leave("b")
        await world.resizing.retry()
        assert (world.owned("a"), world.cpus("a-app"), world.resizing.pending) == ("2-7", "2-7", 0)
        await world.settle()
        world.agrees()

    in_elastic(tmp_path, test)


def test_an_ordinary_restart(tmp_path: Path) -> None:
    """A container that ends and comes back as it was keeps its CPUs; nothing is decided again."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "4"))
        before = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
        await world.restart_container("a", "app", 4000)
        assert world.cpus("a-app") == "2-5"
        assert world.notes.resize_reports == []
        assert {path: path.read_bytes() for path in before} == before

    in_elastic(tmp_path, test)


def test_a_slice_that_restarts(tmp_path: Path) -> None:
    """A container with CPUs of its own within its pod's gets them from the pod's shared containers."""

    def whole(own: str) -> Pod:
        return make_pod("a", ("app", own), ("side", None), budget="8")

    async def test(world: Elastic) -> None:
        await world.run(whole("4"))
        world.source.add(whole("6"))
        await world.restart_container("a", "app", 6000)
        await world.settle()
        assert (world.cpus("a-app"), world.cpus("a-side")) == ("2-7", "8-9")
        world.agrees()

    in_elastic(tmp_path, test, config=pod_level(reserved_system_cpus="0-1"))


def test_nobody_hears_of_a_resize_that_is_made_up_for(tmp_path: Path) -> None:
    """An agent that finds a container with another quota than its CPUs, and whose specification wants that, tells when
    it has grown, and not before that it will not."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "4"))
        world.set("a-app", asked(4000, memory=GIB))
        world.start()
        assert world.notes.resizes == []
        assert [pod.findings for pod in pod_statuses(world.owner)] == [()]
        await world.resizing.retry()
        assert [(one.result, one.text) for one in world.notes.resize_reports] == [("applied", "app: 2-3 -> 2-5")]
        world.source.add(app("a", "3"))
        world.set("a-app", asked(8000, memory=GIB))
        world.start()
        assert len(world.notes.resizes) == 1, "what nobody wants is told as before"

    in_elastic(tmp_path, test)


def test_a_granted_growth_of_which_only_the_grant_is_known(tmp_path: Path) -> None:
    """The policy's state file is lost after the kubelet's grant, and others have the room: the pod keeps the CPUs it
    has, other pods theirs, and it grows when there is room. Once more killed it starts the same."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "4"))
        await world.run(app("b", "26"))
        world.source.add(app("a", "6"))
        world.owner.admitting.files.replace(app("a", "6"))
        for _ in range(2):
            world.start()
            await world.resizing.retry()
            assert (world.cpus("a-app"), world.cpus("b-app")) == ("2-5", "6-31")
            assert [(one.operation, one.result) for one in world.notes.resize_reports] == [("grow", "deferred")]
            assert world.notes.refusals == []
            world.owner.admitting.files.replace(app("a", "6"))
        world.leave("b")
        await world.resizing.retry()
        assert world.cpus("a-app") == "2-7"
        await world.settle()
        world.agrees()

    in_elastic(tmp_path, test)
