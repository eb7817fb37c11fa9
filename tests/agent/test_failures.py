"""Failure at the wire: whatever dies, and whenever, nobody's exclusive CPUs move, no CPU is lost, the ledgers agree."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podslice.agent.runtime.ttrpc import RPCError
from podslice.config.kubelet import MemoryReservation
from podslice.host.state import statefile
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import MACHINE, World, agent_config, in_world, pod_level
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeRuntime

Call = Callable[[FakeRuntime], Awaitable[object]]


def kubelet_update(container: str) -> Call:
    resources = nri.LinuxResources()
    resources.cpu.shares.value = 4096
    return lambda fake: fake.update_container(container, resources)


def day() -> list[tuple[str, Call]]:
    """The runtime's calls of a small node's day: exclusive, shared and pod-level pods, a container that crashes, and
    the end of everything."""
    create = lambda sandbox, name, id="": lambda fake: fake.create_container(sandbox, name, container_id=id)  # noqa: E731
    return [
        ("run a", lambda fake: fake.run_pod("a")),
        ("create a", create("sandbox-a", "app")),
        ("run s", lambda fake: fake.run_pod("s")),
        ("create s", create("sandbox-s", "app")),
        ("run b", lambda fake: fake.run_pod("b")),
        ("create b/x", create("sandbox-b", "x")),
        ("create b/y", create("sandbox-b", "y")),
        ("update a", kubelet_update("sandbox-a-app")),
        ("stop b/x", lambda fake: fake.stop_container("sandbox-b-x")),
        ("remove b/x", lambda fake: fake.remove_container("sandbox-b-x")),
        ("create b/x again", create("sandbox-b", "x", "again")),
        ("stop pod a", lambda fake: fake.stop_pod("sandbox-a")),
        ("remove pod a", lambda fake: fake.remove_pod("sandbox-a")),
        ("run c", lambda fake: fake.run_pod("c")),
        ("create c", create("sandbox-c", "app")),
        ("stop pod s", lambda fake: fake.stop_pod("sandbox-s")),
        ("remove pod s", lambda fake: fake.remove_pod("sandbox-s")),
        ("stop pod b", lambda fake: fake.stop_pod("sandbox-b")),
        ("remove pod b", lambda fake: fake.remove_pod("sandbox-b")),
        ("stop pod c", lambda fake: fake.stop_pod("sandbox-c")),
        ("remove pod c", lambda fake: fake.remove_pod("sandbox-c")),
    ]


CALLS = len(day())
MEMORY = {
    "memory_manager_policy": "Static",
    "system_reserved": {"memory": "1Gi"},
    "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
}


def pods(world: World) -> None:
    """Return the pods that the source knows."""
    for pod in (
        make_pod("a", ("app", "3")),
        make_pod("s", ("app", "100m")),
        make_pod("b", ("x", "2"), ("y", None), budget="4"),
        make_pod("c", ("app", "5")),
    ):
        world.source.add(pod)


def exclusive(world: World) -> dict[str, str]:
    """Return the CPUs of containers with CPUs of their own by the runtime's ledgers, not ours."""
    return {
        id: container.cpus
        for id, container in world.fake.containers.items()
        if container.env.get("PODSLICE_ISOLATION") in ("container", "pod")
        and container.message.state != nri.CONTAINER_STOPPED
    }


def ledger(world: World) -> dict[str, object]:
    """Everything the owner and the state files hold."""
    owner = world.owner
    state = owner.node.kubelet.manager.cpu.state if owner.node else None
    assert state is not None
    on_disk = json.loads((world.folder / "state" / "cpu_manager_state").read_text())
    return {
        "containers": {record.id: owner.placing.wanted(record) for record in owner.containers.values()},
        "pods": {uid: frozenset(pod.units) for uid, pod in owner.pods.items() if pod.units},
        "default": state.default,
        "assignments": {uid: dict(found) for uid, found in state.assignments.items() if found},
        "bubbles": dict(state.pod_cpus),
        "disk": on_disk,
        "files": sorted(path.name for path in (world.folder / "state" / "pods").glob("*.json")),
    }


def settled(world: World) -> None:
    """After the updates that the next answer carries, everything must be as the ledgers say."""
    if world.fake.attached.is_set():
        world.fake._apply(world.owner.updates.take())
        world.check()


def at_the_end(world: World) -> None:
    """Nothing is left of the day."""
    settled(world)
    assert world.owner.placing.exclusive() == 0
    found = ledger(world)
    assert (found["containers"], found["pods"], found["files"]) == ({}, {}, [])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CALLS))
