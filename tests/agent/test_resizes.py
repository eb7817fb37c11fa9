"""A resize of exclusive CPUs is not carried out, and nobody is left in the dark or without a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.status.local import pod_statuses
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import GIB, World, in_world, pod_level
from tests.conftest import make_pod


def cpu(milli: int) -> nri.LinuxResources:
    """Return the CPU resources of the kubelet's update."""
    resources = nri.LinuxResources()
    resources.cpu.shares.value = milli * 1024 // 1000
    resources.cpu.quota.value, resources.cpu.period.value = milli * 100, 100_000
    return resources


async def two_cpus(world: World) -> str:
    world.source.add(make_pod("a", ("app", "2")))
    sandbox = await world.fake.run_pod("a")
    created = await world.fake.create_container(sandbox, "app", shares=2048, quota=200_000, memory=GIB)
    return created.message.id


@pytest.mark.parametrize(("milli", "text"), [(3000, "3 CPUs"), (1500, "1500m CPUs"), (1000, "1 CPUs")])
def test_a_resized_container_keeps_its_cpus_and_has_a_limit(tmp_path: Path, milli: int, text: str) -> None:
    """The set stays, the quota asked for holds, also over a restart of the agent; event, count and status say it once;
    asked back, all is as before."""

    async def test(world: World) -> None:
        tree = FakeTree(tmp_path / "cgroup")
        identity = await two_cpus(world)
        container = world.fake.containers[identity]
        before = container.cpus
        await world.fake.update_container(identity, cpu(milli))
        await world.fake.update_container(identity, cpu(milli))
        assert (container.cpus, container.quota) == (before, milli * 100)
        assert [(pod, name) for pod, name, _ in world.notes.resizes] == [("default/a", "app")]
        assert text in world.notes.resizes[0][2]
        assert text in next(pod_statuses(world.owner)).findings[0]
        tree.add("kubepods/poda/sandbox-a-app", cpuset_cpus=before, cpu_max="max 100000", memory_max=str(GIB))
        Reconciler(world.owner, CgroupTree(tree.root)).run()
        assert tree.text("kubepods/poda/sandbox-a-app", "cpu.max") == f"{milli * 100} 100000"
        await world.restart()
        assert (container.cpus, container.quota) == (before, milli * 100)
        assert len(next(pod_statuses(world.owner)).findings) == 1
        await world.fake.update_container(identity, cpu(2000))
        assert (container.cpus, container.quota) == (before, -1)
        assert next(pod_statuses(world.owner)).findings == ()
        assert len(world.notes.resizes) == 2
        world.check()

    in_world(tmp_path, test)


def test_shared_containers_are_resized_by_the_kubelet(tmp_path: Path) -> None:
    """A container without CPUs of its own gets the limit that it requests, and nothing is reported."""

    async def test(world: World) -> None:
        world.source.add(make_pod("s", ("app", "500m")))
        container = await world.fake.create_container(await world.fake.run_pod("s"), "app", quota=50_000, memory=GIB)
        await world.fake.update_container(container.message.id, cpu(1500))
        assert (container.quota, world.notes.resizes) == (150_000, [])
        assert parse_bits(container.cpus) == world.owner.placing.pool()

    in_world(tmp_path, test)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("milli", [5000, 3000])
def test_a_resized_pod_keeps_its_cpus_and_its_limit(tmp_path: Path, milli: int, *, whole: bool) -> None:
    """The quota that the kubelet writes into the cgroup of a pod with pod-level resources stays and is told; the one it
    began with is as it was, lifted where every container owns its CPUs."""

    async def test(world: World) -> None:
        tree = FakeTree(tmp_path / "cgroup")
        tree.add("kubepods/podp", cpu_max="400000 100000")
        loop = Reconciler(world.owner, CgroupTree(tree.root))
        world.plugin._settle = loop.settle
        await world.run(make_pod("p", ("x", "2"), ("y", "2" if whole else None), budget="4"))
        own = "max 100000" if whole else "400000 100000"
        assert tree.text("kubepods/podp", "cpu.max") == own
        tree.add("kubepods/podp", cpu_max=f"{milli * 100} 100000")
        for _ in range(2):
            loop.run()
        assert tree.text("kubepods/podp", "cpu.max") == f"{milli * 100} 100000"
        assert [(pod, name) for pod, name, _ in world.notes.resizes] == [("default/p", "")]
        assert f"{milli // 1000} CPUs" in next(pod_statuses(world.owner)).findings[0]
        tree.add("kubepods/podp", cpu_max="400000 100000")
        loop.run()
        assert tree.text("kubepods/podp", "cpu.max") == own
        assert next(pod_statuses(world.owner)).findings == ()

    in_world(tmp_path, test, pod_level())
