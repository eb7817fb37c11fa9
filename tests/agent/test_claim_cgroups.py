"""Cgroups of containers with claims, beside kubelets of v1.36 and v1.37 (cluster-integration A.8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.api.pod.spec import Pod, ResourceRequirements
from podslice.dra.cgroups import kubelet_adds
from podslice.dra.prepared import PreparedClaim
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.values.cpuset import parse_bits
from podslice.values.quantity import Quantity
from tests import clock
from tests.agent.claimhelpers import ClaimWorld, claim, with_memory
from tests.agent.fakenode import FakeTree
from tests.agent.test_claims import claiming, env

GI = 1 << 30
VERSIONS = ("v1.36.2", "v1.37.0")


def amounts(**values: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(value) for name, value in values.items()}


def counted(pod: Pod, *names: str) -> Pod:
    """The scheduler has counted the pod's claim."""
    said = {"resourceClaimName": pod.metadata.name, "containers": list(names), "resources": {"cpu": "4"}}
    return replace(pod, status=replace(pod.status, node_allocatable_resource_claim_statuses=(said,)))


def asking(pod: Pod, name: str, **limits: str) -> Pod:
    """A container of it with these requests and limits; none is a container without."""
    containers = tuple(
        replace(one, resources=replace(one.resources, requests=amounts(**limits), limits=amounts(**limits)))
        if one.name == name
        else one
        for one in pod.spec.containers
    )
    return replace(pod, spec=replace(pod.spec, containers=containers))


class Cgroups:
    """A pod whose containers have its claim of 4 CPUs and 2 GiB on NUMA node 1, beside such a kubelet."""

    def __init__(self, world: ClaimWorld, folder: Path, version: str) -> None:
        self.world = world
        self.tree = FakeTree(folder / "cgroup")
        self.claim: PreparedClaim = claim("p", (1, 4), memory={"memory": 2 * GI})
        world.ledger.kubelet_adds = kubelet_adds(version)
        self.loop = Reconciler(world.owner, CgroupTree(self.tree.root))
        world.plugin._settle = self.loop.settle
        world.ledger.prepare(self.claim)
        self.cpus = world.ledger.device_pinnings(self.claim)[0].cpus

    async def run(self, pod: Pod, **of_pod: str) -> str:
        self.tree.add("kubepods/podp", **of_pod)
        self.world.source.add(pod)
        return await self.world.fake.run_pod("p", cgroup_parent="/kubepods/podp")

    async def container(self, sandbox: str, name: str, **asked: Any) -> Any:
        return await self.world.fake.create_container(sandbox, name, env=env(self.claim), **asked)

    def of_pod(self, file: str) -> str:
        self.loop.run()
        return self.tree.text("kubepods/podp", file)


def beside(folder: Path, version: str, test: Any) -> None:
    config, policy = with_memory()
    world = ClaimWorld(folder, config=config, policy=policy)

    async def main() -> None:
        await world.start()
        try:
            await test(Cgroups(world, folder, version))
        finally:
            await world.kill()

    clock.run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_cpus_memory_nodes_and_quota(tmp_path: Path, version: str) -> None:
    """Whatever the kubelet's version, a container runs on the claim's CPUs and the claim's NUMA node, without quota,
    and nobody writes huge pages: not in a Guaranteed pod whose requests are whole CPUs either."""

    async def test(here: Cgroups) -> None:
        sandbox = await here.run(counted(asking(claiming("p", "2", "app"), "app", cpu="2", memory="1Gi"), "app"))
        app = await here.container(sandbox, "app", shares=2048, quota=200_000, memory=GI)
        assert (parse_bits(app.cpus), app.mems, app.quota) == (here.cpus, "1", -1)
        assert list(app.message.linux.resources.hugepage_limits) == []

    beside(tmp_path, version, test)


@pytest.mark.parametrize(("version", "shares"), [("v1.36.2", (4096, 8192, 4096)), ("v1.37.0", (2, 8192, 512))])
def test_the_larger_weight(tmp_path: Path, version: str, shares: tuple[int, int, int]) -> None:
    """Of containers that ask for nothing, for more than the claim, and for less: v1.36 gets what the claim's CPUs weigh
    where that is more."""

    async def test(here: Cgroups) -> None:
        sandbox = await here.run(counted(claiming("p", "500m", "none", "more", "less"), "none", "more", "less"))
        found = [
            (await here.container(sandbox, name, shares=asked)).cpu.shares.value
            for name, asked in (("none", 2), ("more", 8192), ("less", 512))
        ]
        assert tuple(found) == shares

    beside(tmp_path, version, test)


@pytest.mark.parametrize(("version", "limits"), [("v1.36.2", (3 * GI, 0, 3 * GI)), ("v1.37.0", (GI, 0, GI))])
def test_limits_only_where_there_are_some(tmp_path: Path, version: str, limits: tuple[int, int, int]) -> None:
    """Memory of a claim comes to the limit of each container that has one and names the claim, and makes none."""

    async def test(here: Cgroups) -> None:
        pod = claiming("p", "500m", "one", "without", "two")
        for name in ("one", "two"):
            pod = asking(pod, name, cpu="500m", memory="1Gi")
        pod = asking(pod, "without")
        sandbox = await here.run(counted(pod, "one", "without", "two"))
        found = [
            (await here.container(sandbox, name, memory=asked)).memory
            for name, asked in (("one", GI), ("without", 0), ("two", GI))
        ]
        assert tuple(found) == limits
        assert here.of_pod("memory.max") == "max"

    beside(tmp_path, version, test)


@pytest.mark.parametrize(
    ("version", "pod_level", "expected"), [("v1.36.2", False, 4), ("v1.36.2", True, 3), ("v1.37.0", False, 2)]
)
def test_the_pods_limit(tmp_path: Path, version: str, pod_level: bool, expected: int) -> None:
    """Two containers share the claim, which comes to the pod's limit once; pod-level resources contain it already, and
    v1.37 adds it itself."""

    async def test(here: Cgroups) -> None:
        pod = claiming("p", "500m", "one", "two")
        for name in ("one", "two"):
            pod = asking(pod, name, cpu="500m", memory="1Gi")
        if pod_level:
            whole = ResourceRequirements(requests=amounts(cpu="1", memory="3Gi"), limits=amounts(cpu="1", memory="3Gi"))
            pod = replace(pod, spec=replace(pod.spec, resources=whole))
        sandbox = await here.run(counted(pod, "one", "two"), memory_max=str((3 if pod_level else 2) * GI))
        for name in ("one", "two"):
            await here.container(sandbox, name, memory=GI)
        assert here.of_pod("memory.max") == str(expected * GI)

    beside(tmp_path, version, test)