def test_killed_before_any_two_calls(tmp_path: Path, first: int) -> None:
    """Every pair: the agent is killed before one call and again before a later one, and starts at once both times.
    Its ledgers are then exactly what they were, and nobody's CPUs change."""

    async def pair(folder: Path, kills: set[int]) -> None:
        world = World(folder, pod_level(), machine="pack:1 numa:1(memory=64GB) core:8 pu:2")
        await world.start()
        pods(world)
        for number, (name, call) in enumerate(day()):
            if number in kills:
                before, had = ledger(world), {id: c.cpus for id, c in world.fake.containers.items()}
                await world.restart()
                assert ledger(world) == before, name
                assert {id: c.cpus for id, c in world.fake.containers.items()} == had, name
            await call(world.fake)
            settled(world)
        at_the_end(world)
        assert world.fake.unpinned == []
        await world.kill()

    async def main() -> None:
        for second in range(first + 1, CALLS):
            await pair(tmp_path / str(second), {first, second})

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CALLS))
def test_away_between_any_two_calls(tmp_path: Path, first: int) -> None:
    """Every pair: the agent dies before one call and comes back before a later one. Who had exclusive CPUs keeps them,
    who came meanwhile is admitted or moved, who went is forgotten."""

    async def pair(folder: Path, gone: int, back: int) -> None:
        world = World(folder, pod_level(), machine="pack:1 numa:1(memory=64GB) core:8 pu:2")
        await world.start()
        pods(world)
        for number, (_, call) in enumerate(day()):
            if number == gone:
                await world.kill()
            if number == back:
                had = exclusive(world)
                await world.start()
                world.check()
                assert exclusive(world) == {id: cpus for id, cpus in had.items() if id in world.fake.containers}
            await call(world.fake)
            settled(world)
        if back == CALLS:
            await world.start()
        at_the_end(world)
        assert world.notes.troubles == []
        await world.kill()

    async def main() -> None:
        for back in range(first + 1, CALLS + 1):
            await pair(tmp_path / str(back), first, back)

    asyncio.run(main())


class KilledError(BaseException):
    """SIGKILL, as far as a test can have it: nothing of the agent goes on."""


