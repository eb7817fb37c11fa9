"""Groups of pods (Workload API of v1.36, alpha) beside the real kube-scheduler: all of a gang run, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from e2e.controlplane import Api
from e2e.hollow_cluster import SCHEDULER, HollowCluster, hollow
from e2e.scheduling import Pods, eventually, pod

GATES = {"GenericWorkload": True, "GangScheduling": True}
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def gang(api: Api, name: str, members: int, *, least: int = 0, cpus: str = "10") -> list[str]:
    """A gang of so many pods, of which `least` must find a place; all where that is 0."""
    spec = {"schedulingPolicy": {"gang": {"minCount": least or members}}}
    api.call("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})
    names = [f"{name}-{number}" for number in range(members)]
    for one in names:
        Pods(api).create(pod(one, SCHEDULER, cpus=cpus, schedulingGroup={"podGroupName": name}))
    return names


def playing(folder: Path, nodes: int, scene: Callable[[HollowCluster, Api, Pods], None]) -> None:
    async def main() -> None:
        names = [f"n{number:05d}" for number in range(nodes)]
        async with hollow(folder, names, service=True, gates=GATES) as cluster:
            with cluster.plane.api() as api:
                await asyncio.to_thread(scene, cluster, api, Pods(api))
            assert await cluster.quiet() == []
            assert cluster.nodes.refused == []

    asyncio.run(main())


def test_all_or_none(programs: None, tmp_path: Path) -> None:
    """Of a gang that fits every member runs as planned. One that does not fit has no member bound and keeps nobody
    else out, though the scheduler tries it again and again; once there is room for all, all of it runs."""

    def scene(cluster: HollowCluster, api: Api, pods: Pods) -> None:
        service = cluster.service
        assert service is not None
        first = gang(api, "first", 4)
        eventually(lambda: all(pods.node(name) for name in first), "the gang that fits does not run")
        second = gang(api, "second", 6)
        eventually(lambda: any("pod group" in pods.unscheduled(name).get("message", "") for name in second))
        pods.create(pod("single", SCHEDULER, cpus="10"))
        eventually(lambda: pods.node("single"), "a gang that does not fit keeps others out")
        assert not any(pods.node(name) for name in second)
        for name in first:
            pods.delete(name)
        eventually(lambda: all(pods.node(name) for name in second), "the gang does not run though all of it fits")
        counts = service.placing.model.counts
        eventually(lambda: counts["agreed"] == 11, "not every pod that runs is as it was planned")
        assert (counts["disputed"], counts["refused"]) == (0, 0)

    playing(tmp_path, 2, scene)


def test_fewer_are_enough(programs: None, tmp_path: Path) -> None:
    """A gang of which so many must run has those bound that found a node, though others found none; and one whose pods
    are deleted while it waits leaves nothing held."""

    def scene(cluster: HollowCluster, api: Api, pods: Pods) -> None:
        service = cluster.service
        assert service is not None
        some = gang(api, "some", 5, least=3)
        eventually(lambda: sum(bool(pods.node(name)) for name in some) == 4, "not as many run as fit")
        never = gang(api, "never", 3)
        eventually(lambda: pods.unscheduled("never-0"))
        for name in [*never, *some]:
            pods.delete(name)
        eventually(lambda: not service.placing.model.holds(), "something is held for pods that are gone")
        whole = gang(api, "whole", 4)
        eventually(lambda: all(pods.node(name) for name in whole), "there is room, and the gang does not run")

    playing(tmp_path, 1, scene)
