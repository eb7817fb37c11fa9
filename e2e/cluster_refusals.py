"""Pods the node does not take, in a cluster: the kubelet beside the agent would have taken them."""

from __future__ import annotations

from typing import Any

from e2e.cluster import Cluster, brief, complete, container_ids, restarts
from e2e.cluster_scenarios import in_cluster
from e2e.pods import gu, pod
from e2e.world import check

Json = dict[str, Any]
SINGLE: Json = {"topologyManagerPolicy": "single-numa-node"}
REASON = "TopologyAffinityError"
MESSAGE = "Pod was rejected: Resources cannot be allocated with Topology locality"
"""A kubelet's own words; of the node's two NUMA nodes one has four CPUs, the other three that are not reserved."""
KUBELETS_REASON = "OutOfcpu"
_NEVER_WAS = "ContainerStatusUnknown"
"""What a kubelet says of the containers of a pod that was Failed before they were made."""
_MANY = 30


def replica_set(name: str, manifest: Json) -> Json:
    """One pod, made again whenever there is none."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": complete(manifest)["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def refused_for_good(cluster: Cluster, name: str) -> None:
    """The pod ends as a kubelet would have ended it, and stays so. For a moment a kubelet shows it without a reason:
    the status it writes when it begins to tear the pod down has none."""
    found = cluster.pod_until(name, "is refused for good", _for_good)
    check(_by_agent(found) and found["status"].get("message") == MESSAGE, f"the pod is {brief(found)}")
    said = {one["type"]: one.get("reason") for one in found["status"]["conditions"] if one["status"] == "True"}
    check(said.get("podslice.io/Refused") == REASON, f"the pod's conditions are {said}")
    check(not container_ids(found), "a container of the refused pod runs")


def _for_good(found: Json) -> bool:
    """The kubelet has reported the end of each container, after which it changes nothing by itself."""
    status = found["status"]
    ends = [one["state"].get("terminated", {}).get("reason") for one in status.get("containerStatuses", [])]
    return bool(status["phase"] == "Failed" and ends and all(end == _NEVER_WAS for end in ends))


@in_cluster("X-K10", SINGLE)
def refused_pod(cluster: Cluster) -> None:
    """A pod that does not fit is Failed with a kubelet's reason and message; an event says why and what would help."""
    cluster.create(pod("wide", gu("c", 5)))
    refused_for_good(cluster, "wide")
    cluster.until("the event is there", lambda: any(one.startswith(REASON) for one in cluster.events("wide")))
    listed = [one for one in cluster.status()["rejected"] if one["name"] == "wide"]
    check(len(listed) == 1 and listed[0]["reason"] == REASON, f"the status lists {listed}")
    cluster.delete("wide")
    fits = cluster.run(pod("narrow", gu("c", 4)))
    cluster.exclusive(fits, "c", 4)
    cluster.agree()


@in_cluster("X-K11", SINGLE)
def owner_replaces_it(cluster: Cluster) -> None:
    """The owner of a refused pod makes another, which runs once there is room for it."""
    cluster.run(pod("first", gu("c", 1)))
    cluster.run(pod("second", gu("c", 3)))
    path = "/apis/apps/v1/namespaces/default/replicasets"
    cluster.api.call("POST", path, replica_set("set", pod("set", gu("c", 3))))
    wanted = "app=set"
    cluster.until("two pods were refused", lambda: len([p for p in cluster.pods(wanted) if _by_agent(p)]) >= 2)
    for found in cluster.pods(wanted):
        if _has_failed(found) and found["status"].get("reason") != KUBELETS_REASON:
            refused_for_good(cluster, found["metadata"]["name"])
    cluster.delete("first", "second", grace=1)
    cluster.until("a pod of the set runs", lambda: any(container_ids(one) for one in cluster.pods(wanted)))
    (running,) = [one for one in cluster.pods(wanted) if container_ids(one)]
    cluster.exclusive(running, "c", 3)
    cluster.agree()
    cluster.api.call("DELETE", f"{path}/set?propagationPolicy=Foreground")
    cluster.until("the set is gone", lambda: not cluster.pods(wanted))


def _has_failed(found: Json) -> bool:
    return bool(found["status"]["phase"] == "Failed")


def _by_agent(found: Json) -> bool:
    """Others the kubelet refuses by itself: it counts a Failed pod until it has torn it down."""
    return _has_failed(found) and found["status"].get("reason") == REASON


@in_cluster("X-K12", SINGLE)
def refusals_leave_nothing(cluster: Cluster) -> None:
    """Thirty refused pods leave no process on the node, and containerd starts again."""
    cluster.run(pod("stays", gu("c", 2)))
    before = cluster.processes()
    for number in range(_MANY):
        cluster.create(pod(f"wide-{number}", gu("c", 5)))
    names = [f"wide-{number}" for number in range(_MANY)]
    cluster.until(
        "all are refused", lambda: all(_has_failed(one) for one in cluster.pods() if one["metadata"]["name"] in names)
    )
    cluster.until("no process is left", lambda: cluster.processes() == before)
    cluster.delete(*names, grace=0)
    owned = cluster.exclusive(cluster.get("stays"), "c", 2)
    cluster.kill("containerd", 15)
    cluster.start_containerd()
    cluster.wait_for_agent()
    cluster.run(pod("later", gu("c", 2)))
    check(cluster.exclusive(cluster.get("stays"), "c", 2) == owned, "the pod that stayed has moved")
    cluster.agree()


@in_cluster("X-K13", SINGLE)
def replaced_while_terminating(cluster: Cluster) -> None:
    """A pod that needs the CPUs of one that terminates waits for them and is not refused."""
    slow = {**gu("c", 3), "command": ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}
    cluster.run(pod("filler", gu("c", 1)))
    former = cluster.run(pod("former", slow))
    owned = cluster.exclusive(former, "c", 3)
    cluster.api.call("DELETE", "/api/v1/namespaces/default/pods/former?gracePeriodSeconds=15")
    cluster.create(pod("next", gu("c", 3)))
    found = cluster.running("next")
    check(not cluster.exists("former"), "both run at the same time")
    check(cluster.exclusive(found, "c", 3) == owned, "the pod has other CPUs")
    check(restarts(found) == 0, "the pod's container was restarted")
    cluster.agree()
