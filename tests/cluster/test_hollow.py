"""The service beside the real kube-scheduler and a hundred nodes that decide with the real core: agreement of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from e2e.hollow import SCHEDULER, HollowCluster, Load, Progress, hollow, loads, one_run
from e2e.hollow_campaign import campaign, summary
from e2e.hollow_nodes import Fault

NODES = 100
Test = Callable[[HollowCluster], Awaitable[None]]


@pytest.mark.parametrize("load", ["mixed", "churn"])
def test_agreement(programs: None, load: str) -> None:
    """Every pod runs where the scheduler sent it, no CPU has two owners, nothing is held afterwards, and every digest
    is the node's, while pods of all sizes come and go."""
    result = asyncio.run(one_run(NODES, loads(NODES, 300)[load], service=True))
    assert (result.running, result.refusals, result.problems) == (result.pods, 0, ())
    assert result.counts["agreed"] == result.running


def test_without_nominations(programs: None) -> None:
    """The ordinary way, in which filter is asked with all names, agrees as well."""
    result = asyncio.run(one_run(30, loads(30, 90)["mixed"], service=True, nominate=False))
    assert (result.running, result.refusals, result.problems) == (90, 0, ())
    assert result.counts["nominated"] == 0


def test_bad_lines(programs: None) -> None:
    """Events that are lost and doubled on their way cost trust for a moment, and no pod: what is missing is fetched,
    and in the end every digest is the node's."""
    fault = Fault(lose=7, double=5)
    result = asyncio.run(one_run(30, loads(30, 120)["churn"], service=True, fault=fault))
    assert (result.running, result.refusals, result.problems) == (result.pods, 0, ())
    assert min(result.counts["lost on the way"], result.counts["gap"], result.counts["doubled"]) > 0


def running(folder: Path, nodes: int, test: Test) -> None:
    async def main() -> None:
        async with hollow(folder, [f"n{number:05d}" for number in range(nodes)], service=True) as cluster:
            cluster.start_scheduler()
            await test(cluster)

    asyncio.run(main())


def test_service_is_killed(programs: None, tmp_path: Path) -> None:
    """The service goes in the middle of everything, between filter and bind and between nomination and filter, and
    another one that knows nothing takes its place: every pod runs, none is refused, nothing is held at the end."""

    async def test(cluster: HollowCluster) -> None:
        load = Load("killed", {f"killed-{number}": (4, 10, 6)[number % 3] for number in range(120)})
        progress = asyncio.ensure_future(Progress(cluster, load, SCHEDULER).run())
        for at in (10, 40, 80):
            while cluster.nodes.admitted < at and not progress.done():
                await asyncio.sleep(0.02)
            port = await cluster.kill_service()
            await asyncio.sleep(0.5)
            await cluster.start_service(port)
        result = await progress
        problems = [one for one in result.problems if "connect" not in one]
        assert (result.running, result.refusals, problems) == (120, 0, [])

    running(tmp_path, 40, test)


def test_campaign(programs: None, tmp_path: Path) -> None:
    """A round of a campaign keeps every promise while two things fail in it, and a campaign goes on where its file
    ends."""
    file = tmp_path / "rounds.jsonl"
    rounds = asyncio.run(campaign(file, nodes=20, placements=1, seed=5, pods=60))
    assert [(one.placements, one.refused, one.problems, len(one.met)) for one in rounds] == [(60, 0, [], 2)]
    assert asyncio.run(campaign(file, nodes=20, placements=1, seed=5, pods=60)) == rounds
    assert "60 placements, 0 refused" in summary(rounds)


def test_more_than_fits(programs: None, tmp_path: Path) -> None:
    """Pods for which there is no room wait with a reason that counts nodes, and run as soon as others leave."""

    async def test(cluster: HollowCluster) -> None:
        first = Load("first", {f"first-{number}": 10 for number in range(8)})
        result = await Progress(cluster, first, SCHEDULER).run()
        assert result.running == 8
        waiting = asyncio.ensure_future(
            Progress(cluster, Load("late", {"late-0": 10, **first.cpus}), SCHEDULER, names=["late-0"]).run()
        )
        await asyncio.to_thread(
            cluster.reason, "late-0", "0/2 nodes are available: 2 no NUMA node has 10 exclusive CPUs free."
        )
        await asyncio.to_thread(cluster.delete, "first-3")
        result = await waiting
        assert (result.running, result.refusals, result.problems) == (9, 0, ())

    running(tmp_path, 2, test)
