"""A refusal harms nobody: the sandbox runs, the containers are refused with the reason until there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice.agent.runtime.runtimes import known_bugs_of
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.local import pod_statuses
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import GIB, World, in_world, pod_level
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeContainer


async def refused(world: World, sandbox: str, name: str, match: str = "TopologyAffinityError") -> None:
    with pytest.raises(RPCError, match=match):
        await world.fake.create_container(sandbox, name)
    world.check()


async def open_pod(world: World, uid: str, cpu: str, **more: object) -> str:
    world.source.add(make_pod(uid, ("app", cpu), **more))  # type: ignore[arg-type]
    return await world.fake.run_pod(uid)


def count(container: FakeContainer) -> int:
    return parse_bits(container.cpus).bit_count()


def test_admitted_as_a_whole_when_there_is_room(tmp_path: Path) -> None:
    """A pod that was refused at its init container is decided again at each try, and is then admitted with all its
    containers; before that it holds nothing."""

    async def test(world: World) -> None:
        await world.run(make_pod("old", ("app", "20")))
        new = await open_pod(world, "new", "14", init=(("prepare", "14", False),))
        for _ in range(3):
            await refused(world, new, "prepare")
        await refused(world, new, "app")
        await refused(world, new, "debugger")
        assert world.owner.placing.exclusive().bit_count() == 20
        await world.end("old")
        first = await world.fake.create_container(new, "prepare")
        assert count(first) == 14
        await world.fake.stop_container(first.message.id)
        assert count(await world.fake.create_container(new, "app")) == 14
        world.check()
        await world.end("new")
        assert world.owner.placing.exclusive() == 0

    in_world(tmp_path, test)


def test_the_same_question_is_answered_from_memory(tmp_path: Path) -> None:
    """Nothing is decided, said or counted again while nothing has changed; another specification is asked again."""

    async def test(world: World) -> None:
        sandbox = await open_pod(world, "big", "40")
        for _ in range(20):
            await refused(world, sandbox, "app")
        assert [name for name, _ in world.notes.hooks].count("admission") == 1
        assert len(world.notes.refusals) == 1
        await world.run(make_pod("other", ("app", "2")))
        await refused(world, sandbox, "app")
        assert [name for name, _ in world.notes.hooks].count("admission") == 3
        assert len(world.notes.refusals) == 1
        world.source.add(make_pod("big", ("app", "4")))
        assert count(await world.fake.create_container(sandbox, "app")) == 4

    in_world(tmp_path, test)


def test_a_refusal_ends_with_its_sandbox(tmp_path: Path) -> None:
    """The record goes with the pod, and a thousand refused pods leave nothing."""

    async def test(world: World) -> None:
        for number in range(200):
            sandbox = await open_pod(world, f"p{number}", "40")
            if number % 2:
                await refused(world, sandbox, "app")
            await world.end(f"p{number}")
        assert (world.owner.pods, world.owner.sandboxes, world.owner.containers) == ({}, {}, {})
        assert not list((tmp_path / "state" / "pods").iterdir())

    in_world(tmp_path, test)


def test_agent_restarts_beside_a_refused_sandbox(tmp_path: Path) -> None:
    """A listed sandbox without containers is not admitted by the restart, even if there is room now: it is decided
    about when it asks."""

    async def test(world: World) -> None:
        await world.run(make_pod("old", ("app", "20")))
        new = await open_pod(world, "new", "14")
        await refused(world, new, "app")
        await world.restart()
        await refused(world, new, "app")
        await world.kill()
        await world.end("old")
        await world.start()
        assert world.owner.placing.exclusive() == 0
        assert count(await world.fake.create_container(new, "app")) == 14
        world.fake.drop_plugin()
        await world.fake.attached.wait()
        assert world.owner.placing.exclusive().bit_count() == 14
        world.check()

    in_world(tmp_path, test)


def test_runs_although_refused(tmp_path: Path) -> None:
    """A pod whose container came unseen and for which there is no room shares, over its containers' restarts too."""

    async def test(world: World) -> None:
        owned = (await world.run(make_pod("old", ("app", "20"))))["app"]
        await world.kill()
        sandbox = await open_pod(world, "late", "14")
        late = await world.fake.create_container(sandbox, "app")
        await world.start()
        assert world.owner.pods["late"].tolerated
        assert not parse_bits(late.cpus) & parse_bits(owned.cpus)
        await world.fake.stop_container(late.message.id)
        again = await world.fake.create_container(sandbox, "app", container_id="again")
        assert again.env["PODSLICE_ISOLATION"] == "host"
        world.check()

    in_world(tmp_path, test)


def test_status_says_who_is_refused_and_why(tmp_path: Path) -> None:
    """Reason, message and our why of pods, and of single containers of pods nobody knows."""

    async def test(world: World) -> None:
        await refused(world, await open_pod(world, "big", "40"), "app")
        sandbox = await world.fake.run_pod("alone", cgroup_parent="/kubepods/podalone")
        with pytest.raises(RPCError):
            await world.fake.create_container(sandbox, "wide", shares=40960, quota=4000000, memory=GIB)
        pods = {pod.name: pod for pod in pod_statuses(world.owner)}
        (whole,), (single,) = pods["big"].refusals, pods["alone"].refusals
        assert (whole.container, whole.reason) == ("", "TopologyAffinityError")
        assert "Free for exclusive use: 31" in whole.why
        assert (single.container, pods["alone"].refused) == ("wide", True)

    in_world(tmp_path, test)


@pytest.mark.parametrize("amount", ["1e1000", "1e99", "9" * 80])
def test_numbers_that_take_long_are_refused(tmp_path: Path, amount: str) -> None:
    """Amounts whose sums are big-integer work are not amounts; what people write is."""

    async def test(world: World) -> None:
        world.source.add(make_pod("odd", ("app", "1"), memory=amount))
        with pytest.raises(RPCError, match=r"PodTooLarge: .*its quantity of memory is beyond"):
            await world.fake.create_container(await world.fake.run_pod("odd"), "app")
        for number, fine in enumerate(("1e9", "1E", "1500m", "123456789012345678", "0.5Gi", "1e-3", "0." + "1" * 100)):
            await world.run(make_pod(f"p{number}", ("app", "100m"), memory=fine))

    in_world(tmp_path, test)


def test_too_large_a_pod_is_refused(tmp_path: Path) -> None:
    """A pod that would take longer to decide than the runtime waits is refused at once, with the reason."""

    async def test(world: World) -> None:
        world.source.add(make_pod("many", *((f"c{number}", "1") for number in range(300))))
        await refused(world, await world.fake.run_pod("many"), "c0", "PodTooLarge: .*300 containers")

    in_world(tmp_path, test, pod_level())


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ("v2.1.9", 1), ("v2.2.5", 1), ("v2.2.6", 0), ("2.3.2~ds1", 1), ("v2.3.3", 0), ("v2.4.0", 0), ("v1.7.15", 2),
        ("1.7.24", 1), ("v1.7.27", 0), ("unknown", 0),
    ],
)  # fmt: skip
def test_known_bugs_of_runtimes(version: str, bugs: int) -> None:
    """A runtime that is known to leak, hang or miss pods is named with what fixes it."""
    found = known_bugs_of("containerd", version)
    assert len(found) == bugs
    assert all(f"containerd {version}: " in line and "update to" in line for line in found)
    assert known_bugs_of("cri-o", version) == []