class DyingFiles(statefile.RealFiles):
    """The disk of a process that is killed at its `fatal`-th step, before or after doing it."""

    fatal = -1
    after = False
    steps = itertools.count()

    def _step(self, do: Callable[[], None]) -> None:
        dies = next(DyingFiles.steps) == DyingFiles.fatal
        if dies and not DyingFiles.after:
            raise KilledError
        do()
        if dies:
            raise KilledError

    def write(self, path: Path, data: bytes) -> None:
        self._step(lambda: super(DyingFiles, self).write(path, data))

    def rename(self, source: Path, target: Path) -> None:
        self._step(lambda: super(DyingFiles, self).rename(source, target))

    def sync_directory(self, path: Path) -> None:
        self._step(lambda: super(DyingFiles, self).sync_directory(path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_inside_a_call_at_every_step_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """The process dies in the middle of a decision, before and after each write, rename and sync of a state file: the
    runtime goes on without it, and the next agent makes the node whole, with no CPU lost and none given away twice."""
    monkeypatch.setattr(statefile, "RealFiles", DyingFiles)
    monkeypatch.setattr("podslice.host.state.store.RealFiles", DyingFiles)
    DyingFiles.after = after

    async def live(folder: Path, fatal: int) -> bool:
        """One day; False when it had fewer steps than that."""
        DyingFiles.fatal, DyingFiles.steps = -1, itertools.count()
        world = World(folder, pod_level(), machine="pack:1 numa:1(memory=64GB) core:8 pu:2")
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await world.start()
        pods(world)
        DyingFiles.fatal, DyingFiles.steps = fatal, itertools.count()
        died = False
        for _, call in day():
            had = exclusive(world)
            await call(world.fake)
            if not died and not world.fake.attached.is_set():
                died = True
                DyingFiles.fatal = -1
                await world.kill()
                await world.start()
                kept = {id: cpus for id, cpus in had.items() if id in exclusive(world)}
                assert {id: cpus for id, cpus in exclusive(world).items() if id in kept} == kept
            settled(world)
        at_the_end(world)
        await world.kill()
        return died

    async def main() -> int:
        step = 0
        while await live(tmp_path / str(step), step):
            step += 1
        return step

    assert asyncio.run(main()) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("before", range(CALLS))
def test_runtime_restarts_before_any_call(tmp_path: Path, before: int) -> None:
    """The runtime goes and comes back between any two calls; the agent reconnects by itself and nothing changes."""

    async def test(world: World) -> None:
        pods(world)
        for number, (_, call) in enumerate(day()):
            if number == before:
                had, known = ledger(world), len(world.fake.registered)
                world.fake.stop()
                await asyncio.sleep(0.03)
                world.fake.start()
                await asyncio.wait_for(world.fake.attached.wait(), 5)
                assert len(world.fake.registered) == known + 1
                assert ledger(world) == had
            await call(world.fake)
            settled(world)
        at_the_end(world)
        assert world.fake.unpinned == []

    in_world(tmp_path, test, pod_level())


def test_slow_call_costs_the_connection_and_nothing_else(tmp_path: Path) -> None:
    """A call that takes longer than the runtime waits: the connection goes, the container starts unpinned, the agent is
    back by itself and puts it where it belongs."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        had = exclusive(world)
        create = world.plugin.create_container

        async def slowly(pod: nri.PodSandbox, container: nri.Container) -> object:
            await asyncio.sleep(1.0)
            return create(pod, container)

        world.plugin.create_container = slowly  # type: ignore[method-assign,assignment]
        world.source.add(make_pod("b", ("app", "2")))
        late = await world.fake.create_container(await world.fake.run_pod("b"), "app")
        assert world.fake.unpinned == [late.message.id]
        assert late.cpus == ""
        world.plugin.create_container = create  # type: ignore[method-assign]
        await asyncio.wait_for(world.fake.attached.wait(), 5)
        assert parse_bits(late.cpus).bit_count() == 2
        assert exclusive(world) == had
        world.check()
        await asyncio.sleep(1.0)
        world.check()

    in_world(tmp_path, test, pod_level(), request_timeout=0.2)


@pytest.mark.slow
def test_200_pods_in_and_out(tmp_path: Path) -> None:
    """The node is afterwards what it was before: state, pools, files, and what long-running pods have."""

    async def test(world: World) -> None:
        long = await world.run(make_pod("long", ("own", "2"), ("side", "100m")))
        before, had = ledger(world), {name: c.cpus for name, c in long.items()}
        kinds = [
            lambda uid: make_pod(uid, ("app", "1")),
            lambda uid: make_pod(uid, ("app", "250m")),
            lambda uid: make_pod(uid, ("x", "1"), ("y", None), budget="2"),
            lambda uid: make_pod(uid, ("app", None)),
        ]
        for batch in range(10):
            uids = [f"p{batch}-{number}" for number in range(20)]
            for number, uid in enumerate(uids):
                await world.run(kinds[number % 4](uid))
            world.check()
            for uid in reversed(uids) if batch % 2 else uids:
                await world.end(uid)
        updates = world.owner.updates.take()
        world.fake._apply(updates)
        assert {name: c.cpus for name, c in long.items()} == had
        assert ledger(world) == before
        assert {path.name for path in (tmp_path / "containers").iterdir()} == set(world.owner.containers)
        world.check()

    in_world(tmp_path, test, pod_level(), machine=MACHINE)


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
@pytest.mark.parametrize("damage", ["cut", "empty", "zeros", "flipped", "other"])
def test_damaged_state_file(tmp_path: Path, name: str, damage: str) -> None:
    """Whatever happened to a state file, running containers keep what they have and nothing exclusive is given away;
    the repaired file makes the node whole again."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        await world.run(make_pod("b", ("x", "2"), ("y", None), budget="4"))
        had, whole = exclusive(world), ledger(world)
        await world.kill()
        file = tmp_path / "state" / name
        good = file.read_bytes()
        spoilt = {
            "cut": good[:-20],
            "empty": b"",
            "zeros": bytes(len(good)),
            "flipped": good.replace(b"0", b"1"),
            "other": b'{"policyName":"none","defaultCpuSet":"","checksum":1}',
        }
        file.write_bytes(spoilt[damage])
        await world.start()
        shared = await world.run(make_pod("s", ("app", "100m")))
        assert exclusive(world) == had
        owned = 0
        for cpus in had.values():
            owned |= parse_bits(cpus)
        assert world.owner.safe_mode
        assert "/var/lib/kubelet" not in world.owner.safe_mode
        assert "Kubelet" not in world.owner.safe_mode
        assert "safeMode" in {what for what, _ in world.notes.troubles}
        with pytest.raises(RPCError, match="no exclusive CPUs while the state cannot be trusted"):
            await world.run(make_pod("new", ("app", "2")))
        assert not parse_bits(shared["app"].cpus) & owned
        assert file.read_bytes() == spoilt[damage]
        await world.end("s")
        await world.kill()
        file.write_bytes(good)
        await world.start()
        assert world.owner.safe_mode == ""
        assert ledger(world) == whole
        world.check()

    in_world(tmp_path, test, pod_level(**MEMORY))


@pytest.mark.parametrize("lost", ["cpu_manager_state", "pods", "everything", "old"])
def test_lost_state(tmp_path: Path, lost: str) -> None:
    """State that is gone, or a copy of yesterday's, reads like a good one: running containers say otherwise, so it is
    not believed, nothing is overwritten and nobody is moved. With the right files back all is well, even without a
    restart of the agent."""

    async def test(world: World) -> None:
        state = tmp_path / "state"
        await world.run(make_pod("first", ("app", "3"), init=(("prepare", "1", False),)))
        await world.kill()
        shutil.copytree(state, tmp_path / "yesterday")
        await world.start()
        await world.run(make_pod("a", ("app", "4")))
        await world.run(make_pod("b", ("x", "2"), ("y", None), budget="4"))
        await world.end("first")
        await world.run(make_pod("c", ("app", "1")))
        had, whole = exclusive(world), ledger(world)
        await world.kill()
        shutil.copytree(state, tmp_path / "good")
        if lost == "cpu_manager_state":
            (state / lost).unlink()
        elif lost == "pods":
            shutil.rmtree(state / "pods")
        else:
            shutil.rmtree(state)
        if lost == "old":
            shutil.copytree(tmp_path / "yesterday", state)
        await world.start()
        assert exclusive(world) == had
        assert "owns" in world.owner.safe_mode
        assert not (state / "cpu_manager_state").exists() or lost in ("pods", "old")
        with pytest.raises(RPCError, match="no exclusive CPUs while the state cannot be trusted"):
            await world.run(make_pod("new", ("app", "2")))
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "good", state)
        world.fake.drop_plugin()
        await asyncio.wait_for(world.fake.attached.wait(), 5)
        assert world.owner.safe_mode == ""
        assert exclusive(world) == had
        assert ledger(world) == whole
        world.check()

    in_world(tmp_path, test, pod_level())


def test_forged_environment_claims_nothing(tmp_path: Path) -> None:
    """A pod may set our variables itself: created while we were away it is a stranger all the same, in safe mode too,
    and owns nothing."""

    async def test(world: World) -> None:
        own = (await world.run(make_pod("a", ("app", "4"))))["app"]
        before = own.cpus
        await world.kill()
        world.source.add(make_pod("s", ("app", "100m")))
        forged = ("PODSLICE_ISOLATION=container", "PODSLICE_CPUS=0-31")
        stranger = await world.fake.create_container(await world.fake.run_pod("s"), "app", env=forged)
        await world.start()
        assert world.notes.strangers == ["default/s/app"]
        assert not parse_bits(stranger.cpus) & parse_bits(before)
        world.check()
        await world.kill()
        (tmp_path / "state" / "cpu_manager_state").write_bytes(b"damaged")
        await world.start()
        assert world.owner.safe_mode
        shared = (await world.run(make_pod("t", ("app", "100m"))))["app"]
        assert own.cpus == before
        assert parse_bits(shared.cpus) == world.owner.placing.all_cpus & ~parse_bits(before)

    in_world(tmp_path, test)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("budget", [None, "6"])
def test_pods_with_init_containers_are_believed(tmp_path: Path, scope: str, budget: str | None) -> None:
    """A restart at every stage of a pod's life: what init containers, sidecars and their successors share is no reason
    to distrust the state, and nobody moves."""

    async def test(world: World) -> None:
        pod = make_pod(
            "a", ("app", "2"), ("side-kick", None if budget else "1"), budget=budget,
            init=(("prepare", "2", False), ("side", "1", True), ("late", "2", False)),
        )  # fmt: skip
        world.source.add(pod)
        sandbox = await world.fake.run_pod("a")
        for name in ("prepare", "side", "late", "app", "side-kick"):
            container = await world.fake.create_container(sandbox, name)
            had = exclusive(world)
            await world.restart()
            assert world.owner.safe_mode == ""
            assert exclusive(world) == had
            world.check()
            if name in ("prepare", "late"):
                await world.fake.stop_container(container.message.id)
                await world.fake.remove_container(container.message.id)
        await world.end("a")
        at_the_end(world)

    in_world(
        tmp_path,
        test,
        agent_config(topology_manager_scope=scope, feature_gates={"PodLevelResourceManagers": True}, **MEMORY),
    )
