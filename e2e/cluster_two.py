"""Two nodes, each with its agent: what one does not take or loses, the other has."""

from __future__ import annotations

import time
from typing import Any

from e2e.cluster import NODE, SECOND, SECOND_ADDRESS, Cluster, container_ids
from e2e.cluster_refusals import REASON, SINGLE, replica_set
from e2e.cluster_scenarios import TWO, in_cluster
from e2e.controlplane import MERGE, ControlPlane
from e2e.pods import gu, pod
from e2e.vm import VirtualMachine
from e2e.world import check

Json = dict[str, Any]
_SETS = "/apis/apps/v1/namespaces/default/replicasets"
_OF_THE_SET = "app=set"


class TwoNodes(Cluster):
    """Itself the first node; `other` is the second."""

    def __init__(self, vm: VirtualMachine, second: VirtualMachine, plane: ControlPlane) -> None:
        super().__init__(vm, plane)
        self.other = Cluster(second, plane, node=SECOND, address=SECOND_ADDRESS)

    def start(self, resources: Json, settings: Json) -> None:
        super().start(resources, settings)
        self.other.begin()

    def nothing_left(self) -> None:
        for node in (NODE, SECOND):
            self.cordon(node, None)
        super().nothing_left()
        self.other.nothing_left()

    def last_words(self) -> str:
        return "\n".join((super().last_words(), SECOND, self.other.last_words()))

    def reaches_the_server(self) -> bool:
        return super().reaches_the_server() and self.other.reaches_the_server()

    def cordon(self, node: str, unschedulable: bool | None) -> None:
        """Whether the scheduler sends pods there, as `kubectl cordon` and `uncordon` say it."""
        self.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable}}, MERGE)

    def running_on(self, node: str) -> Json:
        """The one pod of the set that runs, which is there."""

        def runs() -> list[Json]:
            return [one for one in self.pods(_OF_THE_SET) if container_ids(one) and one["spec"]["nodeName"] == node]

        self.until(f"a pod of the set runs on {node}", lambda: bool(runs()))
        (found,) = runs()
        return found

    def remove_set(self) -> None:
        self.api.call("DELETE", f"{_SETS}/set?propagationPolicy=Foreground")
        self.until("the set is gone", lambda: not self.pods(_OF_THE_SET))


@in_cluster("X-K60", SINGLE, node=TWO)
def refused_here_runs_there(cluster: Cluster) -> None:
    """A pod that one node refuses is made again by its owner, and owns its CPUs on the other; only the first one's
    agent has refused anything."""
    assert isinstance(cluster, TwoNodes)
    cluster.cordon(SECOND, unschedulable=True)
    cluster.run(pod("first", gu("c", 1)))
    cluster.run(pod("second", gu("c", 3)))
    cluster.api.call("POST", _SETS, replica_set("set", pod("set", gu("c", 3))))

    def refused() -> list[Json]:
        return [one for one in cluster.pods(_OF_THE_SET) if one["status"].get("reason") == REASON]

    cluster.until("a pod is refused", lambda: bool(refused()))
    check(refused()[0]["spec"]["nodeName"] == NODE, "another node has refused it")
    cluster.cordon(NODE, unschedulable=True)
    cluster.cordon(SECOND, unschedulable=None)
    found = cluster.running_on(SECOND)
    cluster.other.exclusive(found, "c", 3)
    for one in (cluster, cluster.other):
        one.agree()
    check(not cluster.other.status()["rejected"], "the second agent has refused a pod as well")
    cluster.remove_set()


@in_cluster("X-K61", SINGLE, node=TWO)
def drained_to_the_other(cluster: Cluster) -> None:
    """A node is drained: its pod's owner makes another, which owns as many CPUs on the other node, and the drained one
    owns nothing."""
    assert isinstance(cluster, TwoNodes)
    cluster.cordon(SECOND, unschedulable=True)
    cluster.api.call("POST", _SETS, replica_set("set", pod("set", gu("c", 3))))
    first = cluster.running_on(NODE)
    cluster.exclusive(first, "c", 3)
    cluster.cordon(NODE, unschedulable=True)
    cluster.cordon(SECOND, unschedulable=None)
    name = first["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.call("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)
    cluster.other.exclusive(cluster.running_on(SECOND), "c", 3)
    cluster.until("the drained node owns nothing", lambda: not cluster.owners())
    for one in (cluster, cluster.other):
        one.agree()
    cluster.remove_set()


@in_cluster("X-K62", SINGLE, node=TWO)
def node_without_power(cluster: Cluster) -> None:
    """A node stands still: its pod's owner makes another, which owns as many CPUs on the other node. When the first one
    goes on, what its pod owned is free."""
    assert isinstance(cluster, TwoNodes)
    cluster.cordon(SECOND, unschedulable=True)
    manifest = pod("set", gu("c", 3))
    manifest["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        for what in ("unreachable", "not-ready")
    ]
    cluster.api.call("POST", _SETS, replica_set("set", manifest))
    cluster.exclusive(cluster.running_on(NODE), "c", 3)
    cluster.cordon(SECOND, unschedulable=None)
    with cluster.vm.pause():
        found = cluster.running_on(SECOND)
        cluster.other.exclusive(found, "c", 3)
        cluster.other.agree()
    cluster.vm.call("shell", command=f"date -s @{int(time.time())}")
    cluster.until("the first node is ready again", cluster.node_is_ready)
    cluster.until("it owns nothing", lambda: not cluster.owners())
    for one in (cluster, cluster.other):
        one.agree()
    cluster.remove_set()
