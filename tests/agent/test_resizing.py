"""Resizes of exclusive CPUs that the agent carries out: decided by the node, written in an order that harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.agent.moves.move_rules import ThreadMasks
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.local import pod_statuses
from podslice.api.pod.spec import Pod
from podslice.config.policy import PodslicePolicy
from podslice.node.effects.cpu_weight import milli_cpu_to_shares, shares_to_runtime_weight
from podslice.status.command import status_rows
from podslice.values.cpuset import parse_bits
from tests import clock
from tests.agent.elastic import ELASTIC, Elastic, asked, elastic, kill_at
from tests.agent.helpers import GIB, pod_level
from tests.agent.kernel import KilledError
from tests.conftest import make_pod


def in_elastic(
    folder: Path, test: Callable[[Elastic], Awaitable[None]], policy: PodslicePolicy = ELASTIC, **options: object
) -> Elastic:
    """Run a test in virtual time."""
    world = Elastic(folder, policy, **options)  # type: ignore[arg-type]

    async def main() -> None:
        world.start()
        await test(world)

    clock.run(main())
    return world


def app(uid: str, cpu: str) -> Pod:
    return make_pod(uid, ("app", cpu))


def test_a_container_grows_within_the_call_and_shrinks_after_it(tmp_path: Path) -> None:
    """1 -> 4 -> 2 CPUs: the shared container has left before the owner comes, and gets back what is given back."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "1"))
        await world.run(make_pod("s", ("app", None)))
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2", "0-1,3-31")
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2-5", "0-1,6-31")
        world.source.add(app("a", "2"))
        await world.update("a-app", 2000)
        await world.settle()
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2-3", "0-1,4-31")
        assert [(one.operation, one.result, one.text) for one in world.notes.resize_reports] == [
            ("grow", "applied", "app: 2 -> 2-5"),
            ("shrink", "applied", "app: 2-5 -> 2-3"),
        ]
        world.agrees()

    in_elastic(tmp_path, test)


def test_status_knows_what_was_promised(tmp_path: Path) -> None:
    """`podslice status` has the baseline beside the CPUs, and says what waits."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        world.source.add(app("a", "64"))
        with pytest.raises(RPCError):
            await world.update("a-app", 64_000)
        (pod,) = pod_statuses(world.owner)
        (container,) = pod.containers
        assert (container.cpus, container.baseline) == ("2-5", "2-3")
        assert pod.findings[0].startswith("resize infeasible: ")
        assert status_rows(pod, wide=False)[0][-1] == "promised 2-3"

    in_elastic(tmp_path, test)


def test_without_a_policy_a_resize_is_not_carried_out(tmp_path: Path) -> None:
    """The container keeps its CPUs, as before there was a policy."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        assert world.cpus("a-app") == "2-3"
        assert (world.notes.resize_reports, len(world.notes.resizes)) == ([], 1)

    in_elastic(tmp_path, test, PodslicePolicy())


def test_what_has_no_room_is_refused_and_done_when_there_is(tmp_path: Path) -> None:
    """A growth without room is an error of the call that changes no file; repeats are answered from memory; when a pod
    leaves, the container grows by itself, and the kubelet's next call finds it done."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        await world.run(app("b", "26"))
        before = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
        world.source.add(app("a", "6"))
        for _ in range(3):
            with pytest.raises(RPCError, match="podslice: resize deferred: "):
                await world.update("a-app", 6000)
        assert {path: path.read_bytes() for path in before} == before
        assert [(one.result, one.repeated) for one in world.notes.resize_reports] == [("deferred", False)]
        await asyncio.sleep(6)
        with pytest.raises(RPCError, match="deferred"):
            await world.update("a-app", 6000)
        assert [(one.result, one.repeated) for one in world.notes.resize_reports] == [
            ("deferred", False),
            ("deferred", True),
        ]
        assert world.resizing.pending == 1
        world.plugin.stop_pod(world.pods["s-b"])
        for path in [path for path in world.kernel.files if "podb" in path]:
            del world.kernel.files[path]
        await world.resizing.retry()
        assert (world.owned("a"), world.cpus("a-app"), world.resizing.pending) == ("2-7", "2-7", 0)
        await world.update("a-app", 6000)
        assert len(world.notes.resize_reports) == 3
        world.agrees()

    in_elastic(tmp_path, test)


def test_a_refused_pod_gets_what_is_given_back(tmp_path: Path) -> None:
    """After a shrink the same pod is decided about anew, and not refused from memory."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "28"))
        await world.update("a-app", 28_000)
        with pytest.raises(RPCError, match="TopologyAffinityError"):
            await world.run(app("b", "6"))
        world.source.add(app("a", "2"))
        await world.update("a-app", 2000)
        await world.settle()
        await world.run(app("b", "6"))
        assert world.owned("b") == "4-9"
        world.agrees()

    in_elastic(tmp_path, test)


