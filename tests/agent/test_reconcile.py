"""Wanted against found: drift is found, repaired, counted and reported."""

from __future__ import annotations

import json
from pathlib import Path

from podslice.agent.reconcile import Reconciler
from podslice.host.cgroup2 import CgroupTree
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, in_world, pod_level
from tests.conftest import make_pod


def reconciler(world: World, folder: Path, *, repair: bool = True) -> tuple[Reconciler, FakeTree]:
    """A cgroup for every container and pod, as the runtime would have made them."""
    fake = FakeTree(folder / "cgroup")
    for pod in world.fake.pods.values():
        fake.add(pod.linux.cgroup_parent.strip("/"), cpu_max="400000 100000")
    for container in world.fake.containers.values():
        path = container.message.linux.cgroups_path.strip("/")
        quota = f"{'max' if container.quota <= 0 else container.quota} 100000"
        fake.add(path, cpuset_cpus=container.cpus, cpuset_mems=container.mems, cpu_max=quota)
    return Reconciler(world.owner, CgroupTree(folder / "cgroup"), repair=repair), fake


def test_foreign_writes_are_undone(tmp_path: Path) -> None:
    """X: a process writes a cpuset and a quota: both are put back, once."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        shared = (await world.run(make_pod("s", ("app", "100m"))))["app"]
        loop, fake = reconciler(world, tmp_path)
        loop.run()
        assert loop.run() == []
        path = own.message.linux.cgroups_path.strip("/")
        fake.add(path, cpuset_cpus="0-31", cpu_max="100000 100000")
        other = shared.message.linux.cgroups_path.strip("/")
        fake.add(other, cpuset_cpus=own.cpus)
        found = {(d.pod, d.kind, d.found): d for d in loop.run()}
        assert set(found) == {
            ("default/a", "cpus", "0-31"),
            ("default/a", "quota", "100000"),
            ("default/s", "cpus", own.cpus),
        }
        assert all(drift.repaired for drift in found.values())
        assert fake.text(path, "cpuset.cpus") == own.cpus
        assert fake.text(path, "cpu.max") == "max 100000"
        assert fake.text(other, "cpuset.cpus") == shared.cpus
        assert loop.run() == []

    in_world(tmp_path, test)


def test_pod_cgroup_of_exclusive_pods_has_no_quota(tmp_path: Path) -> None:
    """C27, P12: not only the container, the pod's cgroup enforces nothing either; a shared pod's stays."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        await world.run(make_pod("s", ("app", "500m")))
        loop, fake = reconciler(world, tmp_path)
        loop.run()
        assert fake.text("kubepods/poda", "cpu.max") == "max 100000"
        assert fake.text("kubepods/pods", "cpu.max") == "400000 100000"

    in_world(tmp_path, test)


def test_pod_cgroup_of_annotated_pods_gets_its_limits(tmp_path: Path) -> None:
    """A cluster without pod-level resources: the kubelet does not know the pod's limits, so we set them."""

    async def test(world: World) -> None:
        text = json.dumps({"limits": {"cpu": "1500m", "memory": "1Gi"}})
        sandbox = await world.fake.run_pod("a", annotations={"podslice.io/resources": text})
        await world.fake.create_container(sandbox, "app")
        loop, fake = reconciler(world, tmp_path)
        loop.run()
        assert fake.text("kubepods/poda", "cpu.max") == "150000 100000"
        assert fake.text("kubepods/poda", "memory.max") == str(1 << 30)
        assert loop.run() == []

    in_world(tmp_path, test, pod_level())


def test_observe_only_reports(tmp_path: Path) -> None:
    """Nothing is written in a dry run."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        loop, fake = reconciler(world, tmp_path, repair=False)
        path = own.message.linux.cgroups_path.strip("/")
        fake.add(path, cpuset_cpus="0-31")
        assert [(d.kind, d.repaired) for d in loop.run()] == [("cpus", False), ("quota", False)]
        assert fake.text(path, "cpuset.cpus") == "0-31"

    in_world(tmp_path, test)


def test_narrower_parent_is_said(tmp_path: Path) -> None:
    """What the kernel does not grant is no use writing again."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        loop, fake = reconciler(world, tmp_path)
        folder = fake.add(own.message.linux.cgroups_path.strip("/"), cpuset_cpus=own.cpus)
        (folder / "cpuset.cpus.effective").write_text("1-2\n")
        drift = loop.run()[0]
        assert (drift.found, drift.repaired) == ("1-2", False)
        assert "the kernel grants less" in drift.why

    in_world(tmp_path, test)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A failed repair keeps its reason, and the loop goes on."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        loop, fake = reconciler(world, tmp_path)
        path = own.message.linux.cgroups_path.strip("/")
        folder = fake.add(path, cpuset_cpus="0-31")
        (folder / "cpuset.cpus").unlink()
        (folder / "cpuset.cpus.effective").write_text("0-31\n")
        drift = loop.run()[0]
        assert (drift.repaired, drift.why) == (False, "No such file or directory")

    in_world(tmp_path, test)
