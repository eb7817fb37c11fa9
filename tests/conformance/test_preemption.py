"""Preemption for topology beside the real kube-scheduler and the real Eviction API: who leaves, and who may not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from e2e.controlplane import MERGE, Api, Json
from e2e.hollow_cluster import SCHEDULER, HollowCluster, hollow
from e2e.scheduling import Pods, eventually, pod

PRIORITIES = {"low": 10, "middle": 20, "high": 1000}
Test = Callable[[HollowCluster], Awaitable[None]]


def prepare(api: Api) -> None:
    for name, value in PRIORITIES.items():
        body = {"metadata": {"name": name}, "value": value}
        api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    never = {"metadata": {"name": "never"}, "value": 2000, "preemptionPolicy": "Never"}
    api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", never)


def budget(api: Api, name: str, app: str, allowed: int) -> None:
    """As the controller of budgets would have it, which does not run here."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    made = api.call("POST", path, {"metadata": {"name": name}, "spec": spec})
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1}
    status["observedGeneration"] = made["metadata"]["generation"]
    api.call("PATCH", f"{path}/{name}/status", {"status": status}, MERGE)


def with_class(name: str, kind: str, cpus: str, node: str = "") -> Json:
    """A pod of a priority class, labelled with its own name."""
    document = pod(name, SCHEDULER, cpus=cpus, priorityClassName=kind)
    document["metadata"]["labels"] = {"app": name}
    if node:
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return document


def playing(folder: Path, names: list[str], scene: Callable[[HollowCluster, Api, Pods], None]) -> None:
    async def main() -> None:
        async with hollow(folder, names, service=True, evict=True) as cluster:
            with cluster.plane.api() as api:
                prepare(api)
                await asyncio.to_thread(scene, cluster, api, Pods(api))
            assert await cluster.quiet() == []
            assert cluster.nodes.refused == []

    asyncio.run(main())


def fill(cluster: HollowCluster, pods: Pods, count: int, kind: Callable[[int], str]) -> list[str]:
    """So many pods of 10 CPUs, of which a NUMA node takes one; they run."""
    names = [f"fill-{number}" for number in range(count)]
    for number, name in enumerate(names):
        pods.create(with_class(name, kind(number), "10"))
    eventually(lambda: all(pods.node(name) for name in names), "not everything that fits is placed")
    return names


def test_for_topology_alone(programs: None, tmp_path: Path) -> None:
    """Two nodes whose NUMA nodes have 5 or 6 CPUs left each, 23 in all: kube-scheduler has no victim for a pod of 14,
    so one pod of the lowest priority leaves, which no budget keeps, and hears why; the pod gets its place, and nobody
    else had to go. A pod that may not preempt waits."""

    def scene(cluster: HollowCluster, api: Api, pods: Pods) -> None:
        names = fill(cluster, pods, 8, lambda number: "low" if number in (1, 2, 6) else "middle")
        budget(api, "keeps", "fill-1", 0)
        budget(api, "lets", "fill-2", 1)
        budget(api, "also", "fill-6", 0)
        pods.create(with_class("polite", "never", "14"))
        eventually(lambda: "14 exclusive CPUs" in pods.unscheduled("polite").get("message", ""))
        pods.create(with_class("big", "high", "14"))
        eventually(lambda: pods.node("big"), "nobody left for it")
        gone = [name for name in names if api.ask("GET", f"{pods.path}/{name}").code == 404]
        assert gone == ["fill-2"]
        eventually(lambda: [one for one in pods.events("fill-2") if one["reason"] == "PodslicePreempted"])
        assert not pods.node("polite")
        service, counted = cluster.service, 'podslice_cluster_evictions_total{fate="evicted"} 1.0'
        assert service is not None
        eventually(lambda: counted in service.metrics.text().decode(), "an eviction is not counted")

    playing(tmp_path, ["n00000", "n00001"], scene)


def test_nobody_of_equal_priority(programs: None, tmp_path: Path) -> None:
    """A pod for which only pods of its own priority could leave waits, and so does one whose victims budgets keep."""

    def scene(cluster: HollowCluster, api: Api, pods: Pods) -> None:
        names = fill(cluster, pods, 4, lambda number: "low" if number == 0 else "middle")
        budget(api, "keeps", "fill-0", 0)
        pods.create(with_class("equal", "middle", "14"))
        eventually(lambda: "14 exclusive CPUs" in pods.unscheduled("equal").get("message", ""))
        service = cluster.service
        assert service is not None
        eventually(lambda: 'evictions_total{fate="spared"} 1.0' in service.metrics.text().decode())
        eventually(lambda: not service.placing.model.holds())
        assert all(pods.node(name) for name in names)

    playing(tmp_path, ["n00000"], scene)


@pytest.mark.parametrize("topology", [True, False])
def test_scheduler_preempts_for_sums(programs: None, tmp_path: Path, topology: bool) -> None:
    """Where sums are short kube-scheduler preempts by itself, and asks: victims that leave a place on one NUMA node are
    let go, and others are not, for whom the service finds the right ones."""

    def scene(cluster: HollowCluster, api: Api, pods: Pods) -> None:
        sizes = ["15", "16", "16", "16"] if topology else ["15", "16", "16", "12"]
        for number, size in enumerate(sizes):
            pods.create(with_class(f"fill-{number}", "low" if number == 0 or not topology else "middle", size))
            eventually(lambda number=number: pods.node(f"fill-{number}"))  # type: ignore[misc]
        pods.create(with_class("big", "high", "14"))
        eventually(lambda: pods.node("big"), "nobody left for it")
        gone = [number for number in range(4) if api.ask("GET", f"{pods.path}/fill-{number}").code == 404]
        assert len(gone) == 1

    playing(tmp_path, ["n00000"], scene)
