"""Room that the agent makes by itself for pods that were refused."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.agent.moves.automatic_defrag import WANTED_SECONDS, AutomaticDefrag
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod
from podslice.config.policy import Defragmentation, PodslicePolicy
from tests import clock
from tests.agent.elastic import Elastic, at_once
from tests.agent.helpers import agent_config
from tests.conftest import make_pod

RULES = Defragmentation(carry_out="automatic", movable="all")
BIG = make_pod("big", ("app", "14"))


class Watch:
    """A clock that can be ahead."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.perf_counter() + self.ahead


def fragmented(
    folder: Path, test: Callable[[Elastic, AutomaticDefrag, Watch], Awaitable[None]], rules: Defragmentation = RULES
) -> None:
    """Two NUMA nodes with pods of 4 and of 12 CPUs, and no room for one of 14."""
    config = agent_config(reserved_system_cpus="0", topology_manager_policy="single-numa-node")
    world, watch = Elastic(folder, PodslicePolicy(defrag=rules), config), Watch()

    async def main() -> None:
        world.start()
        await world.run(make_pod("web", ("app", "4")))
        await world.run(make_pod("db", ("app", "12")))
        await world.run(make_pod("s", ("app", None)))
        await test(world, AutomaticDefrag(world.owner, world.moving, clock=watch, run_in_thread=at_once), watch)

    clock.run(main())


async def refused(world: Elastic, pod: Pod) -> None:
    with pytest.raises(RPCError):
        await world.run(pod)


def test_a_pod_that_was_not_aligned_gets_room(tmp_path: Path) -> None:
    """Others move, the pod's next attempt is admitted, and the way back is known."""

    async def test(world: Elastic, automatic: AutomaticDefrag, watch: Watch) -> None:
        await refused(world, BIG)
        result = await automatic.make_room()
        assert result is not None
        assert (result.problem, world.cpus("web-app")) == ("", "28-31")
        assert world.moving.last == result
        await world.settle()
        await world.run(BIG)
        assert world.owned("big") == "2-15"
        world.agrees()
        assert await automatic.make_room() is None

    fragmented(tmp_path, test)


def test_in_vain_is_tried_once(tmp_path: Path) -> None:
    """A pod for which no moves make room is not planned for again until the node has changed."""

    async def test(world: Elastic, automatic: AutomaticDefrag, watch: Watch) -> None:
        await refused(world, make_pod("big", ("app", "16")))
        planned = list[str]()

        async def run_in_thread(work: Callable[..., object], *arguments: object) -> object:
            planned.append(world.digest)
            return work(*arguments)

        counting = AutomaticDefrag(world.owner, world.moving, clock=watch, run_in_thread=run_in_thread)
        for _ in range(3):
            assert await counting.make_room() is None
        await world.run(make_pod("t", ("app", "1")))
        assert await counting.make_room() is None
        assert len(planned) == len(set(planned)) == 2

    fragmented(tmp_path, test)


@pytest.mark.parametrize(("pod", "ahead"), [(BIG, WANTED_SECONDS + 1), (make_pod("big", ("app", None)), 0.0)])
def test_only_for_pods_refused_lately_for_topology(tmp_path: Path, pod: Pod, ahead: float) -> None:
    """A refusal of more than a minute ago, and a pod that was not refused, move nobody."""

    async def test(world: Elastic, automatic: AutomaticDefrag, watch: Watch) -> None:
        if pod is BIG:
            await refused(world, pod)
        else:
            await world.run(pod)
        watch.ahead = ahead
        assert await automatic.make_room() is None
        assert world.cpus("web-app") == "2-5"

    fragmented(tmp_path, test)


def test_the_hour_bounds_it(tmp_path: Path) -> None:
    """Where no move is left in the hour, nothing is planned."""

    async def test(world: Elastic, automatic: AutomaticDefrag, watch: Watch) -> None:
        await refused(world, BIG)
        assert await automatic.make_room() is None
        assert world.notes.troubles == []

    fragmented(tmp_path, test, replace(RULES, max_moves_per_hour=0))
