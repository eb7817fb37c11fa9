"""Room that no object shows, beside the real kube-scheduler: pods that it has put away are tried again at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from e2e.controlplane import Api, Json
from e2e.hollow_cluster import SCHEDULER, HollowCluster, hollow
from e2e.scheduling import Pods, eventually, pod

from podslice.api.pod.spec import Pod as CorePod
from podslice.api.pod.spec import from_dict
from podslice.cluster.apiclient import ROOM_ANNOTATION
from podslice.replica.events import encode

HERE, THERE = "n00000", "n00001"
FULL = 4
"""Pods of 10 CPUs that a node takes, one on each NUMA node."""


def only(node: str) -> Json:
    """Affinity to one node."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


class Unseen:
    """Pods of nodes that the API server knows nothing of, as if everything that changes were a matter of the node
    alone."""

    def __init__(self, cluster: HollowCluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster, self._loop = cluster, loop
        self._where: dict[str, str] = {}

    def come(self, node: str, *uids: str) -> None:
        """They are on this node."""
        asyncio.run_coroutine_threadsafe(self._come(node, *uids), self._loop).result()

    def leave(self, *uids: str) -> None:
        """They are gone, all at once."""
        asyncio.run_coroutine_threadsafe(self._leave(*uids), self._loop).result()

    async def _come(self, name: str, *uids: str) -> None:
        for uid in uids:
            document = pod(uid, SCHEDULER, cpus="10")
            document["metadata"] |= {"uid": uid, "namespace": "default"}
            why, stamped = self._cluster.nodes.nodes[name].admit(from_dict(document, CorePod))
            assert not why
            self._where[uid] = name
            self._cluster.journals.feed(name, encode(stamped))

    async def _leave(self, *uids: str) -> None:
        for uid in uids:
            name = self._where.pop(uid)
            self._cluster.journals.feed(name, encode(self._cluster.nodes.nodes[name].remove(uid)))


def put_away(cluster: HollowCluster, pods: Pods, *names: str) -> None:
    """The scheduler has found no node for these, and asks no more."""
    service = cluster.service
    assert service is not None

    def asked() -> Any:
        return service.metrics.registry.get_sample_value(
            "podslice_cluster_calls_total", {"verb": "filter", "result": "refused"}
        )

    def look() -> bool:
        before = asked()
        time.sleep(3)
        return bool(before) and asked() == before

    eventually(lambda: all("10 exclusive CPUs" in pods.unscheduled(name).get("message", "") for name in names))
    eventually(look, "the scheduler does not come to rest")


def test_room_that_only_a_journal_shows(programs: None, tmp_path: Path) -> None:
    """A pod with node affinity and one with a host port wait, and nothing happens to any object. Once a node's journal
    shows room they are bound, long before kube-scheduler would look again by itself; only this one's Node is said to
    have room, and where the pod may not go nobody says anything. Equal pods for different nodes are all woken when
    there is room on both."""

    def scene(cluster: HollowCluster, api: Api, unseen: Unseen) -> None:
        pods, service = Pods(api), cluster.service
        assert service is not None
        for name in (HERE, THERE):
            unseen.come(name, *(f"{name}-{number}" for number in range(FULL)))
        pods.create(pod("affine", SCHEDULER, cpus="10", affinity=only(THERE)))
        put_away(cluster, pods, "affine")
        unseen.leave(f"{HERE}-0")
        time.sleep(5)
        assert not pods.node("affine")
        assert room(api) == {}
        unseen.leave(f"{THERE}-0")
        eventually(lambda: pods.node("affine") == THERE, "nobody has the scheduler look again")
        assert set(room(api)) == {THERE}
        unseen.come(HERE, f"{HERE}-new")
        port = pod("port", SCHEDULER, cpus="10")
        port["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        pods.create(port)
        put_away(cluster, pods, "port")
        unseen.leave(f"{HERE}-1")
        eventually(lambda: pods.node("port") == HERE, "nobody has the scheduler look again")
        written = {"kind": "wake", "result": "done"}
        assert service.metrics.registry.get_sample_value("podslice_cluster_api_writes_total", written) == 2
        for name in (HERE, THERE):
            pods.create(pod(f"on-{name}", SCHEDULER, cpus="10", affinity=only(name)))
        put_away(cluster, pods, f"on-{HERE}", f"on-{THERE}")
        unseen.leave(f"{HERE}-2", f"{THERE}-2")
        for name in (HERE, THERE):
            eventually(lambda name=name: pods.node(f"on-{name}") == name, f"the pod for {name} sleeps on")  # type: ignore[misc]

    async def main() -> None:
        async with hollow(tmp_path, [HERE, THERE], service=True) as cluster:
            with cluster.plane.api() as api:
                unseen = Unseen(cluster, asyncio.get_running_loop())
                await asyncio.to_thread(scene, cluster, api, unseen)
            assert await cluster.quiet() == []
            assert cluster.nodes.refused == []

    asyncio.run(main())


def room(api: Api) -> dict[str, str]:
    """Return the `podslice.io/room` annotations, by node."""
    found = {one["metadata"]["name"]: one["metadata"] for one in api.call("GET", "/api/v1/nodes")["items"]}
    said = {name: metadata.get("annotations", {}).get(ROOM_ANNOTATION) for name, metadata in found.items()}
    return {name: value for name, value in said.items() if value is not None}
