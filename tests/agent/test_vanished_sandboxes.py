"""Sandboxes that end without a call of the runtime are found by their cgroups."""

from __future__ import annotations

import shutil
from pathlib import Path

from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.values.cpuset import parse_bits
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, in_world
from tests.conftest import make_pod


def watched(world: World, folder: Path) -> tuple[VanishedSandboxes, FakeTree]:
    """Cgroups of every pod and container."""
    fake = FakeTree(folder / "cgroup")
    for pod in world.fake.pods.values():
        fake.add(pod.linux.cgroup_parent.strip("/"))
    for container in world.fake.containers.values():
        fake.add(container.message.linux.cgroups_path.strip("/"))
    return VanishedSandboxes(world.owner, CgroupTree(folder / "cgroup")), fake


def test_a_pod_whose_cgroup_went_is_released(tmp_path: Path) -> None:
    """containerd 8426: after its restart the end of older pods is never told; their CPUs are free all the same."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        await world.run(make_pod("b", ("app", "2")))
        watch, fake = watched(world, tmp_path)
        assert watch.run() == []
        shutil.rmtree(fake.root / own.message.linux.cgroups_path.strip("/").rpartition("/")[0])
        assert [str(identity) for identity in watch.run()] == ["default/a"]
        assert set(world.owner.pods) == {"b"}
        assert world.owner.node is not None
        assert "a" not in world.owner.node.kubelet.active
        assert watch.run() == []

    in_world(tmp_path, test)


def test_what_was_never_seen_is_not_missed(tmp_path: Path) -> None:
    """A runtime may keep sandboxes where we do not look, and a tree that is not mounted says nothing."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        tree = FakeTree(tmp_path / "cgroup")
        watch = VanishedSandboxes(world.owner, CgroupTree(tree.root))
        assert watch.run() == watch.run() == []
        watch, fake = watched(world, tmp_path)
        assert watch.run() == []
        shutil.rmtree(fake.root)
        assert watch.run() == []
        assert set(world.owner.pods) == {"a"}

    in_world(tmp_path, test)


def test_a_dead_sandbox_keeps_what_its_containers_run_on(tmp_path: Path) -> None:
    """Nothing is released while a container of the sandbox still has a cgroup."""

    async def test(world: World) -> None:
        world.source.add(make_pod("a", ("app", "4")))
        sandbox = await world.fake.run_pod("a", cgroups_path="/kubepods/poda/pause")
        await world.fake.create_container(sandbox, "app")
        watch, fake = watched(world, tmp_path)
        pause = fake.add("kubepods/poda/pause")
        assert watch.run() == []
        shutil.rmtree(pause)
        assert watch.run() == []
        for container in world.fake.containers.values():
            shutil.rmtree(fake.root / container.message.linux.cgroups_path.strip("/"))
        assert [str(identity) for identity in watch.run()] == ["default/a"]

    in_world(tmp_path, test)


def test_finished_pods_hold_nothing_after_a_restart(tmp_path: Path) -> None:
    """X03: what finished while the agent was away is still listed, without containers: its CPUs are free. One whose
    sandbox runs keeps them, and one that gets a container again is admitted again."""

    async def test(world: World) -> None:
        tree = FakeTree(tmp_path / "cgroup")
        for uid in ("done", "alive"):
            world.source.add(make_pod(uid, ("app", "4")))
            tree.add(f"kubepods/pod{uid}/pause")
            sandbox = await world.fake.run_pod(uid, cgroups_path=f"/kubepods/pod{uid}/pause")
            await world.fake.create_container(sandbox, "app")
        await world.kill()
        world.fake.containers.clear()
        shutil.rmtree(tree.root / "kubepods/poddone/pause")
        world.ended = lambda identity: VanishedSandboxes(world.owner, CgroupTree(tree.root)).has_ended(identity)
        await world.start()
        assert set(world.owner.pods) == {"alive"}
        assert world.owner.placing.exclusive().bit_count() == 4
        again = await world.fake.create_container("sandbox-done", "app")
        assert parse_bits(again.cpus).bit_count() == 4
        assert world.owner.placing.exclusive().bit_count() == 8
        world.check()
        await world.end("done")
        assert world.owner.placing.exclusive().bit_count() == 4

    in_world(tmp_path, test)
