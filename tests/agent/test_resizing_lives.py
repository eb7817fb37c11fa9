"""Random lives of a node whose pods are resized, with kills at random writes. A kernel in memory watches them all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod
from tests import clock
from tests.agent.elastic import Elastic, elastic, kill_at
from tests.agent.helpers import pod_level
from tests.agent.kernel import KilledError
from tests.conftest import make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:4 pu:2"
STEPS = 25


class Life:
    """Actions of a kubelet and its users on a node."""

    def __init__(self, world: Elastic, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.sizes: dict[str, int] = {}
        self.number = 0

    def pod(self, uid: str, cpus: int) -> Pod:
        return make_pod(uid, ("app", str(cpus) if cpus else None))

    async def step(self) -> None:
        """One thing happens."""
        happens = [
            self.comes,
            self.comes,
            self.is_resized,
            self.is_resized,
            self.is_resized,
            self.goes,
            self.time_passes,
        ]
        await self.random.choice(happens)()

    async def comes(self) -> None:
        uid, cpus = f"p{self.number}", self.random.randint(0, 4)
        self.number += 1
        try:
            await self.world.run(self.pod(uid, cpus))
        except RPCError:
            self.gone(uid)
            return
        self.sizes[uid] = cpus

    async def is_resized(self) -> None:
        owners = [uid for uid, cpus in self.sizes.items() if cpus]
        if not owners:
            return
        uid, cpus = self.random.choice(owners), self.random.randint(1, 7)
        if self.random.random() < 0.7:
            self.world.source.add(self.pod(uid, cpus))
        with contextlib.suppress(RPCError):
            await self.world.update(f"{uid}-app", cpus * 1000)

    async def goes(self) -> None:
        if self.sizes:
            uid = self.random.choice(list(self.sizes))
            self.world.plugin.stop_pod(self.world.pods[f"s-{uid}"])
            self.world.plugin.remove_pod(self.world.pods[f"s-{uid}"])
            self.gone(uid)

    def gone(self, uid: str) -> None:
        self.sizes.pop(uid, None)
        self.world.pods.pop(f"s-{uid}", None)
        self.world.containers.pop(f"{uid}-app", None)
        for path in [path for path in self.world.kernel.files if path.startswith(f"kubepods/pod{uid}")]:
            del self.world.kernel.files[path]

    async def time_passes(self) -> None:
        await asyncio.sleep(self.random.choice([0.1, 3, 8]))
        await self.world.resizing.retry()
        for _ in self.world.owner.updates.write(self.world.reconciler.write):
            await asyncio.sleep(0)

    async def step_with_kill(self, patch: pytest.MonkeyPatch) -> None:
        """The same, and the process ends in the middle of it."""
        with patch.context() as now:
            killed = kill_at(self.world, now, self.random.randint(0, 25))
            with contextlib.suppress(KilledError):
                await self.is_resized()
                await asyncio.sleep(3)
            killed()
            await self.world.bury()
        self.world.start()


@pytest.mark.parametrize("delay", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_no_life_puts_two_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, delay: float) -> None:
    """Whatever comes, grows, shrinks, goes and is killed: no CPU is ever of two, none is lost, and in the end everybody
    runs on what the ledgers say."""
    world = Elastic(
        tmp_path, elastic(shrink_delay_seconds=delay), pod_level(reserved_system_cpus="0-1"), machine=MACHINE
    )
    life = Life(world, seed)

    async def main() -> None:
        world.start()
        for _ in range(STEPS):
            if life.random.random() < 0.2:
                await life.step_with_kill(monkeypatch)
            else:
                await life.step()
        await asyncio.sleep(10)
        await world.settle()
        world.agrees()
        assert world.owner.node is not None
        view = world.owner.node.view
        assert view.shared | view.owned == view.topology.all_cpus
        assert not view.shared & view.owned
        assert world.notes.failures == []

    clock.run(main())
