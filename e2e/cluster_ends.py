"""Pods that end otherwise than by being deleted, and pods that are changed while they run."""

from __future__ import annotations

from e2e.cluster import NODE, Cluster, complete, container_ids, restarts
from e2e.cluster_refusals import replica_set
from e2e.cluster_scenarios import in_cluster
from e2e.controlplane import MERGE, STRATEGIC
from e2e.pods import gu, pod
from e2e.world import check


@in_cluster("X-K31")
def drained_node(cluster: Cluster) -> None:
    """A drained node owns nothing; uncordoned, it takes the pods that their owners made instead."""
    path = "/apis/apps/v1/namespaces/default/replicasets"
    cluster.api.call("POST", path, replica_set("set", pod("set", gu("c", 2))))
    cluster.until("the pod runs", lambda: any(container_ids(one) for one in cluster.pods()))
    (first,) = cluster.pods()
    cluster.exclusive(first, "c", 2)
    node = f"/api/v1/nodes/{NODE}"
    cluster.api.call("PATCH", node, {"spec": {"unschedulable": True}}, MERGE)
    name = first["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.call("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)
    cluster.until("the pod is gone", lambda: not cluster.exists(name))
    cluster.until("no CPU is owned", lambda: not cluster.owners())
    cluster.agree()
    cluster.api.call("PATCH", node, {"spec": {"unschedulable": None}}, MERGE)
    cluster.until("the new pod runs", lambda: any(container_ids(one) for one in cluster.pods()))
    (second,) = cluster.pods()
    cluster.exclusive(second, "c", 2)
    cluster.agree()
    cluster.api.call("DELETE", f"{path}/set?propagationPolicy=Foreground")
    cluster.until("the set is gone", lambda: not cluster.pods())


@in_cluster("X-K32")
def killed_for_memory(cluster: Cluster) -> None:
    """A container that the kernel kills for its memory comes back on the CPUs it owned."""
    eats = "sleep 6; [ -e /kept/once ] && while :; do sleep 1; done; echo > /kept/once; x=a; while :; do x=$x$x; done"
    greedy = {
        **gu("c", 2), "command": ["/bin/sh", "-c", eats],
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
    }  # fmt: skip
    manifest = pod("greedy", greedy)
    manifest["spec"]["volumes"] = [{"name": "kept", "emptyDir": {}}]
    owned = cluster.exclusive(cluster.run(manifest), "c", 2)
    found = cluster.pod_until("greedy", "runs again", lambda one: restarts(one) == 1 and bool(container_ids(one)))
    (status,) = found["status"]["containerStatuses"]
    reason = status["lastState"]["terminated"]["reason"]
    check(reason == "OOMKilled", f"the container ended with {reason}")
    check(cluster.exclusive(found, "c", 2) == owned, "the container came back on other CPUs")
    cluster.agree()


@in_cluster("X-K33")
def resized_in_place(cluster: Cluster) -> None:
    """A resize of CPUs that a container owns is not applied: an event and the status say so, and a limit holds."""
    owned = cluster.exclusive(cluster.run(pod("grows", gu("c", 2))), "c", 2)
    amounts = {"cpu": "3", "memory": "32Mi"}
    patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}}
    cluster.api.call("PATCH", "/api/v1/namespaces/default/pods/grows/resize", patch, STRATEGIC)
    said = "PodsliceResizeNotApplied"
    cluster.until("the event is there", lambda: any(one.startswith(said) for one in cluster.events("grows")))
    found = cluster.get("grows")
    check(cluster.cpus(found, "c") == owned, "the container moved")
    quota = cluster.cgroup(found, "c")["cpu.max"]
    check(quota == "300000 100000", f"cpu.max is {quota}")
    (listed,) = [one for one in cluster.status()["pods"] if one["name"] == "grows"]
    check(bool(listed["findings"]), "the status finds nothing")


@in_cluster("X-K34")
def deleted_without_grace(cluster: Cluster) -> None:
    """The CPUs of a pod deleted by force go to the next one once the old processes have ended."""
    slow = {**gu("c", 4), "command": ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}
    first = cluster.run(pod("first", slow))
    cluster.exclusive(first, "c", 4)
    cluster.api.call(
        "DELETE", "/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0&propagationPolicy=Background"
    )
    cluster.create(complete(pod("second", gu("c", 4))))
    cluster.exclusive(cluster.running("second"), "c", 4)
    cluster.agree()


@in_cluster("X-K35")
def evicted_by_the_kubelet(cluster: Cluster) -> None:
    """The CPUs of a pod that the kubelet evicts go to the next one, although the evicted pod's object is still
    there."""
    amounts = {"cpu": "4", "memory": "32Mi", "ephemeral-storage": "1Mi"}
    writes = "dd if=/dev/zero of=/much bs=1M count=8; while :; do sleep 1; done"
    full = {"name": "c", "resources": {"requests": amounts, "limits": amounts}, "command": ["/bin/sh", "-c", writes]}
    cluster.create(pod("full", full))
    found = cluster.pod_until("full", "is evicted", lambda one: one["status"]["phase"] == "Failed")
    check(found["status"]["reason"] == "Evicted", f"the pod failed with {found['status']['reason']}")
    cluster.until("no CPU is owned", lambda: not cluster.owners())
    cluster.exclusive(cluster.run(pod("next", gu("c", 4))), "c", 4)
    cluster.agree()
    check(cluster.exists("full"), "the evicted pod's object is gone")