def test_what_nobody_wants_any_more_is_not_done(tmp_path: Path) -> None:
    """A resize that waits is dropped when the pod's specification says something else, or nobody asks for long."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        await world.run(app("b", "26"))
        world.source.add(app("a", "6"))
        with pytest.raises(RPCError):
            await world.update("a-app", 6000)
        world.source.add(app("a", "2"))
        world.plugin.stop_pod(world.pods["s-b"])
        await world.resizing.retry()
        assert world.owned("a") == "2-3"
        world.source.add(app("a", "6"))
        await asyncio.sleep(400)
        await world.resizing.retry()
        assert (world.owned("a"), world.resizing.pending) == ("2-3", 0)

    in_elastic(tmp_path, test)


@pytest.mark.parametrize(
    ("milli", "message"),
    [
        (1000, "infeasible: cannot take exclusive CPUs below the 2 promised at admission .2-3."),
        (2500, "infeasible: resize would move the container between shared and exclusive CPUs"),
        (64000, "infeasible"),
    ],
)
def test_what_can_never_be_is_infeasible(tmp_path: Path, milli: int, message: str) -> None:
    """Below the promise, between shared and own CPUs, more than there are: an error of the call, said once."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", f"{milli}m"))
        with pytest.raises(RPCError, match=message):
            await world.update("a-app", milli)
        assert (world.cpus("a-app"), world.resizing.pending) == ("2-3", 0)
        assert [(one.result, one.repeated) for one in world.notes.resize_reports] == [("infeasible", False)]
        world.agrees()

    in_elastic(tmp_path, test)


def test_the_call_counts_where_the_specification_is_late(tmp_path: Path) -> None:
    """A source that does not know the new size is waited for as long as it may take; then the call decides."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        started = asyncio.get_running_loop().time()
        await world.update("a-app", 4000)
        assert asyncio.get_running_loop().time() - started == pytest.approx(0.5)
        assert world.cpus("a-app") == "2-5"

        async def arrives() -> None:
            await asyncio.sleep(0.2)
            world.source.add(app("a", "6"))

        task = asyncio.ensure_future(arrives())
        started = asyncio.get_running_loop().time()
        await world.update("a-app", 6000)
        assert asyncio.get_running_loop().time() - started == pytest.approx(0.2)
        assert world.cpus("a-app") == "2-7"
        await task
        world.agrees()

    in_elastic(tmp_path, test)


def test_nobody_runs_on_cpus_that_others_have_not_left(tmp_path: Path) -> None:
    """While the kernel still shows the shared containers on them, the call waits; after 200 ms all is undone, and the
    error names the file."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "1"))
        await world.run(make_pod("s", ("app", None)))
        world.kernel.lag = 10
        world.source.add(app("a", "4"))
        started = asyncio.get_running_loop().time()
        await world.update("a-app", 4000)
        assert asyncio.get_running_loop().time() - started == pytest.approx(0.045)
        world.kernel.lag = 10_000
        world.source.add(app("a", "6"))
        with pytest.raises(RPCError, match=r"kubepods/pods/s-app/cpuset\.cpus\.effective: still has 6-7"):
            await world.update("a-app", 6000)
        assert (world.owned("a"), world.cpus("a-app")) == ("2-5", "2-5")
        assert world.notes.resize_reports[-1].result == "failed"
        world.kernel.lag = 0
        world.kernel._behind.clear()
        await world.settle()
        assert world.cpus("s-app") == "0-1,6-31"
        world.agrees()

    in_elastic(tmp_path, test)


