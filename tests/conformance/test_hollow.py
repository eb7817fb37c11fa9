"""The service beside the real kube-scheduler and a hundred nodes that decide with the real core: agreement of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from e2e.controlplane import MERGE, Api
from e2e.hollow import one_run
from e2e.hollow_campaign import KINDS, Faults, StaleApi, campaign, summary
from e2e.hollow_cluster import ALONE, SCHEDULER, HollowCluster, Load, Progress, hollow, in_parallel, loads
from e2e.hollow_nodes import Fault, HollowJournals
from e2e.scheduling import PATIENCE, SOON, Pods, extender, pod, profile

from podslice.cluster.service import Listening, ServiceSettings
from tests.cluster.bench import wire_service

NODES = 100
Test = Callable[[HollowCluster], Awaitable[None]]


@pytest.mark.parametrize("load", ["mixed", "churn"])
def test_agreement(programs: None, load: str) -> None:
    """Every pod runs where the scheduler sent it, no CPU has two owners, nothing is held afterwards, and every digest
    is the node's, while pods of all sizes come and go, nominated ahead as in a large cluster."""
    result = asyncio.run(one_run(NODES, loads(NODES, 300)[load], service=True, nominating_nodes=0))
    assert (result.running, result.refusals, result.problems) == (result.pods, 0, ())
    assert result.counts["agreed"] == result.running


def test_a_small_cluster_nominates_no_new_pod(programs: None) -> None:
    """Where filters of all nodes are cheap, no pod that fits is nominated."""
    result = asyncio.run(one_run(30, loads(30, 60)["equal"], service=True))
    assert (result.running, result.counts["nominated"], result.problems) == (60, 0, ())


def test_without_nominations(programs: None) -> None:
    """The ordinary way, in which filter is asked with all names, agrees as well."""
    result = asyncio.run(one_run(30, loads(30, 90)["mixed"], service=True, nominate=False))
    assert (result.running, result.refusals, result.problems) == (90, 0, ())
    assert result.counts["nominated"] == 0


def test_the_scheduler_decides(programs: None) -> None:
    """With advice alone kube-scheduler takes nodes of its own choice, and they agree as well."""
    result = asyncio.run(one_run(30, loads(30, 90)["mixed"], service=True, nominate=False, advise=True))
    assert (result.running, result.refusals, result.problems) == (90, 0, ())
    assert result.counts["agreed"] == 90


def test_bad_lines(programs: None) -> None:
    """Events that are lost and doubled on their way cost trust for a moment, and no pod: what is missing is fetched,
    and in the end every digest is the node's."""
    fault = Fault(lose=7, double=5)
    result = asyncio.run(one_run(30, loads(30, 120)["churn"], service=True, fault=fault))
    assert (result.running, result.refusals, result.problems) == (result.pods, 0, ())
    assert min(result.counts["lost on the way"], result.counts["doubled"]) > 0


def running(folder: Path, nodes: int, test: Test) -> None:
    async def main() -> None:
        async with hollow(
            folder, [f"n{number:05d}" for number in range(nodes)], service=True, nominating_nodes=0
        ) as cluster:
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


def test_every_fault(programs: None, tmp_path: Path) -> None:
    """Everything happens that can, each in the middle of a load: the service is killed, the API server restarts,
    watches are too old, the clock jumps, agents begin new epochs, events are lost and doubled. Digests meet, every pod
    runs, none is refused, and nothing is held at the end."""

    async def main() -> None:
        names = [f"n{number:05d}" for number in range(20)]
        async with hollow(tmp_path, names, service=True, client=StaleApi, nominating_nodes=0) as cluster:
            assert isinstance(cluster.api, StaleApi)
            kinds = Faults(cluster, cluster.api, Random(3)).kinds
            assert set(kinds) == set(KINDS)
            for at, happens in enumerate(kinds.values()):
                cluster.nodes.admitted = 0
                load = Load("faults", {f"f{at}-{number}": (4, 6, 2)[number % 3] for number in range(24)}, lives=2)
                progress = asyncio.ensure_future(Progress(cluster, load, SCHEDULER).run())
                while cluster.nodes.admitted < 6 and not progress.done():
                    await asyncio.sleep(0.02)
                await happens()
                async with asyncio.timeout(PATIENCE):
                    while list(cluster.apart()):
                        await asyncio.sleep(0.05)
                result = await progress
                assert (result.running, result.refusals) == (24, 0)
            cluster.journals.fault = Fault()
            assert await cluster.quiet() == []
            assert cluster.counts()["disputed"] == 0

    asyncio.run(main())


def test_beside_another_scheduler(programs: None, tmp_path: Path) -> None:
    """The cluster's own scheduler sends pods to the same nodes at the same time. What it sends counts, whichever comes
    first, the server's word of it or the node's; a race may cost a refusal, which is counted as one. No CPU has two
    owners, nothing is held at the end, every digest is the node's."""

    async def test(cluster: HollowCluster) -> None:
        cluster.plane.start_scheduler({"profiles": [profile(ALONE)]}, name="another")
        await asyncio.to_thread(create_for_both, cluster)
        await until(lambda: cluster.nodes.admitted + len(cluster.nodes.refused) == 80)
        assert await cluster.quiet() == []
        counts, ours = cluster.counts(), [one for one in cluster.nodes.refused if one.startswith("ours")]
        assert counts["refused"] >= len(ours)
        assert counts["agreed"] >= 40 - len(ours)
        assert counts["disputed"] == 0

    running(tmp_path, 20, test)


