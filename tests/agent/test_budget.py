"""Containers of pods nobody knows never own more CPUs than their pod may use."""

from __future__ import annotations

from pathlib import Path

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.values.cpuset import parse_bits
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import GIB, World, in_world
from tests.service.fake_runtime import FakeContainer


async def create(world: World, sandbox: str, name: str, cpus: int) -> FakeContainer:
    """A container as a kubelet with pod-level resources makes it: without limits of its own it gets its pod's."""
    return await world.fake.create_container(sandbox, name, shares=cpus * 1024, quota=cpus * 100_000, memory=GIB)


def owns(container: FakeContainer) -> int:
    return parse_bits(container.cpus).bit_count() if container.env["PODSLICE_ISOLATION"] == "container" else 0


def test_limitless_container_does_not_take_the_pods_cpus_again(tmp_path: Path) -> None:
    """A pod of 4 CPUs, of which one container owns 2 and the other has no limit: 2 and shared, never 6; in the other
    order 4 and shared."""

    async def test(world: World) -> None:
        one = await world.fake.run_pod("one", cgroup_parent="/kubepods/podone", cpu_limit=4000)
        assert [owns(await create(world, one, "own", 2)), owns(await create(world, one, "rest", 4))] == [2, 0]
        two = await world.fake.run_pod("two", cgroup_parent="/kubepods/podtwo", cpu_limit=4000)
        assert [owns(await create(world, two, "rest", 4)), owns(await create(world, two, "own", 2))] == [4, 0]
        assert world.owner.placing.exclusive().bit_count() == 6
        await world.restart()
        assert world.owner.placing.exclusive().bit_count() == 6
        world.check()
        assert world.fake.containers["sandbox-one-rest"].quota == 400_000

    in_world(tmp_path, test)


def test_ended_init_containers_make_room(tmp_path: Path) -> None:
    """An init container's CPUs are the app container's afterwards; a crash gives nothing away."""

    async def test(world: World) -> None:
        pod = await world.fake.run_pod("p", cgroup_parent="/kubepods/podp", cpu_limit=4000)
        init = await create(world, pod, "init", 4)
        await world.fake.stop_container(init.message.id)
        a = await create(world, pod, "a", 2)
        await world.fake.stop_container(a.message.id)
        b = await create(world, pod, "b", 2)
        again = await world.fake.create_container(
            pod, "a", container_id="again", shares=2048, quota=200_000, memory=GIB
        )
        assert (owns(init), owns(a), owns(b), again.cpus) == (4, 2, 2, a.cpus)
        assert world.owner.placing.exclusive().bit_count() == 4
        world.check()

    in_world(tmp_path, test)


def test_the_pods_cgroup_says_the_limit_where_the_runtime_does_not(tmp_path: Path) -> None:
    """Its quota is read before it is lifted, lifted while a container owns CPUs, and back when none does."""

    async def test(world: World) -> None:
        fake = FakeTree(tmp_path / "cgroup")
        fake.add("kubepods/podp", cpu_max="400000 100000")
        loop = Reconciler(world.owner, CgroupTree(fake.root))
        world.plugin._settle = loop.settle
        pod = await world.fake.run_pod("p", cgroup_parent="/kubepods/podp")
        first = await create(world, pod, "own", 2)
        assert fake.text("kubepods/podp", "cpu.max") == "max 100000"
        assert world.owner.pods["p"].limit == 4000
        assert (owns(first), owns(await create(world, pod, "rest", 4))) == (2, 0)

    in_world(tmp_path, test, tree=CgroupTree(tmp_path / "cgroup"))


def test_the_pods_quota_comes_back(tmp_path: Path) -> None:
    """A pod whose containers without own CPUs could take more than it asked for is limited again."""

    async def test(world: World) -> None:
        fake = FakeTree(tmp_path / "cgroup")
        fake.add("kubepods/podp", cpu_max="250000 100000")
        loop = Reconciler(world.owner, CgroupTree(fake.root))
        world.plugin._settle = loop.settle
        pod = await world.fake.run_pod("p", cgroup_parent="/kubepods/podp", cpu_limit=2500)
        init = await create(world, pod, "init", 2)
        assert fake.text("kubepods/podp", "cpu.max") == "max 100000"
        await world.fake.stop_container(init.message.id)
        rest = await world.fake.create_container(pod, "rest", shares=2560, quota=250_000, memory=GIB)
        loop.run()
        assert (owns(rest), fake.text("kubepods/podp", "cpu.max")) == (0, "250000 100000")

    in_world(tmp_path, test)
