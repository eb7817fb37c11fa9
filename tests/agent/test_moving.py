"""Moves of running containers that the agent carries out: one verified step after the other, and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.advise.defrag.moves import (
    DefragmentationResult,
    MoveProgress,
    MoveRequest,
    read_request,
    read_result,
    undo_request,
)
from podslice.advise.defrag.plan import ContainerMove, Move, apply_move
from podslice.agent.moves.move_rules import ThreadMasks
from podslice.agent.moves.plan_executor import MovesRefusedError
from podslice.agent.runtime.ttrpc import RPCError
from podslice.config.kubelet import MemoryReservation
from podslice.config.policy import Defragmentation, ExclusiveResize, PodslicePolicy
from podslice.host.state.resize_store import ResizeStore
from podslice.node.holding import digest
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.document import document, without_header
from podslice.values.errors import InputError
from tests import clock
from tests.agent.elastic import Elastic, asked, kill_at
from tests.agent.helpers import agent_config, pod_level
from tests.agent.kernel import KilledError
from tests.conftest import make_pod

ALL = Defragmentation(carry_out="onRequest", movable="all", max_moves_per_hour=100)
EVERYTHING = PodslicePolicy(resize=ExclusiveResize(exclusive=True), defrag=ALL)


def policy(**fields: Any) -> PodslicePolicy:
    return PodslicePolicy(defrag=replace(ALL, **fields))


def in_moving(
    folder: Path, test: Callable[[Elastic], Awaitable[None]], rules: PodslicePolicy = EVERYTHING, **options: Any
) -> Elastic:
    """Run a test in virtual time."""
    world = Elastic(folder, rules, **options)

    async def main() -> None:
        world.start()
        await test(world)

    clock.run(main())
    return world


async def two_and_a_sharer(world: Elastic) -> None:
    """Containers on 2-5 and 6-9, and one on all the others."""
    await world.run(make_pod("a", ("app", "4")))
    await world.run(make_pod("b", ("app", "4")))
    await world.run(make_pod("s", ("app", None)))


def moved(world: Elastic, uid: str, name: str, to: str, memory: str = "") -> Move:
    """A container of a pod goes to these CPUs, and its memory to these nodes."""
    view = world.view
    nodes = CPUSet.from_bits(view.numa_nodes(uid, name))
    cpus = CPUSet.from_bits(view.assignment(uid, name) or 0)
    there = ContainerMove(name, cpus, CPUSet.parse(to), nodes, CPUSet.parse(memory) if memory else nodes)
    return Move(uid=uid, namespace="default", name=uid, containers=(there,))


def asking(world: Elastic, *moves: Move) -> MoveRequest:
    return MoveRequest(world.digest, moves)


def ends(result: DefragmentationResult) -> list[str]:
    return [outcome.result for outcome in result.moves]


def test_a_container_goes_and_comes_back(tmp_path: Path) -> None:
    """Its new CPUs are left by the shared ones before it comes, the ones it left are theirs afterwards; people hear of
    it; undone, everything is as it was."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        before, heard = world.digest, list[MoveProgress]()
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23")), heard.append)
        await world.settle()
        assert (ends(result), result.problem, result.state_before) == (["done"], "", before)
        assert result.state_after == world.digest != before
        assert (world.cpus("a-app"), world.owned("a"), world.cpus("s-app")) == ("20-23", "20-23", "0-5,10-19,24-31")
        assert [(one.step, one.of, one.text, one.result) for one in heard] == [
            (1, 1, "default/a app: 2-5 -> 20-23", "done")
        ]
        assert [(one.result, one.text) for one in world.notes.moves] == [("done", "default/a app: 2-5 -> 20-23")]
        assert world.container_file("a-app")["cpus"] == "20-23"
        world.agrees()
        world.start()
        await world.settle()
        assert world.cpus("a-app") == "20-23"
        back = await world.moving.carry_out(undo_request(result))
        await world.settle()
        assert (ends(back), back.undo, world.digest) == (["done"], True, before)
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2-5", "0-1,10-31")
        world.agrees()

    in_moving(tmp_path, test)