def test_two_own_schedulers(programs: None, tmp_path: Path) -> None:
    """Two schedulers, each with a service of its own, and neither knows of the other but from the API server and the
    nodes. A race may cost a refusal, which is counted as one; no CPU has two owners, and nothing is held by either at
    the end."""

    async def test(cluster: HollowCluster) -> None:
        journals, first = HollowJournals(cluster.nodes.source), cluster.journals.feed
        cluster.nodes.send = lambda name, data: (first(name, data), journals.feed(name, data))[1]
        settings = ServiceSettings(schedulers=frozenset({"another"}))
        other = wire_service(cluster.api, journals, settings)
        await other.start(Listening(port=0))
        try:
            await until(lambda: other.nodes.ready and other.pods.ready)
            journals.catch_up(cluster.nodes.nodes)
            extenders = [extender(f"http://127.0.0.1:{other.port}/v1")]
            configuration = SOON | {"profiles": [profile("another")], "extenders": extenders}
            cluster.plane.start_scheduler(configuration, name="another")
            await asyncio.to_thread(create_for_both, cluster, "another")
            await until(lambda: cluster.nodes.admitted + len(cluster.nodes.refused) == 80)
            assert await cluster.quiet() == []
            await until(lambda: not other.placing.model.holds())
            for name, node in cluster.nodes.nodes.items():
                assert journals.nodes[name].replica.digest == node.journal.digest
            for counts, own in ((cluster.counts(), "ours"), (other.placing.model.counts, "theirs")):
                refused = [one for one in cluster.nodes.refused if one.startswith(own)]
                assert counts["agreed"] >= 40 - len(refused)
                assert counts["disputed"] == 0
        finally:
            await other.stop()

    running(tmp_path, 20, test)


def test_drain(programs: None, tmp_path: Path) -> None:
    """A node is drained while pods come, as kubectl does it: cordoned, and its pods evicted. Their owner makes others,
    which run elsewhere. Uncordoned, the node takes pods again: all places of all nodes are taken."""

    async def test(cluster: HollowCluster) -> None:
        node, nodes = "n00001", cluster.nodes

        async def run(names: list[str], of: int) -> None:
            await asyncio.to_thread(in_parallel, cluster.plane, create_large, names)
            await until(lambda: len(nodes.runs) == of)

        coming = asyncio.ensure_future(run([f"first-{number}" for number in range(9)], 9))
        await until(lambda: nodes.admitted >= 3)
        await asyncio.to_thread(cordon, cluster, node, True)
        await coming
        assert cluster.service is not None
        places = cluster.service.placing.places.nodes
        await until(lambda: places[node].unschedulable)
        gone = await asyncio.to_thread(evict_all, cluster, node)
        await until(lambda: node not in nodes.runs.values())
        await run([f"again-{name}" for name in gone], 9)
        assert node not in nodes.runs.values()
        await asyncio.to_thread(cordon, cluster, node, False)
        await run([f"last-{number}" for number in range(7)], 16)
        assert list(nodes.runs.values()).count(node) == 4
        assert (nodes.refused, await cluster.quiet()) == ([], [])

    running(tmp_path, 4, test)


def create_large(api: Api, name: str) -> None:
    """A pod of which a node takes four."""
    Pods(api).create(pod(name, SCHEDULER, cpus="10"))


def cordon(cluster: HollowCluster, node: str, on: bool) -> None:
    with cluster.plane.api() as api:
        api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on or None}}, MERGE)


def evict_all(cluster: HollowCluster, node: str) -> list[str]:
    """The names of the pods that were there."""
    with cluster.plane.api() as api:
        path = Pods(api).path
        found = api.call("GET", f"{path}?fieldSelector=spec.nodeName%3D{node}")["items"]
        names = [str(one["metadata"]["name"]) for one in found]
        for name in names:
            api.call(
                "POST",
                f"{path}/{name}/eviction",
                {
                    "metadata": {"name": name},
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "deleteOptions": {"gracePeriodSeconds": 0},
                },
            )
    return names


async def until(look: Callable[[], object]) -> None:
    """Wait, on a busy machine too."""
    async with asyncio.timeout(4 * PATIENCE):
        while not look():
            await asyncio.sleep(0.05)


def create_for_both(cluster: HollowCluster, other: str = ALONE) -> None:
    """Pods of both schedulers, by turns."""
    with cluster.plane.api() as api:
        pods = Pods(api)
        for number in range(40):
            pods.create(pod(f"ours-{number}", SCHEDULER, cpus=str((10, 4)[number % 2])))
            pods.create(pod(f"theirs-{number}", other, cpus=str((3, 6)[number % 2])))


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