def test_a_file_that_cannot_be_written_undoes_a_growth(tmp_path: Path) -> None:
    """State, files and cgroups are as before, and the error has the file and its number."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "1"))
        await world.run(make_pod("s", ("app", None)))
        files = {path: path.read_bytes() for path in (tmp_path / "state" / "pods").iterdir()}
        world.kernel.broken["kubepods/pods/s-app"] = OSError(28, "No space left on device")
        world.source.add(app("a", "4"))
        with pytest.raises(RPCError, match=r"pods/s-app/cpuset.cpus: No space left on device \(errno 28\)"):
            await world.update("a-app", 4000)
        assert (world.owned("a"), world.cpus("a-app"), world.cpus("s-app")) == ("2", "2", "0-1,3-31")
        assert {path: path.read_bytes() for path in files}.keys() == files.keys()
        world.kernel.broken.clear()
        await world.settle()
        world.agrees()
        await asyncio.sleep(6)
        await world.update("a-app", 4000)
        assert world.cpus("a-app") == "2-5"
        world.agrees()

    in_elastic(tmp_path, test)


def test_a_file_that_cannot_be_written_ends_a_shrink(tmp_path: Path) -> None:
    """The container keeps the CPUs it has, nobody else gets one of them, and people hear of the file; the next call of
    the kubelet is carried out."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        await world.run(make_pod("s", ("app", None)))
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        state = (tmp_path / "state" / "cpu_manager_state").read_bytes()
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        world.kernel.broken["kubepods/poda/a-app"] = OSError(28, "No space left on device")
        with contextlib.suppress(OSError):
            await world.settle()
        assert (world.owned("a"), world.cpus("a-app"), world.cpus("s-app")) == ("2-7", "2-7", "0-1,8-31")
        assert (tmp_path / "state" / "cpu_manager_state").read_bytes() == state
        failed = world.notes.resize_reports[-1]
        assert (failed.operation, failed.result) == ("shrink", "failed")
        assert failed.text == "kubepods/poda/a-app/cpuset.cpus: No space left on device (errno 28)"
        world.kernel.broken.clear()
        await asyncio.sleep(6)
        await world.update("a-app", 4000)
        await world.settle()
        assert (world.owned("a"), world.cpus("a-app"), world.cpus("s-app")) == ("2-5", "2-5", "0-1,6-31")
        world.agrees()

    in_elastic(tmp_path, test)


def test_quota_and_weight_follow(tmp_path: Path) -> None:
    """A container with CPUs of its own has the weight of what it asks for by now, and never a quota."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        files, weights = world.kernel.files["kubepods/poda/a-app"], []
        for cpu in ("6", "3"):
            world.source.add(app("a", cpu))
            await world.update("a-app", 1000 * int(cpu))
            await world.settle()
            weights.append(int(files["cpu.weight"]))
            assert files["cpu.max"].startswith("max")
        assert weights == [shares_to_runtime_weight(milli_cpu_to_shares(milli)) for milli in (6000, 3000)]
        world.agrees()

    in_elastic(tmp_path, test)


def test_an_agent_that_stops_in_good_order_has_ended_its_resizes(tmp_path: Path) -> None:
    """A delay is cut short: the container has given back its CPUs, no file of the state says that something is being
    written, and a kubelet would find as many CPUs as it granted."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        await asyncio.sleep(1)
        assert world.cpus("a-app") == "2-7"
        begun = asyncio.get_running_loop().time()
        await world.resizing.close()
        assert asyncio.get_running_loop().time() - begun < 1
        assert (world.owned("a"), world.cpus("a-app")) == ("2-5", "2-5")
        left = json.loads(json.loads(world.state_files()[str(tmp_path / "state" / "podslice_policy_state")])["data"])
        assert "intents" not in left
        world.start()
        assert (world.owned("a"), world.cpus("a-app"), world.resizing.pending) == ("2-5", "2-5", 0)
        world.agrees()

    in_elastic(tmp_path, test, elastic(shrink_delay_seconds=10.0))


def test_a_container_is_left_time_to_give_back_cpus(tmp_path: Path) -> None:
    """With shrinkDelaySeconds its file says what is next while its CPUs stay; a growth back ends the wait without a
    trace, and another shrink begins it anew."""

    async def test(world: Elastic) -> None:
        told = tmp_path / "containers" / "a-app" / "resources.json"
        await world.run(app("a", "2"))
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        state = (tmp_path / "state" / "cpu_manager_state").read_bytes()
        world.source.add(app("a", "4"))
        await world.update("a-app", 4000)
        await asyncio.sleep(3)
        assert (world.cpus("a-app"), '"next":{"exclusiveCPUs":"2-5"' in told.read_text()) == ("2-7", True)
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        await asyncio.sleep(20)
        assert (world.cpus("a-app"), "next" in told.read_text()) == ("2-7", False)
        assert (tmp_path / "state" / "cpu_manager_state").read_bytes() == state
        for cpu in (4, 2):
            world.source.add(app("a", str(cpu)))
            await world.update("a-app", cpu * 1000)
            await asyncio.sleep(3)
            assert world.cpus("a-app") == "2-7"
        await asyncio.sleep(3)
        await world.settle()
        assert (world.cpus("a-app"), world.owned("a")) == ("2-3", "2-3")
        world.agrees()

    in_elastic(tmp_path, test, elastic(shrink_delay_seconds=5.0))