def test_pod_cpus_moves_as_one(tmp_path: Path) -> None:
    """A pod's slices and its shared containers go together, and at no moment does one run on CPUs of another."""

    async def test(world: Elastic) -> None:
        await world.run(make_pod("a", ("own", "4"), ("pool", None), budget="8"))
        await world.run(make_pod("s", ("app", None)))
        before = (world.cpus("a-own"), world.cpus("a-pool"))
        own, pool = moved(world, "a", "own", "16-19").containers[0], moved(world, "a", "pool", "20-23").containers[0]
        whole = CPUSet.from_bits(world.view.pod_cpus["a"])
        move = Move("a", "default", "a", (own, pool), whole, CPUSet.parse("16-23"))
        result = await world.moving.carry_out(asking(world, move))
        await world.settle()
        assert (result.problem, world.cpus("a-own"), world.cpus("a-pool")) == ("", "16-19", "20-23")
        world.agrees()
        assert ends(await world.moving.carry_out(undo_request(result))) == ["done"]
        await world.settle()
        assert (world.cpus("a-own"), world.cpus("a-pool")) == before
        world.agrees()

    in_moving(tmp_path, test, config=pod_level(reserved_system_cpus="0-1"))


def test_a_grown_container_gets_back_what_it_was_promised(tmp_path: Path) -> None:
    """The loaned CPUs and their order are the same again after a move and its undoing."""

    async def test(world: Elastic) -> None:
        await world.run(make_pod("z", ("app", "2")))
        await world.run(make_pod("a", ("app", "2")))
        world.plugin.stop_pod(world.pods["s-z"])
        world.gone("z")
        for size in ("4", "6"):
            world.source.add(make_pod("a", ("app", size)))
            await world.update("a-app", int(size) * 1000)
        await world.settle()
        await asyncio.sleep(1)
        cpu = world.node.state.cpu
        assert cpu.promised("a", "app") != min_cpus(world.owned("a"), 2), "the promised ones would be the lowest anyway"
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-25")))
        assert result.problem == ""
        assert world.node.state.cpu.loans["a"]["app"] == (22, 23, 24, 25)
        result = await world.moving.carry_out(undo_request(read_result(without_header(
            "DefragmentationResult", document(result)))))  # fmt: skip
        await world.settle()
        assert result.problem == ""
        assert world.node.state.cpu.loans == cpu.loans
        world.agrees()

    in_moving(tmp_path, test)


def min_cpus(text: str, count: int) -> int:
    return CPUSet(sorted(CPUSet.parse(text))[:count]).bits


BOUND = agent_config(
    reserved_system_cpus="0-1",
    memory_manager_policy="Static",
    system_reserved={"memory": "1Gi"},
    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
)
FOLLOWS = replace(EVERYTHING, defrag=replace(ALL, memory="follow"))
APP = "kubepods/poda/a-app"


def test_memory_follows(tmp_path: Path) -> None:
    """It may come from both NUMA nodes while the container changes its CPUs, and is on the new one afterwards, in the
    ledgers too; and back."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        before, start = world.digest, len(world.kernel.history)
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23", memory="1")))
        mine = [one[1:] for one in world.kernel.history[start:] if one[0] == APP]
        assert mine == [("cpuset.mems", "0-1"), ("cpuset.cpus", "20-23"), ("cpuset.mems", "1")]
        assert (ends(result), world.view.numa_nodes("a", "app")) == (["done"], 0b10)
        await world.settle()
        world.agrees()
        assert ends(await world.moving.carry_out(undo_request(result))) == ["done"]
        await world.settle()
        assert (world.digest, world.kernel.files[APP]["cpuset.mems"]) == (before, "0")
        world.agrees()

    in_moving(tmp_path, test, FOLLOWS, config=BOUND)


@pytest.mark.parametrize(
    ("stat", "problem"),
    [
        ("anon N0=3221225472 N1=7\nfile N0=2147483648 N1=0", "5368709120 bytes would have to move, at most 4294967296"),
        ("anon N0=1073741824 N1=0", "1073741824 bytes would have to move, on NUMA 1 1000 are free"),
    ],
)
def test_memory_that_cannot_follow(tmp_path: Path, stat: str, problem: str) -> None:
    """Too much of it, or too little room: nothing has moved."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        world.kernel.files[APP]["memory.numa_stat"] = stat
        world.free_memory = 1000 if "1000" in problem else 1 << 40
        before = world.digest
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23", memory="1")))
        assert ends(result) == ["failed"]
        assert result.problem.startswith(f"{APP}/memory.numa_stat: {problem}")
        await world.settle()
        assert (world.digest, world.kernel.files[APP]["cpuset.mems"]) == (before, "0")
        world.agrees()

    in_moving(tmp_path, test, FOLLOWS, config=BOUND)


