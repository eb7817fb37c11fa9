"""CPUs that go and come while resizes are on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podslice import Hotplug, Machine, PodslicePolicy, without_cpus
from podslice.agent.hotplug import MachineSource, MachineWatch
from podslice.agent.runtime.ttrpc import RPCError
from podslice.config.policy import ExclusiveResize
from podslice.host.discover import Reading
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits
from tests import clock
from tests.agent.elastic import Elastic
from tests.agent.helpers import pod_level
from tests.agent.kernel import SHARED
from tests.agent.test_resizing import app, in_elastic
from tests.agent.test_resizing_lives import MACHINE, STEPS, Life
from tests.conftest import make_pod


def policy(lost: str, delay: float = 0.0) -> PodslicePolicy:
    resize = ExclusiveResize(exclusive=True, below_baseline="allow", shrink_delay_seconds=delay)
    return PodslicePolicy(resize=resize, hotplug=Hotplug(lost_cpus=lost))  # type: ignore[arg-type]


class Switch:
    """Turns CPUs of a node off and on, and has its agent see that."""

    def __init__(self, world: Elastic) -> None:
        self.world = world
        self.whole = world.machine
        self.machine: Machine = world.machine
        self.watch()

    def watch(self) -> None:
        """Of an agent that has just started."""
        source = MachineSource(lambda: Reading(format_bits(self.machine.cpus.bits)), lambda: self.machine)
        self._watch = MachineWatch(self.world.owner, source, write=self.world.reconciler.write, place=self._place)

    async def _place(self) -> None:
        for _ in self.world.owner.updates.write(self.world.reconciler.write):
            await asyncio.sleep(0)

    async def off(self, cpus: Bits) -> None:
        self.machine = without_cpus(self.whole, cpus)
        self.world.kernel.online = self.machine.cpus.bits
        self.world.kernel.lag = 0
        self.world.kernel.catch_up()
        await self._watch.look()


@pytest.mark.parametrize("lost", ["degrade", "replace"])
def test_an_owner_that_shares_again_has_its_limit_again(tmp_path: Path, lost: str) -> None:
    """All CPUs of an owner go, and it runs on those that are left. It had no quota, because its CPUs were its own: on
    shared ones it has the kubelet's, in its cgroup and in what the runtime hears."""

    world = Elastic(tmp_path, policy(lost), pod_level(reserved_system_cpus="0-1"), machine=MACHINE)

    async def main() -> None:
        world.start()
        switch = Switch(world)
        await world.run(app("a", "4"))
        assert world.owner.containers["a-app"].applied.quota_off
        await switch.off(switch.whole.cpus.bits & ~bits_of([0, 1]))
        await world.settle()
        world.agrees()
        record = world.owner.containers["a-app"]
        assert (world.cpus("a-app"), record.applied.quota_off) == ("0-1", False)
        said = [
            one.linux.resources.cpu.quota.value for one in world.owner.updates.late() if one.container_id == "a-app"
        ]
        assert said in ([], [400_000])

    clock.run(main())


@pytest.mark.parametrize("lost", ["degrade", "replace"])
def test_cpus_go_while_others_leave_them(tmp_path: Path, lost: str) -> None:
    """A growth is waiting for a shared container to leave when a CPU that it is to get goes: it is undone, said to have
    failed with the CPU, and what is asked next is had from those that are there."""

    async def test(world: Elastic) -> None:
        switch = Switch(world)
        await world.run(app("a", "4"))
        await world.run(make_pod("s", ("app", None)))
        world.kernel.lag = 20
        world.source.add(app("a", "6"))
        growing = asyncio.ensure_future(world.update("a-app", 6000))
        await asyncio.sleep(0.02)
        switch.machine = without_cpus(switch.whole, 1 << 7)
        world.kernel.online = switch.machine.cpus.bits
        world.owner.change_machine(switch.machine)
        with pytest.raises(RPCError, match="resize failed: CPUs 7 went offline meanwhile"):
            await growing
        world.kernel.lag = 0
        await switch._place()
        assert (world.owned("a"), world.cpus("a-app")) == ("2-5", "2-5")
        await world.update("a-app", 6000)
        assert world.cpus("a-app") == "2-6,8"
        await world.settle()
        world.agrees()

    in_elastic(tmp_path, test, policy(lost))


def test_a_degraded_owner_is_resized_within_the_call(tmp_path: Path) -> None:
    """An owner that has lost a CPU grows to as many as it asks for, at once: nobody has to leave what is not there."""

    async def test(world: Elastic) -> None:
        switch = Switch(world)
        await world.run(app("a", "4"))
        await world.run(make_pod("s", ("app", None)))
        await switch.off(1 << 5)
        assert world.cpus("a-app") == "2-4"
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        assert world.cpus("a-app") == "2-4,6-8"
        await switch.off(0)
        await world.settle()
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2-4,6-8", "0-1,5,9-31")
        world.agrees()
        world.start()
        assert world.cpus("a-app") == "2-4,6-8"

    in_elastic(tmp_path, test, policy("degrade"))


