"""A thousand resizes a second: the last one of each pod wins, nothing is promised twice, and nothing piles up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from podslice import KubeletConfig, Node
from podslice.agent.resize import resizing
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import parse_bits
from tests import clock
from tests.agent.elastic import Elastic, elastic
from tests.agent.helpers import pod_level
from tests.conftest import make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:8 pu:2"
MEMORY = "/dev/shm"
PODS = ("a", "b", "c", "d")
A_SECOND = 1000


def sized(uid: str, cpus: int) -> Pod:
    """A pod of one container with CPUs of its own."""
    return make_pod(uid, ("app", str(cpus)))


class Storm:
    """Pods that are resized all the time; `last` is what was asked of each last, `most` the longest queue seen."""

    def __init__(self, world: Elastic, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.last: dict[str, int] = {}
        self.most = self.asked = self.admitted = 0

    async def comes(self, uid: str, cpus: int) -> None:
        await self.world.run(sized(uid, cpus))
        self.last[uid] = cpus

    async def ask(self, uid: str, cpus: int) -> None:
        """Change the specification, and ask as a kubelet does."""
        self.world.source.add(sized(uid, cpus))
        self.last[uid] = cpus
        with contextlib.suppress(RPCError):
            await self.world.update(f"{uid}-app", cpus * 1000)

    def goes(self, uid: str) -> None:
        """A pod is deleted in the middle of whatever is asked of it."""
        world = self.world
        world.plugin.stop_pod(world.pods[f"s-{uid}"])
        world.plugin.remove_pod(world.pods[f"s-{uid}"])
        world.pods.pop(f"s-{uid}", None)
        world.containers.pop(f"{uid}-app", None)
        for path in [path for path in world.kernel.files if path.startswith(f"kubepods/pod{uid}")]:
            del world.kernel.files[path]
        self.last.pop(uid, None)

    async def second(self, number: int) -> None:
        """A thousand resizes, one of them impossible on any node, and a pod that comes and goes between them."""
        guest = f"guest-{number}"
        for at in range(A_SECOND):
            uid = self.random.choice(PODS)
            cpus = 999 if at == 500 else self.random.randint(1, 12)
            await self.ask(uid, cpus)
            self.asked += 1
            self.most = max(self.most, self.world.resizing.pending)
            if at == 200:
                with contextlib.suppress(RPCError):
                    await self.comes(guest, 1)
                    self.admitted += 1
            if at == 800 and guest in self.last:
                self.goes(guest)
            await asyncio.sleep(1 / A_SECOND)


def holds(world: Elastic) -> None:
    """Every CPU is owned once or shared; cgroups say what the ledgers say."""
    assert world.owner.node is not None
    view = world.owner.node.view
    assert view.shared | view.owned == view.topology.all_cpus
    assert not view.shared & view.owned
    world.agrees()


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: sixty thousand writes that reach a disk take minutes."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.process)])
@pytest.mark.slow
def test_a_storm(memory_path: Path, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many resizes come, each pod has one that waits at most, another pod is admitted between them, and once
    all fit and the kubelet asks again, every pod has what was asked last."""
    world = Elastic(memory_path, elastic(), pod_level(reserved_system_cpus="0-1"), machine=MACHINE)
    storm = Storm(world, 7)

    async def main() -> None:
        world.start()
        decided = 0
        store = world.owner.store
        assert store is not None
        plan = store.plan_resize

        def counted(*arguments: object, **options: object) -> object:
            nonlocal decided
            decided += 1
            return plan(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "plan_resize", counted)
        for uid in PODS:
            await storm.comes(uid, 2)
        for number in range(seconds):
            await storm.second(number)
            holds(world)
        assert storm.most <= len(PODS) + 1
        assert decided <= 2 * storm.asked
        assert storm.admitted > 0
        for _ in PODS:
            for uid in PODS:
                await storm.ask(uid, 3)
            await asyncio.sleep(resizing.ASKED_LATELY + 10)
            await world.resizing.retry()
        await world.settle()
        holds(world)
        assert world.resizing.pending == 0
        for uid in PODS:
            assert parse_bits(world.cpus(f"{uid}-app")).bit_count() == 3
        assert world.notes.failures == []

    clock.run(main())


def test_back_and_forth_is_where_it_began() -> None:
    """A chain of resizes that ends at the first size gives the same files again, but for who has which CPUs."""
    node = Node(from_synthetic(MACHINE), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    for uid in PODS:
        assert node.admit(sized(uid, 2)).admitted
    before, held = dict(node.files), node.view.owned.bit_count()
    drawn = random.Random(3)
    for _ in range(300):
        node.resize(sized(drawn.choice(PODS), drawn.randint(1, 12)))
    for uid in PODS:
        node.resize(sized(uid, 2))
    assert node.files.keys() == before.keys()
    assert node.view.owned.bit_count() == held