def test_memory_that_takes_too_long(tmp_path: Path) -> None:
    """As the kernel does, which shows the new NUMA nodes at once and lets the writer wait for the pages: after 30 s the
    move goes on, and says what still moves."""

    async def slow(work: Callable[..., Any], *arguments: Any) -> Any:
        found = work(*arguments)
        if work.__name__ == "write_mems" and arguments[1] == 0b10:
            await asyncio.sleep(3600)
        return found

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        world.moving._running_moves._memory._run_in_thread = slow  # type: ignore[union-attr]
        begun = asyncio.get_running_loop().time()
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23", memory="1")))
        assert 30 <= asyncio.get_running_loop().time() - begun < 40
        assert ends(result) == ["done"]
        assert result.moves[0].problem == "the memory of container app still moves after 30 s"
        await world.settle()
        assert (world.cpus("a-app"), world.kernel.files[APP]["cpuset.mems"]) == ("20-23", "1")
        world.agrees()

    in_moving(tmp_path, test, FOLLOWS, config=BOUND)


def test_memory_stays_without_a_word_of_the_policy(tmp_path: Path) -> None:
    """A plan that moves memory does not begin."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23", memory="1")))
        assert ends(result) == ["notBegun"]
        assert result.problem.endswith("would have to follow: the policy says defrag.memory: never")

    in_moving(tmp_path, test, config=BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["", "1"], ids=["cpus", "with-memory"])
@pytest.mark.parametrize("undo", [False, True], ids=["there", "back"])
def test_killed_before_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undo: bool, memory: str) -> None:
    """Before whichever write to a cgroup or a file the process ends, the next one has the container where it was or
    where it was to go, everybody runs on what the ledgers say, and no two ever shared a CPU."""
    places, moment, killed = [], 0, True
    while killed:
        world = Elastic(tmp_path / str(moment), FOLLOWS, BOUND if memory else None)

        async def main(world: Elastic = world, moment: int = moment) -> bool:
            world.start()
            await two_and_a_sharer(world)
            request = asking(world, moved(world, "a", "app", "20-23", memory))
            if undo:
                request = undo_request(await world.moving.carry_out(request))
                await world.settle()
            with monkeypatch.context() as now:
                reached = kill_at(world, now, moment)
                with contextlib.suppress(KilledError):
                    await world.moving.carry_out(request)
                    await world.settle()
                ended = reached()
            world.start()
            await world.settle()
            world.agrees()
            assert world.owner.store is not None
            assert world.owner.store.open_resizes == ()
            places.append(world.owned("a"))
            assert world.view.numa_nodes("a", "app") == ((memory and (2 if places[-1] == "20-23" else 1)) or 0)
            return ended

        killed = clock.run(main())
        moment += 1
    first, last = ("20-23", "2-5") if undo else ("2-5", "20-23")
    turn = places.index(last)
    assert places == [first] * turn + [last] * (len(places) - turn)
    assert turn > 4
    assert len(places) > turn + 4


@pytest.mark.parametrize(
    ("breaks", "problem"),
    [
        ("kubepods/poda/a-app", "kubepods/poda/a-app/cpuset.cpus: Device or resource busy (errno 16)"),
        ("kubepods/pods/s-app", "kubepods/pods/s-app/cpuset.cpus: Device or resource busy (errno 16)"),
    ],
)
def test_a_write_that_fails_is_taken_back(tmp_path: Path, breaks: str, problem: str) -> None:
    """The plan ends there, the move is undone to the byte, the moves after it never begin, and the error has the
    file."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        files, before = world.state_files(), world.digest
        world.kernel.broken[breaks] = OSError(16, "Device or resource busy")
        result = await world.moving.carry_out(
            asking(world, moved(world, "a", "app", "20-23"), moved(world, "b", "app", "24-27"))
        )
        world.kernel.broken.clear()
        await world.settle()
        assert (ends(result), result.problem) == (["failed", "notBegun"], problem)
        assert (world.digest, result.state_after) == (before, before)
        assert {name: data for name, data in world.state_files().items() if name in files} == files
        assert [(one.result, problem in one.text) for one in world.notes.moves] == [("failed", True)]
        world.agrees()

    in_moving(tmp_path, test, policy())


