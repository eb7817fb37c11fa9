"""A cluster for its page: nodes in a few hundred different states, pods that wait, and a page that is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from e2e.hollow_nodes import node_rules

from podslice import Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.page.app import AT_ONCE, ClusterPage, on_loop
from podslice.cluster.page.queries import ClusterQueries
from podslice.cluster.placements import PlacementEvents, Placements
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.service.clusterobjects import read_node
from podslice.service.http.page_server import PageServer
from tests.cluster.bench import SMALL, node_object, pod_object, scheduled_pod
from tests.cluster.fake_api import Json

LARGE = "pack:2 numa:2(memory=64GiB) core:12 pu:2"
"""96 CPUs on four NUMA nodes; 95 can be given away."""


class StillReplica(NamedTuple):
    """A replica as far as the page looks at one."""

    rules: NodeRules
    state: NodeState
    proven: bool = True
    observed: bool = False

    @property
    def uids(self) -> list[str]:
        """The pods on the node."""
        return list(self.state.pods)

    def has(self, uid: str) -> bool:
        """True for a pod that is on the node."""
        return uid in self.state.pods


def guaranteed_pod(name: str, cpus: int) -> Pod:
    """A pod of that many CPUs."""
    return pod_from_dict(pod_object(name, str(cpus)))


class PageCluster:
    """`placing` knows the nodes; `fill` puts pods on one, `wait` adds one that waits. Its clock is the test's."""

    def __init__(self, machine: str = SMALL, *, unix: float = 1_700_000_000.0) -> None:
        self.like = node_rules(from_synthetic(machine))
        self.now = 100.0
        self.placing = Placements(
            ClusterModel(ModelLimits(best=1)),
            PlacementEvents(),
            schedulers=frozenset({"podslice"}),
            clock=lambda: self.now,
        )
        self.queries = ClusterQueries(self.placing, "boot", clock=lambda: self.now, now=lambda: unix + self.now)

    def node(
        self, name: str, *cpus: int, state: NodeState | None = None, like: Node | None = None, **spec: Any
    ) -> None:
        """A node with pods of so many CPUs, or in a state; again, to replace it. `like`: one of other rules."""
        like = like or self.like
        if state is None:
            node = Node.of(like.rules, like.state)
            for number, count in enumerate(cpus):
                assert node.admit(guaranteed_pod(f"{name}-{number}", count)).admitted
            state = node.state
        self.placing.node_changed(None, read_node(json.dumps(node_object(name, **spec)).encode()))
        self.placing.replicas[name] = StillReplica(like.rules, state)  # type: ignore[assignment]
        self.placing.model.add_node(name, like.rules, state)

    def wait(self, name: str, cpus: int, **spec: Any) -> Json:
        """A pod that waits."""
        document = pod_object(name, str(cpus), **spec)
        document["metadata"]["creationTimestamp"] = "2026-11-22T10:00:00Z"
        self.placing.pod_changed(None, scheduled_pod(document))
        return document

    def runs(self, name: str, node: str, priority: int = 0) -> None:
        """The API server has the pod that is on the node."""
        self.placing.pods[f"uid-{name}"] = scheduled_pod(pod_object(name, "1", node, priority=priority))


def crowd(nodes: int, states: int, seed: int = 1) -> PageCluster:
    """Machines of 96 CPUs, each in one of so many states."""
    cluster, r = PageCluster(LARGE), Random(seed)
    made = []
    for number in range(states):
        node, fill = Node.of(cluster.like.rules, cluster.like.state), r.uniform(0.1, 0.95)
        while len(node.assignable_cpus) > 95 * (1 - fill):
            name = f"w{number}-{len(node.pods)}"
            if not node.admit(guaranteed_pod(name, r.choice([1, 2, 2, 4, 4, 6, 8, 12]))).admitted:
                break
        made.append(node.state)
    for number in range(nodes):
        cluster.node(f"node-{number:05}", state=made[number % states], unschedulable=number % 997 == 3)
        if number % 499 == 7:
            cluster.placing.model.confirm_node(f"node-{number:05}", confirmed=False)
    return cluster


class ServedCluster(NamedTuple):
    """The page of a cluster, and its event loop."""

    url: str
    page: ClusterPage
    loop: asyncio.AbstractEventLoop


@contextlib.contextmanager
def serve(
    cluster: PageCluster,
    *,
    token: Callable[[], str] = str,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[ServedCluster]:
    """A page until the end."""
    loop = asyncio.new_event_loop()
    turning = threading.Thread(target=loop.run_forever)
    turning.start()
    page = ClusterPage(cluster.queries, on_loop(loop), token=token)
    with PageServer(host, 0, page, tls=tls, at_once=AT_ONCE) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield ServedCluster(server.url, page, loop)
        finally:
            server.shutdown()
            serving.join()
            loop.call_soon_threadsafe(loop.stop)
            turning.join()
            loop.close()