def test_a_resize_that_nobody_was_asked_about_is_made_up_for(tmp_path: Path) -> None:
    """While the agent is away the runtime takes the kubelet's quota and leaves the CPUs; the next agent grows it, lifts
    the quota of the pod, and has nothing more to tell."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        await world.run(make_pod("s", ("app", None)))
        world.source.add(app("a", "4"))
        world.set("a-app", asked(4000, memory=GIB))
        world.start()
        assert (world.cpus("a-app"), world.resizing.pending) == ("2-3", 1)
        await world.resizing.retry()
        await world.settle()
        assert (world.cpus("a-app"), world.cpus("s-app")) == ("2-5", "0-1,6-31")
        world.kernel.files["kubepods/poda"]["cpu.max"] = "400000 100000"
        world.reconciler.run()
        assert world.kernel.files["kubepods/poda"]["cpu.max"] == "max 100000"
        assert [pod.findings for pod in pod_statuses(world.owner)] == [(), ()]
        world.agrees()

    in_elastic(tmp_path, test)


def test_a_pod_asks_for_its_own_delay_and_to_go_below(tmp_path: Path) -> None:
    """`podslice.io/resize` counts in the agent: how long the pod needs to give back CPUs, and that it may go below what
    it was promised; the pod keeps the annotation over a resize and a restart."""

    def asks(cpu: str) -> Pod:
        annotations = {"podslice.io/resize": "shrink-delay=30,below-baseline=allow", "other": "x"}
        pod = app("a", cpu)
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))

    async def test(world: Elastic) -> None:
        await world.run(asks("4"))
        for cpu in (2, 1):
            world.source.add(asks(str(cpu)))
            await world.update("a-app", cpu * 1000)
            await asyncio.sleep(29)
            assert world.cpus("a-app").count("-") == 1
            await asyncio.sleep(2)
            await world.settle()
            world.start()
        assert (world.cpus("a-app"), world.owned("a")) == ("2", "2")
        world.agrees()

    in_elastic(tmp_path, test)


@pytest.mark.parametrize(
    ("masks", "told"),
    [
        (("2-7", "4-5", "4", "2,4"), "; 2 threads were bound to nothing but CPUs that are given back"),
        (("5", "2-3"), "; 1 thread was bound to nothing but CPUs that are given back"),
        (("2-7", "2"), ""),
    ],
)
def test_threads_that_bound_themselves(tmp_path: Path, masks: tuple[str, ...], told: str) -> None:
    """Threads whose own affinity names only CPUs that are given back are counted before they lose them, and told of;
    nobody's affinity is set, and the shrink goes on."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "2"))
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        world.masks = ThreadMasks(tuple(map(parse_bits, masks)))
        world.source.add(app("a", "2"))
        await world.update("a-app", 2000)
        await world.settle()
        assert world.notes.resize_reports[-1].text == f"app: 2-7 -> 2-3{told}"
        assert world.cpus("a-app") == "2-3"

    in_elastic(tmp_path, test)


def test_what_one_container_gives_another_takes(tmp_path: Path) -> None:
    """A pod that moves CPUs between its containers: the first has left them before the second runs there."""

    async def test(world: Elastic) -> None:
        await world.run(make_pod("p", ("x", "2"), ("y", "2")))
        await world.run(app("rest", "24"))
        world.source.add(make_pod("p", ("x", "4"), ("y", "2")))
        await world.update("p-x", 4000)
        world.source.add(make_pod("p", ("x", "2"), ("y", "4")))
        await world.update("p-x", 2000)
        await world.update("p-y", 4000)
        await world.settle()
        assert (world.owned("p", "x"), world.owned("p", "y")) == ("2-3", "4-5,14-15")
        assert world.notes.resize_reports[-1].operation == "move"
        world.agrees()

    in_elastic(tmp_path, test)