@pytest.mark.parametrize("lag", [3, 1000])
def test_the_kernel_has_the_last_word(tmp_path: Path, lag: int) -> None:
    """Nobody comes before the kernel shows that the others have left; where it does not in time, or shows another set
    for the container, all is undone."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        request = asking(world, moved(world, "a", "app", "20-23"))
        world.kernel.lag = lag
        result = await world.moving.carry_out(request)
        world.kernel.lag = 0
        await asyncio.sleep(1)
        if lag == 3:
            assert ends(result) == ["done"]
        else:
            assert ends(result) == ["failed"]
            assert "kubepods/pods/s-app/cpuset.cpus.effective: still has 20-23 of others" in result.problem
            world.kernel.let_go()
        await world.settle()
        world.agrees()

    in_moving(tmp_path, test)


def test_another_set_than_written_is_a_surprise(tmp_path: Path) -> None:
    """A container that the kernel shows on fewer CPUs than it was given goes back."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        world.kernel.shown["kubepods/poda/a-app"] = {"20-23": "20-22"}
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23")))
        await world.settle()
        assert ends(result) == ["failed"]
        assert result.problem == "kubepods/poda/a-app/cpuset.cpus.effective: is 20-22 and not 20-23 (errno 16)"
        assert world.cpus("a-app") == "2-5"
        world.agrees()

    in_moving(tmp_path, test)


def test_a_resize_that_is_not_written_yet_comes_first(tmp_path: Path) -> None:
    """A move does not begin in the moment in which a resize of the pod has been answered and its end is still to be
    written, which would end the move as well."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        world.source.add(make_pod("a", ("app", "6")))
        await world.update("a-app", 6000)
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-25")))
        assert (ends(result), result.problem) == (["notBegun"], "a resize of the pod is waiting or running")
        await asyncio.sleep(0.1)
        assert ends(await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-25")))) == ["done"]

    in_moving(tmp_path, test)


def test_what_cannot_be_undone_stays_its_own(tmp_path: Path) -> None:
    """Where the container cannot be written back, nobody else gets either set of CPUs, people hear of it, and the next
    plan begins by undoing it."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        path, writes = "kubepods/poda/a-app", world.kernel.history
        request = asking(world, moved(world, "a", "app", "20-23"))
        world.kernel.shown[path] = {"20-23": "20-22"}

        def before() -> None:
            if (path, "cpuset.cpus", "20-23") in writes:
                world.kernel.broken[path] = OSError(16, "Device or resource busy")

        world.kernel.before = before
        result = await world.moving.carry_out(request)
        assert "it could not be undone: " in result.problem
        assert result.problem.endswith("CPUs 20-23 stay its own too")
        assert [kind for kind, _ in world.notes.troubles] == ["move"]
        await world.settle()
        await world.run(make_pod("c", ("app", "6")))
        assert not CPUSet.parse(world.owned("c")).bits & CPUSet.parse("2-5,20-23").bits
        world.kernel.before = lambda: None
        world.kernel.broken.clear()
        world.kernel.shown.clear()
        with pytest.raises(MovesRefusedError, match="plan anew"):
            await world.moving.carry_out(request)
        await world.settle()
        assert (world.owned("a"), world.cpus("a-app")) == ("2-5", "2-5")
        world.agrees()

    in_moving(tmp_path, test)


DELAYED = replace(EVERYTHING, resize=ExclusiveResize(exclusive=True, shrink_delay_seconds=2.0))


