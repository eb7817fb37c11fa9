"""Running containers get their sets between two answers, and the runtime's ledgers follow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from podslice.agent.records import ContainerRecord, Pinning
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import World, in_world, pod_level
from tests.conftest import make_pod


class Cgroups:
    """The cgroups of containers: the values that the runtime or the agent wrote last. The agent cannot see the
    `hidden`."""

    def __init__(self, world: World) -> None:
        self.cpus: dict[str, str] = {}
        self.hidden: set[str] = set()
        self._world = world
        self._apply = world.fake._apply
        world.plugin._write_cgroup = self.write
        world.fake._apply = self.update  # type: ignore[method-assign]

    def write(self, record: ContainerRecord, wanted: Pinning) -> bool:
        if record.id in self.hidden:
            return False
        self.cpus[record.id] = wanted.cpu_list
        return True

    def update(self, updates: Sequence[nri.ContainerUpdate]) -> None:
        """An answer of the agent."""
        self._apply(updates)
        self.cpus |= {one.container_id: one.linux.resources.cpu.cpus for one in updates}

    def check(self, *, everyone: bool = False) -> None:
        for record in self._world.owner.containers.values():
            if everyone or record.id not in self.hidden:
                found = self.cpus.get(record.id, self._world.fake.containers[record.id].cpus)
                assert found == self._world.owner.placing.wanted(record).cpu_list


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_cgroups_lead_and_the_ledger_follow(tmp_path: Path, seed: int) -> None:
    """Whatever comes and goes, every cgroup is right before the next call, those we cannot see with the next answer,
    and some answers later the runtime knows all of it."""

    async def test(world: World) -> None:
        chance, cgroups, live = random.Random(seed), Cgroups(world), list[str]()
        updates = world.owner.updates
        for number in range(60):
            if live and chance.random() < 0.45:
                await world.end(live.pop(chance.randrange(len(live))))
            else:
                uid = f"p{number}"
                shared = chance.random() < 0.5
                await world.run(make_pod(uid, ("app", "100m" if shared else str(chance.randint(1, 3)))))
                live.append(uid)
                if shared and chance.random() < 0.3:
                    cgroups.hidden.add(f"sandbox-{uid}-app")
            if chance.random() < 0.7:
                for _ in updates.write(cgroups.write):
                    pass
                cgroups.check()
        for number in range(20):
            await world.run(make_pod(f"last{number}", ("app", "100m")))
        cgroups.check(everyone=True)
        for record in world.owner.containers.values():
            assert world.fake.containers[record.id].cpus == world.owner.placing.wanted(record).cpu_list

    in_world(tmp_path, test, pod_level())


def test_what_changes_between_two_steps(tmp_path: Path) -> None:
    """A pass that is overtaken by another change goes on with the newer sets and leaves nothing undone."""

    async def test(world: World) -> None:
        cgroups = Cgroups(world)
        for number in range(6):
            await world.run(make_pod(f"s{number}", ("app", "100m")))
        world.source.add(make_pod("a", ("app", "2")))
        await world.fake.run_pod("a")
        steps = world.owner.updates.write(cgroups.write)
        next(steps)
        world.source.add(make_pod("b", ("app", "2")))
        await world.fake.run_pod("b")
        for _ in steps:
            pass
        for _ in world.owner.updates.write(cgroups.write):
            pass
        cgroups.check()

    in_world(tmp_path, test)


def test_a_sidecar_leaves_an_init_container_alone(tmp_path: Path) -> None:
    """While an init container owns CPUs of its pod, a shared sidecar that runs is moved off them, and comes back when
    it has ended, whether the runtime tells of the end or only of the next container."""

    async def test(world: World) -> None:
        pod = make_pod("p", ("app", "1"), init=(("sidecar", None, True), ("init", "3", False)), budget="4")
        world.source.add(pod)
        sandbox = await world.fake.run_pod("p")
        sidecar = await world.fake.create_container(sandbox, "sidecar")
        final = sidecar.cpus
        for told in (True, False):
            init = await world.fake.create_container(sandbox, "init")
            assert not parse_bits(sidecar.cpus) & parse_bits(init.cpus)
            assert parse_bits(sidecar.cpus)
            world.check()
            if told:
                await world.fake.stop_container(init.message.id)
                assert sidecar.cpus == final
        await world.fake.create_container(sandbox, "app")
        assert sidecar.cpus == final
        world.check()

    in_world(tmp_path, test, pod_level())
