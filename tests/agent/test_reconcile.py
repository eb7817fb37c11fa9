"""Wanted against found: drift is found, repaired, counted and reported."""

from __future__ import annotations

import json
from pathlib import Path

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, in_world, pod_level
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeContainer


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


def test_a_new_pods_quota_is_no_drift(tmp_path: Path) -> None:
    """The kubelet gives a pod's cgroup a quota that exclusive CPUs must not have: it is lifted when the pod comes."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        loop, fake = reconciler(world, tmp_path)
        parent = own.message.linux.cgroups_path.strip("/").rpartition("/")[0]
        assert loop.read_only_copy().run()
        assert fake.text(parent, "cpu.max") == "400000 100000"
        loop.settle("a")
        assert fake.text(parent, "cpu.max") == "max 100000"
        assert not loop.read_only_copy().run()
        assert loop.run() == []

    in_world(tmp_path, test)


def test_a_pass_can_be_interrupted(tmp_path: Path) -> None:
    """A pass is made in steps, one container or pod each; what ends in between is not drift."""

    async def test(world: World) -> None:
        for uid in ("a", "b", "c"):
            await world.run(make_pod(uid, ("app", "2")))
        loop, fake = reconciler(world, tmp_path)
        loop.run()
        for container in world.fake.containers.values():
            fake.add(container.message.linux.cgroups_path.strip("/"), cpuset_cpus="0-31")
        steps = loop.steps()
        assert [(d.pod, d.kind) for d in next(steps)] == [("default/a", "cpus")]
        await world.end("b")
        await world.run(make_pod("d", ("app", "2")))
        assert {drift.pod for step in steps for drift in step} == {"default/c"}

    in_world(tmp_path, test)


async def limited(world: World, **limits: int) -> FakeContainer:
    """A shared container with limits of its own."""
    world.source.add(make_pod("s", ("app", "500m")))
    return await world.fake.create_container(await world.fake.run_pod("s"), "app", **limits)


def test_limits_of_containers_are_read_back(tmp_path: Path) -> None:
    """A container's `cpu.max` and `memory.max` are what the kubelet asked for, in whole pages and after its updates."""

    async def test(world: World) -> None:
        container = await limited(world, quota=50_000, memory=1_000_001)
        path = container.message.linux.cgroups_path.strip("/")
        loop, fake = reconciler(world, tmp_path)
        kernels = {"cpuset_cpus": container.cpus, "cpuset_mems": container.mems}
        fake.add(path, cpu_max="50000 100000", memory_max=str(1_000_001 // 4096 * 4096), **kernels)
        assert loop.run() == []
        fake.add(path, cpu_max="max 100000", memory_max="max", **kernels)
        assert {(d.kind, d.wanted, d.found, d.repaired) for d in loop.run()} == {
            ("quota", "50000", "max", True),
            ("memory", "1000001", "max", True),
        }
        assert (fake.text(path, "cpu.max"), fake.text(path, "memory.max")) == ("50000 100000", "1000001")
        update = nri.LinuxResources()
        update.cpu.quota.value, update.memory.limit.value = 80_000, -1
        await world.fake.update_container(container.message.id, update)
        found = {(d.kind, d.wanted, d.found) for d in loop.run()}
        assert found == {("quota", "80000", "50000"), ("memory", "max", "1000001")}
        assert loop.run() == []
        fake.add(path, cpu_max="80000 50000", **kernels)
        assert [(d.wanted, d.found) for d in loop.run()] == [("80000 100000", "80000 50000")]

    in_world(tmp_path, test)


def test_unlimited_containers_stay_unlimited(tmp_path: Path) -> None:
    """A quota or memory limit nobody asked for is lifted again."""

    async def test(world: World) -> None:
        container = await limited(world)
        path = container.message.linux.cgroups_path.strip("/")
        loop, fake = reconciler(world, tmp_path)
        fake.add(path, cpuset_cpus=container.cpus, cpu_max="10000 100000", memory_max="4096")
        assert {(d.kind, d.wanted) for d in loop.run()} == {("quota", "max"), ("memory", "max")}
        assert (fake.text(path, "cpu.max"), fake.text(path, "memory.max")) == ("max 100000", "max")

    in_world(tmp_path, test)


def test_memory_limit_below_use_is_not_written(tmp_path: Path) -> None:
    """Repairing a limit must not kill the container it belongs to."""

    async def test(world: World) -> None:
        container = await limited(world, memory=1 << 20)
        path = container.message.linux.cgroups_path.strip("/")
        loop, fake = reconciler(world, tmp_path)
        folder = fake.add(path, cpuset_cpus=container.cpus, memory_max="max")
        (folder / "memory.current").write_text(f"{1 << 21}\n")
        drift = loop.run()[0]
        assert (drift.kind, drift.repaired, "could kill" in drift.why) == ("memory", False, True)
        assert fake.text(path, "memory.max") == "max"

    in_world(tmp_path, test)


def test_limits_can_be_only_reported(tmp_path: Path) -> None:
    """With `limits: report` the kubelet's limits are left alone, our own quota is not."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"].message.linux.cgroups_path.strip("/")
        path = (await limited(world, quota=50_000)).message.linux.cgroups_path.strip("/")
        _, fake = reconciler(world, tmp_path)
        fake.add(path, cpu_max="70000 100000")
        fake.add(own, cpu_max="70000 100000")
        loop = Reconciler(world.owner, CgroupTree(tmp_path / "cgroup"), repair_limits=False)
        quotas = {d.pod: d.repaired for d in loop.run() if d.kind == "quota" and d.container}
        assert quotas == {"default/a": True, "default/s": False}
        assert fake.text(path, "cpu.max") == "70000 100000"
        assert fake.text(own, "cpu.max") == "max 100000"

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


def test_crio_with_systemd_slices(tmp_path: Path) -> None:
    """CRI-O's names lead to the same cgroups: pods in slices, containers in scopes, the QoS class in the slice."""
    uid = "11111111-2222-3333-4444-555555555555"
    slice_ = f"kubepods-pod{uid.replace('-', '_')}.slice"

    async def test(world: World) -> None:
        sandbox = await world.fake.run_pod(uid, name="guessed", cgroup_parent=slice_)
        own = await world.fake.create_container(
            sandbox, "app", container_id="c" * 64, shares=2048, quota=200_000, memory=1 << 30
        )
        assert world.plugin.runtime == "crio 1"
        assert parse_bits(own.cpus).bit_count() == 2
        assert own.message.linux.cgroups_path == f"{slice_}:crio:{'c' * 64}"
        fake = FakeTree(tmp_path / "cgroup")
        pod = f"kubepods.slice/{slice_}"
        scope = f"{pod}/crio-{'c' * 64}.scope"
        fake.add(pod, cpu_max="200000 100000")
        fake.add(scope, cpuset_cpus="0-31", cpu_max="200000 100000", memory_max=str(1 << 30))
        loop = Reconciler(world.owner, CgroupTree(tmp_path / "cgroup"))
        assert {(d.kind, d.container, d.repaired) for d in loop.run()} == {
            ("cpus", "app", True),
            ("quota", "app", True),
            ("quota", "", True),
        }
        assert fake.text(scope, "cpuset.cpus") == own.cpus
        assert fake.text(pod, "cpu.max") == "max 100000"
        assert loop.run() == []

    in_world(tmp_path, test, name="crio", state_changes=False)


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
    """A value that the kernel does not grant is not written again."""

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