async def during(world: Elastic, request: MoveRequest, happens: Callable[[], Awaitable[None]]) -> DefragmentationResult:
    """Something happens while a container has been told where it is to go."""
    task = asyncio.ensure_future(world.moving.carry_out(request))
    await asyncio.sleep(1)
    assert world.container_file("a-app")["next"]["exclusiveCPUs"] == "20-23"
    await happens()
    return await task


def test_others_come_meanwhile(tmp_path: Path) -> None:
    """A pod admitted during a move gets neither the CPUs that are left nor those that are to be had; the move ends, and
    the next one of the plan does not begin."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        async def comes() -> None:
            await world.run(make_pod("c", ("app", "8")))
            assert not CPUSet.parse(world.owned("c")).bits & CPUSet.parse("2-5,20-23").bits

        request = asking(world, moved(world, "a", "app", "20-23"), moved(world, "b", "app", "24-27"))
        result = await during(world, request, comes)
        await world.settle()
        assert (ends(result), world.cpus("a-app")) == (["done", "notBegun"], "20-23")
        assert result.problem == "CPUs or memory of another pod changed meanwhile"
        assert "next" not in world.container_file("a-app")
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_the_pod_goes_meanwhile(tmp_path: Path) -> None:
    """A pod that ends during its move leaves nothing behind."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        async def goes() -> None:
            world.plugin.stop_pod(world.pods["s-a"])
            world.gone("a")

        result = await during(world, asking(world, moved(world, "a", "app", "20-23")), goes)
        await world.settle()
        assert (ends(result), result.problem) == (["failed"], "the pod has gone")
        assert world.cpus("s-app") == "0-5,10-31"
        world.agrees()
        world.start()
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_the_container_ends_meanwhile(tmp_path: Path) -> None:
    """A container that ends during its move is where it was when it starts again."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        async def ends_() -> None:
            world.plugin.stop_container(world.pods["s-a"], world.containers["a-app"])
            del world.containers["a-app"], world.kernel.files["kubepods/poda/a-app"]

        result = await during(world, asking(world, moved(world, "a", "app", "20-23")), ends_)
        await world.settle()
        assert (ends(result), result.problem) == (["failed"], "container app has ended")
        assert world.owned("a") == "2-5"
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_a_resize_waits_for_the_move(tmp_path: Path) -> None:
    """A resize of a pod that is being moved is put off and then done; a pod whose resize waits is not moved."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        async def grows() -> None:
            world.source.add(make_pod("a", ("app", "6")))
            with pytest.raises(RPCError, match="resize deferred: the pod is being moved"):
                await world.update("a-app", 6000)

        result = await during(world, asking(world, moved(world, "a", "app", "20-23")), grows)
        assert ends(result) == ["done"]
        refused = await world.moving.carry_out(asking(world, moved(world, "a", "app", "2-5")))
        assert (ends(refused), refused.problem) == (["notBegun"], "a resize of the pod is waiting or running")
        await world.resizing.retry()
        await world.settle()
        assert world.owned("a") == "16-17,20-23"
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_a_slow_runtime_has_written_before(tmp_path: Path) -> None:
    """The runtime may write an answer from before the move only later: until then the CPUs are not given away, and
    the write puts no container on CPUs of others."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        await asyncio.sleep(5)
        answer = world.plugin.update_container(world.pods["s-a"], world.containers["a-app"], asked(4000))
        task = asyncio.ensure_future(world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23"))))
        await asyncio.sleep(1)
        await world.settle()
        world.apply(answer)  # type: ignore[arg-type]
        assert ends(await task) == ["done"]
        await world.settle()
        world.agrees()

    in_moving(tmp_path, test)


def test_an_agent_that_stops_takes_back_what_has_begun(tmp_path: Path) -> None:
    """The delay is cut short, the move is undone, and no other begins."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        request = asking(world, moved(world, "a", "app", "20-23"), moved(world, "b", "app", "24-27"))
        result = await during(world, request, world.moving.close)
        await world.settle()
        assert (ends(result), result.problem) == (["failed", "notBegun"], "the agent is being stopped")
        assert world.cpus("a-app") == "2-5"
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_a_task_that_is_cancelled_takes_back_what_has_begun(tmp_path: Path) -> None:
    """As a connection's is when the process ends in good order."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        task = asyncio.ensure_future(world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23"))))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.settle()
        assert (world.cpus("a-app"), world.owned("a")) == ("2-5", "2-5")
        world.agrees()

    in_moving(tmp_path, test, DELAYED)


def test_who_asked_has_gone(tmp_path: Path) -> None:
    """After the move that is on its way no other begins."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        def gone(progress: MoveProgress) -> None:
            raise ConnectionResetError

        request = asking(world, moved(world, "a", "app", "20-23"), moved(world, "b", "app", "24-27"))
        result = await world.moving.carry_out(request, gone)
        assert (ends(result), result.problem) == (["done", "notBegun"], "the client has disconnected")

    in_moving(tmp_path, test)


