"""Guards that a policy requires: a container with CPUs of its own is not created before they work, others are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.metrics import Metrics
from podslice.config.policy import InterferenceGuards, PodslicePolicy
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import World, in_world
from tests.conftest import make_pod
from tests.guards.kernel import CGROUPS
from tests.guards.node import IRQ, GuardedNode


class LockedFiles(KernelFiles):
    """The kernel takes nothing while it is locked."""

    locked = True

    def write(self, path: str, text: str) -> None:
        if self.locked:
            raise OSError(30, "Read-only file system")
        super().write(path, text)


class Told:
    """Nobody listens."""

    def trouble(self, kind: str, text: str) -> None: ...
    def event(self, reason: str, text: str) -> None: ...


def guards_of(world: World, folder: Path) -> LockedFiles:
    """The files of an agent's guards that has just started: one interrupt."""
    (folder / IRQ).parent.mkdir(parents=True)
    (folder / IRQ).write_text("0-31\n")
    files = LockedFiles(folder)
    store = SavedStore(folder, "boot", cgroups=CGROUPS)
    world.plugin._guards = NodeGuards(world.owner, files, store, Metrics(), said=Told())
    return files


@pytest.mark.parametrize("required", [True, False])
def test_no_container_before_its_guards(tmp_path: Path, *, required: bool) -> None:
    """Where the kernel takes nothing, a container with CPUs of its own is refused with the reason, and created when it
    does; shared ones are always created, and all of them where guards are not required (P4)."""

    async def test(world: World) -> None:
        guards_of(world, tmp_path / "root")
        await world.run(make_pod("shared", ("app", "500m")))
        if not required:
            await world.run(make_pod("own", ("app", "4")))
            return
        with pytest.raises(RPCError, match="GuardsNotReady: guard irq: irq 131 cannot be moved"):
            await world.run(make_pod("own", ("app", "4")))
        assert world.notes.refusals[0][1] == "GuardsNotReady"
        await world.run(make_pod("shared2", ("app", "500m")))
        guards_of(world, tmp_path / "again").locked = False
        await world.fake.create_container("sandbox-own", "app")
        assert (tmp_path / "again" / IRQ).read_text() != "0-31\n"
        world.check()

    policy = PodslicePolicy(guards=InterferenceGuards("enforce", required=required))
    in_world(tmp_path, test, policy=policy)


def test_an_unforeseen_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a failure of the pod that is counted and told, as anywhere else, and the time of the call is recorded; a
    pod whose CPUs must be guarded is refused."""

    def fail(files: KernelFiles, path: str) -> list[str]:
        raise RuntimeError("not foreseen")

    async def test(world: World) -> None:
        guards_of(world, tmp_path / "root").locked = False
        monkeypatch.setattr(KernelFiles, "names", fail)
        with pytest.raises(RPCError, match="GuardsNotReady: RuntimeError: not foreseen"):
            await world.run(make_pod("own", ("app", "4")))
        (failed,) = [failure for _, failure in world.notes.failures]
        assert (failed.step, str(failed).startswith("RuntimeError: not foreseen")) == ("guards", True)
        assert [name for name, _ in world.notes.hooks].count("CreateContainer") == 1

    in_world(tmp_path, test, policy=PodslicePolicy(guards=InterferenceGuards("enforce", required=True)))


def test_a_failure_stays_until_it_is_known_to_be_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a pass looks at many files, what the last one could not do still counts."""

    def refuse(files: KernelFiles, path: str, text: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(KernelFiles, "write", refuse)
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards("enforce", required=True))
    node.own()
    for number in range(64):
        node.put(f"proc/irq/{number}/smp_affinity_list", "0-31")

    async def failures() -> list[str]:
        await node.guards.look()
        look, seen = asyncio.ensure_future(node.guards.look()), [node.guards.failure]
        while not look.done():
            await asyncio.sleep(0)
            seen.append(node.guards.failure)
        return seen

    seen = asyncio.run(failures())
    assert len(seen) > 2
    assert set(seen) == {seen[0]} != {""}


@pytest.mark.parametrize("known", [True, False])
def test_pods_decided_at_their_first_container(tmp_path: Path, *, known: bool) -> None:
    """A pod whose sandbox came while the agent was away, and a container of a pod that nobody knows, get their CPUs
    with the container: it is refused all the same before these are guarded, and then created."""

    async def test(world: World) -> None:
        pod = make_pod("own", ("app", "4"))
        await world.kill()
        sandbox = await world.fake.run_pod("own", cgroup_parent="/kubepods/podown")
        await world.start()
        if known:
            world.source.add(pod)
        files = guards_of(world, tmp_path / "root")
        asked = {} if known else {"shares": 4096, "quota": 400000, "memory": 1 << 30}
        with pytest.raises(RPCError, match="GuardsNotReady: guard irq: irq 131 cannot be moved"):
            await world.fake.create_container(sandbox, "app", **asked)
        assert world.owner.undecided("own") is False
        files = guards_of(world, tmp_path / "again")
        files.locked = False
        created = await world.fake.create_container(sandbox, "app", **asked)
        left = parse_bits((tmp_path / "again" / IRQ).read_text().strip())
        assert parse_bits(created.cpus).bit_count() == 4
        assert not left & parse_bits(created.cpus)
        world.check()

    in_world(tmp_path, test, policy=PodslicePolicy(guards=InterferenceGuards("enforce", required=True)))


def test_a_refused_pod_needs_no_guards(tmp_path: Path) -> None:
    """A container that gets no CPUs is refused for that, once, and no guard makes a pass."""

    async def test(world: World) -> None:
        guards_of(world, tmp_path / "root")
        with pytest.raises(RPCError, match="TopologyAffinityError"):
            await world.run(make_pod("own", ("app", "400")))
        assert (tmp_path / "root" / IRQ).read_text() == "0-31\n"
        assert len(world.notes.refusals) == 1

    in_world(tmp_path, test, policy=PodslicePolicy(guards=InterferenceGuards("enforce", required=True)))
