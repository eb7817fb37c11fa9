"""The wall clock is set back and forward by hours and years: nothing waits for it, nothing is done again for it."""

from __future__ import annotations

import ast
import asyncio
import os
import time
from pathlib import Path

import pytest

import podslice
from podslice.agent.api_server.rejecting import DENIED_SECONDS
from podslice.agent.journal import NodeJournal
from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from podslice.cluster.model.room import Room
from podslice.cluster.page.history import FragmentationHistory
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.status.command import format_age
from podslice.values.cpuset import parse_bits
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.helpers import MACHINE, World, agent_config, pod_level
from tests.agent.test_daemon import api_pod, get, with_agent
from tests.agent.test_failures import exclusive, ledger
from tests.agent.test_rejecting import known, on_node, pod
from tests.agent.test_status_patches import Desk, at_desk
from tests.clock import until
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeRuntime

HOUR, YEAR = 3600.0, 365 * 86400.0
JUMPS = [-10 * YEAR, -HOUR, -1.0, HOUR, 10 * YEAR]


class WallClock:
    """`time.time` and its like, moved; what counts seconds since the start goes on as it is."""

    def __init__(self) -> None:
        self.moved = 0.0
        self._time, self._ns = time.time, time.time_ns

    def time(self) -> float:
        return self._time() + self.moved

    def time_ns(self) -> int:
        return self._ns() + int(self.moved * 1e9)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    moved = WallClock()
    monkeypatch.setattr(time, "time", moved.time)
    monkeypatch.setattr(time, "time_ns", moved.time_ns)
    return moved


# Who may look at the wall clock

TELLING = {
    "agent/command.py": "whether the authority's certificate has expired",
    "cluster/checks.py": "whether a certificate has expired",
    "agent/admitting.py": "since when a pod is refused, and when CPUs change hands, are told",
    "service/apievents.py": "the time of an event is told",
    "agent/status/agent_status.py": "since when the agent runs is told",
    "host/bundle/command.py": "when a bundle was captured is told",
    "kubectl/commands/capture.py": "when a node was captured is told",
    "agent/dra/service.py": "the time of a health report is told",
    "agent/dra/statuses.py": "the time of a condition is told",
    "agent/journal.py": "names an epoch, which is only compared for being the same",
    "agent/status/metrics.py": "the age of a socket's folder is told",
    "agent/api_server/rejecting.py": "the time of a mark is told",
    "agent/api_server/topologylease.py": "the time of a renewal is told",
    "status/command.py": "how long ago is told",
    "cluster/log_lines.py": "the time of a line is told",
    "cluster/page/queries.py": "the times of a curve are told",
    "cluster/nominate/requeuer.py": "a number that is another each time",
}