def test_one_plan_at_a_time(tmp_path: Path) -> None:
    """A second request is refused while one is carried out, and changes nothing."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)

        async def asks_too() -> None:
            with pytest.raises(MovesRefusedError, match="another plan is being carried out"):
                await world.moving.carry_out(asking(world, moved(world, "b", "app", "24-27")))

        request = asking(world, moved(world, "a", "app", "20-23"))
        assert ends(await during(world, request, asks_too)) == ["done"]

    in_moving(tmp_path, test, DELAYED)


ANNOTATED = {"podslice.io/movable": "true"}


@pytest.mark.parametrize(
    ("rules", "to", "message"),
    [
        (policy(carry_out="never"), "20-23", "the policy of this node says defrag.carryOut: never"),
        (policy(max_moves_per_hour=0), "20-23", "the plan moves 1 containers, defrag.maxMovesPerHour is 0"),
        (policy(), "20-22", "CPUs that are not free, or not as many as before"),
        (policy(), "6-9", "CPUs that are not free, or not as many as before"),
        (policy(), "0-1,20-21", "CPUs that are not free, or not as many as before"),
        (policy(), "2-5", "nothing would move"),
    ],
)
def test_what_is_refused_as_a_whole(tmp_path: Path, rules: PodslicePolicy, to: str, message: str) -> None:
    """A plan that the policy does not allow, or that the rules of moves forbid, changes no byte."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        files, writes = world.state_files(), len(world.kernel.history)
        with pytest.raises(MovesRefusedError, match=message):
            await world.moving.carry_out(asking(world, moved(world, "a", "app", to)))
        assert (world.state_files(), len(world.kernel.history)) == (files, writes)

    in_moving(tmp_path, test, rules)


def test_a_stale_plan_is_refused(tmp_path: Path) -> None:
    """One pod more, and the plan is not of this state; the message has both digests."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        request = asking(world, moved(world, "a", "app", "20-23"))
        await world.run(make_pod("c", ("app", "2")))
        with pytest.raises(MovesRefusedError, match=f"the state {request.state}, now it is {world.digest}: plan anew"):
            await world.moving.carry_out(request)

    in_moving(tmp_path, test)


def test_the_hour_fills(tmp_path: Path) -> None:
    """Moves of the last hour count, the way back is open all the same, and an hour later there is room again."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23")))
        with pytest.raises(MovesRefusedError, match="maxMovesPerHour is 1, of which 1 are made"):
            await world.moving.carry_out(asking(world, moved(world, "b", "app", "24-27")))
        assert ends(await world.moving.carry_out(undo_request(result))) == ["done"]
        await asyncio.sleep(3601)
        assert ends(await world.moving.carry_out(asking(world, moved(world, "b", "app", "24-27")))) == ["done"]

    in_moving(tmp_path, test, policy(max_moves_per_hour=1))


