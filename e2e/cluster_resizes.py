"""Pods that are resized in place: the kubelet grants, the agent's policy says how their CPUs follow."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, container_ids
from e2e.cluster_scenarios import in_cluster
from e2e.controlplane import STRATEGIC
from e2e.pods import gu, ngu, pod
from e2e.world import check

Json = dict[str, Any]
ELASTIC: Json = {
    "policy": {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "PodslicePolicy",
        "spec": {"resize": {"exclusive": True}},
    }
}
_WATCH = Path(__file__).parent / "clients/watch_cpus.py"
_BUSY = "for i in 1 2; do (while :; do :; done) & done; wait"
"""With three pods as many threads as the emulated machine still goes on beside."""
_LOOKS = 20


def resize(cluster: Cluster, name: str, cpu: int, container: str = "c") -> None:
    """Send what `kubectl patch --subresource resize` sends."""
    amounts = {"cpu": str(cpu), "memory": "32Mi"}
    patch = {"spec": {"containers": [{"name": container, "resources": {"requests": amounts, "limits": amounts}}]}}
    cluster.api.call("PATCH", f"/api/v1/namespaces/default/pods/{name}/resize", patch, STRATEGIC)


def resize_ends(cluster: Cluster, name: str, cpu: int) -> Json:
    """The pod, of which the kubelet says that it has so many CPUs and nothing is left to do."""

    def ended(found: Json) -> bool:
        (status,) = found["status"]["containerStatuses"]
        has = status.get("allocatedResources", {}).get("cpu")
        waits = [one["type"] for one in found["status"].get("conditions", []) if one["type"].startswith("PodResize")]
        return has == str(cpu) and not waits

    return cluster.pod_until(name, f"has {cpu} CPUs", ended)


def owns(cluster: Cluster, found: Json, count: int) -> int:
    """The container has so many CPUs of its own, soon, and no quota."""
    cluster.until(f"it runs on {count} CPUs", lambda: cluster.cpus(found, "c").bit_count() == count)
    cluster.agree()
    return cluster.exclusive(found, "c", count)


@in_cluster("X-K55", settings=ELASTIC)
def grows_and_shrinks(cluster: Cluster) -> None:
    """Under a busy workload a pod is resized from one CPU to four and to two: it gets and gives its CPUs, and no other
    thread is ever seen on them."""
    busy = {"command": ["/bin/sh", "-c", _BUSY]}
    others = cluster.run_all(*(pod(name, {**ngu("c"), **busy}) for name in ("s1", "s2")))
    first = cluster.run(pod("grows", {**gu("c", 1), **busy}))
    one = cluster.exclusive(first, "c", 1)
    cluster.vm.call("write", path="/run/watch_cpus.py", text=_WATCH.read_text())
    idents = [container_ids(found)["c"] for found in (first, *others)]
    words = ["python3.13", "/run/watch_cpus.py", "600", *idents]
    watching = f"exec {shlex.join(words)} >/run/watched.json 2>/run/watched.err"
    cluster.vm.call("start", name="watch", command=["sh", "-c", watching])
    said_so = "cat /run/watched.err 2>/dev/null || true"
    cluster.until("the watch has begun", lambda: "begun" in cluster.vm.call("shell", command=said_so))
    resize(cluster, "grows", 4)
    four = owns(cluster, resize_ends(cluster, "grows", 4), 4)
    check(four & one == one, f"{one:b} became {four:b}")
    resize(cluster, "grows", 2)
    two = owns(cluster, resize_ends(cluster, "grows", 2), 2)
    check(four & two == two and two & one == one, f"{one:b}, {four:b} became {two:b}")
    cluster.kill("watch", 15)
    seen: Json = json.loads(cluster.vm.call("read", path="/run/watched.json"))
    check(seen["looks"] >= _LOOKS, f"only {seen['looks']} looks")
    check([len(cpus) for cpus in seen["sets"]] == [1, 4, 2], f"the owner's sets were {seen['sets']}")
    check(not seen["wrong"], "; ".join(seen["wrong"]))
    cluster.until(
        "both resizes are reported",
        lambda: (
            sum(said.count("->") for said in cluster.events("grows") if said.startswith("PodsliceResizeApplied")) == 2
        ),
    )


@in_cluster("X-K56", {"topologyManagerPolicy": "single-numa-node"}, settings=ELASTIC)
def waits_for_room(cluster: Cluster) -> None:
    """A resize without room on its NUMA node is refused to the runtime, the kubelet and an event say why; when another
    pod leaves, the container gets the CPUs, and the resize ends."""
    first = cluster.run(pod("waits", gu("c", 1)))
    one = cluster.exclusive(first, "c", 1)
    cluster.run(pod("beside", gu("c", 2)))
    resize(cluster, "waits", 3)
    cluster.until(
        "the event is there", lambda: any(text.startswith("PodsliceResizeDeferred") for text in cluster.events("waits"))
    )
    check(cluster.cpus(cluster.get("waits"), "c") == one, "the container moved")
    (listed,) = [found for found in cluster.status()["pods"] if found["name"] == "waits"]
    check(any("deferred" in text for text in listed["findings"]), f"the status finds {listed['findings']}")
    cluster.delete("beside", grace=1)
    three = owns(cluster, cluster.get("waits"), 3)
    check(three & one == one, f"{one:b} became {three:b}")
    resize_ends(cluster, "waits", 3)


@in_cluster("X-K57", settings=ELASTIC)
def agent_killed_while_resizing(cluster: Cluster) -> None:
    """The agent is killed as soon as a resize is asked for: started again, the pod has the old CPUs or the new ones,
    and in the end the new ones."""
    first = cluster.run(pod("killed", gu("c", 2)))
    owned = cluster.exclusive(first, "c", 2)
    resize(cluster, "killed", 4)
    cluster.kill("agent")
    found = cluster.cpus(cluster.get("killed"), "c")
    check(found & owned == owned and found.bit_count() in (2, 4), f"{owned:b} became {found:b}")
    cluster.begin_agent()
    cluster.wait_for_agent()
    four = owns(cluster, cluster.get("killed"), 4)
    check(four & owned == owned, f"{owned:b} became {four:b}")
    resize_ends(cluster, "killed", 4)