def test_pod_cpus_grows_and_shrinks_by_the_pods_call(tmp_path: Path) -> None:
    """UpdatePodSandbox: a pod with pod-level resources takes from the node and gives back, its containers with it."""

    async def test(world: Elastic) -> None:
        def budget(cpus: int, own: int = 4) -> Pod:
            return make_pod("p", ("own", str(own)), ("a", None), budget=str(cpus))

        await world.run(budget(8))
        await world.run(make_pod("s", ("app", None)))
        assert (world.cpus("p-own"), world.cpus("p-a")) == ("2-5", "6-9")
        world.source.add(budget(10))
        await world.update_pod("p", 10_000)
        assert (world.cpus("p-own"), world.cpus("p-a")) == ("2-5", "6-11")
        world.source.add(budget(8, 6))
        await world.update("p-own", 6000)
        await world.settle()
        await world.update_pod("p", 8000)
        await world.settle()
        assert (world.cpus("p-own"), world.cpus("p-a")) == ("2-7", "8-9")
        world.source.add(budget(8, 8))
        with pytest.raises(RPCError, match="resize infeasible"):
            await world.update("p-own", 8000)
        world.source.add(budget(40, 6))
        with pytest.raises(RPCError, match="resize infeasible"):
            await world.update_pod("p", 40_000)
        world.agrees()

    in_elastic(tmp_path, test, config=pod_level(reserved_system_cpus="0-1"))


SMALL = "numa:1(memory=64GB) core:4 pu:2"
NUMBERINGS = ("core", "pu")
"""With CPUs 0 and 1 reserved these are half of two cores, or a core."""
Story = Callable[[Elastic], Awaitable[None]]


async def _grow(world: Elastic) -> None:
    world.source.add(app("a", "4"))
    await world.update("a-app", 4000)
    await world.settle()


async def _shrink(world: Elastic) -> None:
    world.source.add(app("a", "1"))
    await world.update("a-app", 1000)
    await world.settle()


async def _move(world: Elastic) -> None:
    world.source.add(make_pod("p", ("x", "1"), ("y", "3")))
    await world.update("p-x", 1000)
    await world.update("p-y", 3000)
    await world.settle()


async def _small(world: Elastic) -> None:
    await world.run(app("a", "1"))
    await world.run(make_pod("s", ("app", None)))


async def _large(world: Elastic) -> None:
    await _small(world)
    world.source.add(app("a", "3"))
    await world.update("a-app", 3000)
    await world.settle()


async def _pair(world: Elastic) -> None:
    await world.run(make_pod("p", ("x", "1"), ("y", "2")))
    await world.run(make_pod("s", ("app", None)))
    world.source.add(make_pod("p", ("x", "2"), ("y", "2")))
    await world.update("p-x", 2000)
    await world.settle()


async def _pod_cpus(world: Elastic) -> None:
    await world.run(make_pod("p", ("own", "1"), ("rest", None), budget="3"))
    await world.run(make_pod("s", ("app", None)))


async def _wider(world: Elastic) -> None:
    world.source.add(make_pod("p", ("own", "2"), ("rest", None), budget="5"))
    await world.update_pod("p", 5000)
    await world.update("p-own", 2000)
    await world.settle()


@pytest.mark.parametrize(
    ("begin", "story"),
    [pytest.param(_small, _grow, id="grow"), pytest.param(_large, _shrink, id="shrink"),
     pytest.param(_pair, _move, id="move"), pytest.param(_pod_cpus, _wider, id="pod-cpus")],
)  # fmt: skip
@pytest.mark.parametrize("numbering", NUMBERINGS)
@pytest.mark.slow
def test_a_kill_at_any_write_ends_as_done_or_never_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Story, story: Story, numbering: str
) -> None:
    """Whatever was being written, the next process has the old sizes or the new ones everywhere, no CPU is ever of two,
    and the kubelet's next call ends in the new ones."""
    moment, killed, sizes = 0, True, set()
    while killed:
        machine = f"{SMALL}(indexes={numbering})"
        world = Elastic(tmp_path / str(moment), config=pod_level(reserved_system_cpus="0-1"), machine=machine)
        happened = [False]

        async def main(world: Elastic = world, happened: list[bool] = happened, moment: int = moment) -> None:
            world.start()
            await begin(world)
            before = _owners(world)
            with monkeypatch.context() as patch:
                was_killed = kill_at(world, patch, moment)
                with contextlib.suppress(KilledError):
                    await story(world)
                happened[0] = was_killed()
                await world.bury()
            world.start()
            await world.settle()
            world.agrees()
            after = _owners(world)
            sizes.add(after == before)
            await asyncio.sleep(6)
            await story(world)
            world.agrees()
            assert happened[0] or after == _owners(world)

        clock.run(main())
        moment, killed = moment + 1, happened[0]
    assert moment > 10
    assert sizes == {True, False}


def _owners(world: Elastic) -> object:
    assert world.owner.node is not None
    return {uid: dict(named) for uid, named in world.owner.node.view.owners.items()}