def test_a_containers_file_follows_the_machine(tmp_path: Path) -> None:
    """The file in a container has the CPUs that are left of its own, and says that it shares where none is; what it
    was promised is there again when they return."""

    async def test(world: Elastic) -> None:
        switch = Switch(world)
        await world.run(app("a", "4"))
        before = world.container_file("a-app")
        for gone, cpus, isolation in (("5", "2-4", "container"), ("3-5", "2", "container"), ("2-31", "0-1", "host")):
            await switch.off(parse_bits(gone))
            told = world.container_file("a-app")
            assert (told["cpus"], told["isolation"]) == (cpus, isolation)
        await switch.off(0)
        after = world.container_file("a-app")
        assert (before["cpus"], {**after, "generation": before["generation"]}) == ("2-5", before)
        assert after["generation"] > before["generation"]

    in_elastic(tmp_path, test, policy("degrade"))


def test_cpus_that_come_are_room(tmp_path: Path) -> None:
    """A growth that waits is done as soon as CPUs come, before the kubelet asks again, and a pod that was refused is
    admitted at its next attempt."""

    async def test(world: Elastic) -> None:
        switch = Switch(world)
        await switch.off(parse_bits("14-31"))
        await world.run(app("a", "4"))
        await world.run(app("b", "6"))
        trying = asyncio.ensure_future(world.resizing.run())
        world.source.add(app("a", "8"))
        with pytest.raises(RPCError, match="deferred"):
            await world.update("a-app", 8000)
        with pytest.raises(RPCError, match="TopologyAffinityError"):
            await world.run(app("c", "4"))
        world.leave("c")
        assert (world.cpus("a-app"), world.resizing.pending) == ("2-5", 1)
        await switch.off(0)
        await asyncio.sleep(0.1)
        assert (world.cpus("a-app"), world.resizing.pending) == ("2-5,12-15", 0)
        await world.run(app("c", "4"))
        world.agrees()
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)

    in_elastic(tmp_path, test, policy("degrade"))


def test_a_shrink_waits_while_its_cpus_go(tmp_path: Path) -> None:
    """CPUs that a container is about to give back go offline during its delay: it ends with its new size, all of it
    online, and nothing of the rest is anybody's."""

    async def test(world: Elastic) -> None:
        switch = Switch(world)
        await world.run(app("a", "4"))
        await world.run(make_pod("s", ("app", None)))
        world.source.add(app("a", "8"))
        await world.update("a-app", 8000)
        world.source.add(app("a", "5"))
        await world.update("a-app", 5000)
        await asyncio.sleep(1)
        await switch.off(parse_bits("5-7"))
        await asyncio.sleep(10)
        await world.settle()
        assert world.cpus("a-app").count(",") <= 2
        assert parse_bits(world.cpus("a-app")).bit_count() == 5
        world.agrees()

    in_elastic(tmp_path, test, policy("degrade", delay=5.0))


class Switched(Life):
    """A life in which CPUs go and come too, also in the middle of resizes. Who has none of its own left may share."""

    def __init__(self, world: Elastic, seed: int, switch: Switch) -> None:
        super().__init__(world, seed)
        self.switch = switch
        self._owner_of = world.kernel.owner_of
        world.kernel.owner_of = self.owner_of  # type: ignore[method-assign]

    def owner_of(self, path: str) -> str:
        node, uid = self.world.owner.node, path.split("/")[1].removeprefix("pod")
        assert node is not None
        own = node.state.cpu.of_pod(uid).cpus
        owner = self._owner_of(path)
        return SHARED if owner and own and not self.world.kernel.on(path) & own else owner

    async def step(self) -> None:
        self.world.kernel.catch_up()
        self.world.kernel.lag = 0
        if self.random.random() < 0.3:
            self.world.kernel.lag = self.random.choice([0, 3])
            resize = asyncio.ensure_future(self.is_resized())
            await asyncio.sleep(self.random.choice([0.0, 0.005, 0.02]))
            await self.machine_changes()
            await resize
        else:
            await super().step()

    async def machine_changes(self) -> None:
        gone = self.random.sample(range(1, 16), self.random.choice([0, 1, 2, 5]))
        await self.switch.off(bits_of(gone))


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["degrade", "replace"])
@pytest.mark.parametrize("seed", range(12))
def test_no_life_on_a_machine_that_changes_puts_two_on_a_cpu(tmp_path: Path, seed: int, lost: str) -> None:
    """Whatever comes, grows, shrinks and goes, and whichever CPUs do: no CPU is ever of two, and in the end everybody
    runs on what the ledgers say."""
    world = Elastic(tmp_path, policy(lost), pod_level(reserved_system_cpus="0-1"), machine=MACHINE)

    async def main() -> None:
        world.start()
        life = Switched(world, seed, Switch(world))
        for _ in range(STEPS):
            await life.step()
        world.kernel.lag = 0
        await asyncio.sleep(10)
        await life.machine_changes()
        await world.settle()
        world.agrees()
        assert world.notes.failures == []

    clock.run(main())