def _looks(path: Path) -> bool:
    """Whether a module names the wall clock."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if "time." in text else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            whose = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (whose, node.attr) in {
                ("time", "time"),
                ("time", "time_ns"),
                ("datetime", "now"),
                ("datetime", "utcnow"),
            }:
                return True
    return False


@pytest.mark.slow
def test_the_wall_clock_only_tells() -> None:
    """Waits, counts and limits use a monotonic clock; each module that reads the time of day is listed with its
    purpose."""
    root = Path(podslice.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if _looks(path)}
    assert found == set(TELLING)


# Pods that are to be marked


@pytest.mark.parametrize("jump", JUMPS)
def test_refused_pods_are_marked_in_time(tmp_path: Path, wall: WallClock, jump: float) -> None:
    """A pod that waits to be marked again, one that comes after a jump, and the pace: none waits for the clock, and
    nobody is patched more often."""

    async def test(desk: Desk) -> None:
        desk.rejecting._now = wall.time
        await desk.store("a", "b")
        desk.reject("a")
        await until(lambda: desk.marked)
        wall.moved = jump
        desk.reject("b")
        begun = asyncio.get_running_loop().time()
        await until(lambda: len(desk.marked) == 2)
        assert asyncio.get_running_loop().time() - begun < 5
        await asyncio.sleep(120)
        assert desk.rejecting.waiting == 0
        assert len(desk.api.patches) == 2

    at_desk(tmp_path, test)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_denied_right_is_tried_again_in_time(tmp_path: Path, wall: WallClock, jump: float) -> None:
    """Where the right was missing pods are left alone for a while, and not for as long as the clock was moved."""

    async def test(desk: Desk) -> None:
        desk.rejecting._now = wall.time
        await desk.store("b")
        desk.api.answers = [403]
        desk.reject("a")
        await until(lambda: desk.freed)
        wall.moved = jump
        assert desk.reject("b") == [False]
        await asyncio.sleep(DENIED_SECONDS + 1)
        assert desk.reject("b") == [True]
        await until(lambda: desk.marked)

    at_desk(tmp_path, test)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_kubelet_is_not_left_alone_for_years(
    tmp_path: Path, wall: WallClock, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """How long a refused pod waits for its kubelet is bounded, wherever the clock goes meanwhile."""
    monkeypatch.setattr("podslice.agent.api_server.refusals.QUIET_SECONDS", 2.0)
    monkeypatch.setattr("podslice.agent.api_server.refusals.SANDBOX_SECONDS", 3.0)

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        assert agent.refusals is not None
        now = 1_000_000_000.0
        agent.owner.admitting.now = lambda: now
        await api.apply(pod("big", "40"))
        await until(lambda: known(agent, "big"))
        now += jump
        assert agent.refusals._busy("big") <= 3.0

    on_node(tmp_path, test)


# What is only told


@pytest.mark.parametrize("jump", JUMPS)
def test_ages_are_never_negative(wall: WallClock, jump: float) -> None:
    """Something that began in what is now the future is as old as nothing."""
    began = time.time()
    wall.moved = jump
    assert not format_age(began).startswith("-")
    assert (format_age(began) == "0s ago") == (jump < 0)


@pytest.mark.parametrize("jump", JUMPS)
def test_the_curve_of_a_cluster_never_goes_back(jump: float) -> None:
    """Points are in the order of time, and new ones come whatever the clock says."""
    room = Room(nodes=1, cpus=8, free=4, largest=4, pods=(), usable=(), scattered=())
    history = FragmentationHistory(most=20)
    now = 1_000_000_000.0
    for _ in range(30):
        history.take(room, now)
        now += 30
    now += jump
    for _ in range(5):
        history.take(room, now)
        now += 30
    times = [point.at for point in history.points]
    assert times == sorted(times)
    assert times[-1] == round(now - 30, 1)
    assert len(times) <= 21


@pytest.mark.parametrize("jump", JUMPS)
def test_an_epoch_is_another_one(jump: float) -> None:
    """A state that is opened again has another epoch, and the same agent never one from before."""
    now = 1_000_000_000_000_000
    journal = NodeJournal(version="1", now=lambda: now)
    node = Node(from_synthetic(MACHINE), agent_config())
    seen = []
    for _ in range(3):
        journal.begin(node)
        assert journal.journal is not None
        seen.append(journal.journal.epoch)
        now += int(jump * 1e6)
    assert len(set(seen)) == 3
    assert seen == sorted(seen)


# The agent as a whole


@pytest.mark.parametrize("jump", JUMPS)
def test_the_agent_goes_on(tmp_path: Path, wall: WallClock, jump: float) -> None:
    """Passes go on, the agent is well, pods are placed, and no event is sent again."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("big", "40"))
        with pytest.raises(RPCError):
            await fake.create_container(await fake.run_pod("big"), "app")
        await until(lambda: api.events)
        passes = 0

        def passed() -> None:
            nonlocal passes
            passes += 1

        agent.upkeep._passed = passed
        wall.moved = jump
        await until(lambda: passes >= 3)
        with pytest.raises(RPCError):
            await fake.create_container("sandbox-big", "app")
        await api.apply(api_pod("a", "4"))
        made = await fake.create_container(await fake.run_pod("a"), "app")
        assert parse_bits(made.cpus).bit_count() == 4
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await get(agent.endpoints.web_port, path))[0] == 200
        assert [event["reason"] for event in api.events].count("TopologyAffinityError") == 1
        assert passes < 100

    with_agent(tmp_path, test, reconcileSeconds=0.1)


@pytest.mark.parametrize("jump", JUMPS)
def test_files_from_another_time(tmp_path: Path, jump: float) -> None:
    """The order in which pods were admitted is that of their files' times. Where the clock was set between two pods
    everybody has what he had after a restart."""

    async def main() -> None:
        world = World(tmp_path, pod_level())
        await world.start()
        for uid, cpus in (("a", "3"), ("b", "2"), ("c", "4")):
            await world.run(make_pod(uid, ("app", cpus)))
            path = tmp_path / "state" / "pods" / f"{uid}.json"
            at = time.time() + (jump if uid == "b" else 0.0)
            os.utime(path, (at, at))
        before, had = ledger(world), exclusive(world)
        await world.restart()
        assert (ledger(world), exclusive(world)) == (before, had)
        assert world.owner.safe_mode == ""
        await world.kill()

    clock.run(main())
