"""Whatever a pod's author writes, and whenever: the others keep what they have, and the agent lives."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from podslice.values.errors import PodsliceError
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, in_world, pod_level
from tests.conftest import make_pod

AMOUNTS = (
    "1", "2", "1500m", "0", "-4", "1e3", "1e19", "8E", "9" * 30, "0." + "1" * 400, "1e-9", "1n", "", "lots", None, [1],
    {"a": 1}, 1e308, True,
)  # fmt: skip
NAMES = (
    "cpu", "memory", "hugepages-2Mi", "hugepages-" + "1" * 5000, "hugepages-0", "hugepages--1", "hugepages-",
    "hugepages-1.5", "vendor.com/gpu", "", "\x00", "cpu\n", "a" * 3000,
)  # fmt: skip
CONTAINERS = ("app", "app", "app", "any", "other", "", "../../etc", "x" * 300, "a\nb", "\ud800")


class Tenant:
    """Makes up pods, annotations and names."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def amounts(self) -> Any:
        """Mostly what a pod may say, so that it gets far."""
        count = self.random.choice((0, 1, 2, 3, 40))
        names = NAMES if self.random.random() < 0.3 else ("cpu", "memory", "cpu", "memory", "hugepages-2Mi")
        amounts = AMOUNTS if self.random.random() < 0.3 else ("1", "2", "1500m", "0", "1e3", "8E", "9" * 30, "1n")
        return {self.random.choice(names): self.random.choice(amounts) for _ in range(count)}

    def resources(self) -> Any:
        base = {"requests": self.amounts(), "limits": self.amounts()}
        if self.random.random() < 0.1:
            return self.random.choice(({}, [], "x", None))
        same = {"requests": base["limits"], "limits": base["limits"]}
        return self.random.choice((base, same, same, {"limits": self.amounts()}))

    def annotation(self) -> dict[str, str]:
        data = self.resources()
        if isinstance(data, dict):
            for part in ("containers", "initContainers"):
                if self.random.random() < 0.5:
                    data[part] = {self.random.choice(CONTAINERS): self.resources() for _ in range(3)}
        text = json.dumps(data)
        cut = self.random.random() < 0.1
        return {"podslice.io/resources": text[: len(text) // 2] if cut else text}

    def pod(self, uid: str) -> Pod | None:
        """Return the pod that a source would pass on, None where no source would read it."""
        containers = [
            {"name": self.random.choice(("app", *CONTAINERS)), "resources": self.resources()}
            for _ in range(self.random.choice((1, 2, 5, 300)))
        ]
        spec = {"containers": containers, "initContainers": containers[:1], "resources": self.resources()}
        try:
            return pod_from_dict({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})
        except (PodsliceError, ValueError, TypeError, AttributeError):
            return None

    def limits(self) -> dict[str, int]:
        numbers = (0, 1, -1, 2, 100_000, 200_000, 400_000, 1 << 31, -(1 << 40))
        return {name: self.random.choice(numbers) for name in ("quota", "memory")} | {
            "shares": self.random.choice((2, 2048, 4096))
        }

    def cgroup(self, uid: str) -> str:
        return self.random.choice(
            (
                f"/kubepods/pod{uid}",
                f"kubepods-pod{uid}.slice",
                "/../../etc",
                "",
                ":::",
                "/kubepods",
                "a\x00b",
                "x" * 5000,
            )
        )


async def quietly(call: Awaitable[Any]) -> Any:
    """The runtime's call, refused or not."""
    try:
        return await call
    except RPCError:
        return None


async def live(world: World, tenant: Tenant, uid: str) -> None:
    """One hostile pod's life, in a random order of calls."""
    fake, choose = world.fake, tenant.random
    pod = tenant.pod(uid) if choose.random() < 0.6 else None
    if pod is not None:
        world.source.add(pod)
    sandbox = await quietly(
        fake.run_pod(
            choose.choice((uid, uid, uid, uid + "/x")),
            name=choose.choice((uid, "x" * 400, "a\nb", "")),
            sandbox=f"sandbox-{uid}",
            annotations=tenant.annotation() if choose.random() < 0.6 else None,
            cgroup_parent=tenant.cgroup(uid),
            cgroups_path=tenant.cgroup(uid),
        )
    )
    if sandbox is None:
        return
    made = []
    for number in range(choose.choice((1, 2, 4))):
        name = choose.choice(CONTAINERS).encode("utf-8", "replace").decode()
        one = await quietly(fake.create_container(sandbox, name, container_id=f"{uid}-{number}", **tenant.limits()))
        if one is not None:
            made.append(one.message.id)
    for identity in made:
        update = nri.LinuxResources(cpu=nri.LinuxCPU(cpus=choose.choice(("0-31", "x", "", "9" * 500))))
        update.cpu.quota.value = choose.choice((-(1 << 50), 0, 150_000, 1 << 60))
        update.cpu.period.value = choose.choice((0, 1, 100_000, 1 << 60))
        await quietly(fake.update_container(identity, update))
        if choose.random() < 0.5:
            await quietly(fake.stop_container(identity))
        if choose.random() < 0.3:
            await quietly(fake.remove_container(identity))
    if choose.random() < 0.6:
        await quietly(fake.stop_pod(sandbox))
        await quietly(fake.remove_pod(sandbox))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_victims_keep_their_sets(tmp_path: Path, seed: int) -> None:
    """Random hostile pods in all hooks, reconnections and restarts: two victims keep their CPUs, no CPU has two owners,
    no call costs the connection, and a decent pod is served afterwards."""

    async def test(world: World) -> None:
        tenant = Tenant(seed)
        tree = CgroupTree(FakeTree(tmp_path / "cgroup").root)
        one = (await world.run(make_pod("v1", ("app", "4"))))["app"]
        two = (await world.run(make_pod("v2", ("x", "2"), ("y", None), budget="4")))["x"]
        had = one.cpus, two.cpus
        for number in range(12):
            await live(world, tenant, f"evil{seed}-{number}")
            assert world.fake.attached.is_set()
            if number % 4 == 1:
                Reconciler(world.owner, tree).run()
                VanishedSandboxes(world.owner, tree).run()
            if number % 6 == 3:
                world.fake.drop_plugin()
                await asyncio.wait_for(world.fake.attached.wait(), 5)
            if number % 6 == 5:
                await world.restart()
            assert world.owner.safe_mode == ""
            assert (one.cpus, two.cpus) == had
            world.fake._apply(world.owner.updates.take())
            world.check()
        assert world.fake.unpinned == []
        for sandbox in [name for name in world.fake.pods if "evil" in name]:
            await world.fake.stop_pod(sandbox)
            await world.fake.remove_pod(sandbox)
        last = (await world.run(make_pod("v3", ("app", "4"))))["app"]
        assert parse_bits(last.cpus).bit_count() == 4
        assert (one.cpus, two.cpus) == had

    in_world(tmp_path, test, pod_level(topology_manager_policy="best-effort" if seed % 2 else "restricted"))


@pytest.mark.parametrize("place", ["wanted", "created", "run_options"])
def test_a_bug_met_by_one_pod_is_not_the_others(tmp_path: Path, place: str) -> None:
    """An error nobody foresaw about one running pod, in answers, passes and synchronizations: it is told, everything
    else goes on."""

    async def test(world: World) -> None:
        tree = CgroupTree(FakeTree(tmp_path / "cgroup").root)
        await world.run(make_pod("bad", ("app", "100m")))
        await world.run(make_pod("good", ("app", "100m")))
        real: Callable[[Any], Any] = getattr(world.owner.placing, place)

        def broken(record: Any) -> Any:
            if record.pod_uid == "bad":
                raise RuntimeError("nobody foresaw this")
            return real(record)

        setattr(world.owner.placing, place, broken)
        own = (await world.run(make_pod("own", ("app", "4"))))["app"]
        assert parse_bits(own.cpus).bit_count() == 4
        with pytest.raises(RPCError, match="UnexpectedAdmissionError: RuntimeError: nobody foresaw this"):
            await world.fake.create_container("sandbox-bad", "app", container_id="again")
        Reconciler(world.owner, tree).run()
        world.fake.drop_plugin()
        await asyncio.wait_for(world.fake.attached.wait(), 5)
        await world.fake.stop_pod("sandbox-own")
        await world.fake.remove_pod("sandbox-own")
        assert {pod for pod, _ in world.notes.failures} == {"default/bad"}
        good = world.fake.containers["sandbox-good-app"]
        world.fake._apply(world.owner.updates.take())
        assert parse_bits(good.cpus) == world.owner.placing.pool()

    in_world(tmp_path, test)