def test_only_pods_that_allow_it(tmp_path: Path) -> None:
    """The annotation counts as the pod has it now, also one that came after the admission."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        request = asking(world, moved(world, "a", "app", "20-23"))
        result = await world.moving.carry_out(request)
        assert ends(result) == ["notBegun"]
        assert result.problem.startswith(
            "container app may not be moved: its pod has no annotation podslice.io/movable"
        )
        pod = make_pod("a", ("app", "4"))
        world.source.add(replace(pod, metadata=replace(pod.metadata, annotations=ANNOTATED)))
        assert ends(await world.moving.carry_out(request)) == ["done"]

    in_moving(tmp_path, test, policy(movable="annotated"))


@pytest.mark.parametrize(
    ("masks", "annotation", "kernel", "problem"),
    [
        (ThreadMasks((CPUSet.parse("2-3").bits,)), "true", (6, 6), "a thread of container app is bound to CPUs 2-3"),
        (ThreadMasks((CPUSet.parse("2-5").bits,)), "true", (6, 6), ""),
        (ThreadMasks(seen=False), "true", (6, 6), "it cannot be seen whether threads of container app"),
        (ThreadMasks(seen=False), "pinned-too", (6, 6), ""),
        (ThreadMasks((CPUSet.parse("2-3").bits,)), "pinned-too", (6, 2), ""),
        (ThreadMasks(), "pinned-too", (5, 15), "container app is pinned-too, which needs Linux 6.2"),
    ],
)
def test_threads_with_an_affinity_of_their_own(
    tmp_path: Path, masks: ThreadMasks, annotation: str, kernel: tuple[int, int], problem: str
) -> None:
    """They stay, unless their pod says that they may go too, on a kernel that lets them keep what is left of it."""

    async def test(world: Elastic) -> None:
        pod = make_pod("a", ("app", "4"))
        annotated = {"podslice.io/movable": annotation}
        await world.run(replace(pod, metadata=replace(pod.metadata, annotations=annotated)))
        result = await world.moving.carry_out(asking(world, moved(world, "a", "app", "20-23")))
        assert result.problem.startswith(problem)
        assert ends(result) == ["notBegun" if problem else "done"]

    world = Elastic(tmp_path, policy(movable="annotated"))
    world.masks, world.kernel_release = masks, kernel

    async def main() -> None:
        world.start()
        await test(world)

    clock.run(main())


def test_a_container_elsewhere_is_a_surprise(tmp_path: Path) -> None:
    """Where the kernel has it on other CPUs than the ledgers, the move does not begin."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        request = asking(world, moved(world, "a", "app", "20-23"))
        world.kernel.files["kubepods/poda/a-app"]["cpuset.cpus"] = "2-4"
        result = await world.moving.carry_out(request)
        assert (ends(result), result.problem) == (
            ["notBegun"],
            "container app runs on CPUs 2-4, the ledger says 2-5",
        )

    in_moving(tmp_path, test)


def test_the_ledger_end_as_promised(tmp_path: Path) -> None:
    """The state after the plan is the one that the plan's moves make of the ledgers, of which the result has the
    digest."""

    async def test(world: Elastic) -> None:
        await two_and_a_sharer(world)
        store = world.owner.store
        assert isinstance(store, ResizeStore)
        request = asking(world, moved(world, "a", "app", "20-23"), moved(world, "b", "app", "24-27"))
        before = store.node.state
        for move in request.moves:
            apply_move(store.node, move)
        promised, store.node.state = store.node.state, before
        result = await world.moving.carry_out(request)
        assert ends(result) == ["done", "done"]
        assert result.state_after == digest(promised).named
        assert store.node.state.cpu == promised.cpu
        assert format_bits(store.node.state.cpu.default) == world.cpus("s-app") or await settled(world)

    in_moving(tmp_path, test)


async def settled(world: Elastic) -> bool:
    await world.settle()
    world.agrees()
    return True


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"moves": 3}, "expected a list, got a whole number"),
        ({"state": None}, "expected text, got nothing"),
        ({"more": 1}, "object contains unknown field `more`"),
        ({"moves": [{"uid": "a"}]}, "object missing required field `namespace`"),
        ({"lent": [{}]}, "has another number of entries than moves"),
    ],
)
def test_requests_that_make_no_sense(change: dict[str, Any], error: str) -> None:
    """One line with the field; sets of CPUs are read as such."""
    with pytest.raises(InputError, match=error):
        read_request({"state": "", "moves": [], **change})
    sets = {"cpusBefore": "2-5", "cpusAfter": "x", "memoryNodesBefore": "", "memoryNodesAfter": ""}
    move = {"uid": "a", "namespace": "n", "name": "a", "containers": [{"name": "c", **sets}]}
    with pytest.raises(InputError, match="cpusAfter"):
        read_request({"state": "", "moves": [move]})
