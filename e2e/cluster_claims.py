"""Claims of CPUs beside the real scheduler, claim controller, kubelet and containerd (docs/dra.md)."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.cluster import CONTROL_PLANE, NODE, REPOSITORY, Cluster, container_ids, restarts, uid
from e2e.cluster_scenarios import CLAIMED, in_cluster
from e2e.controlplane import APPLY, StatusError
from e2e.pods import gu, ngu, pod
from e2e.world import check
from podslice.values.cpuset import parse_bits

Json = dict[str, Any]
MANIFEST = REPOSITORY / "deploy/manifests/dra.yaml"
PLANE = CONTROL_PLANE._replace(controllers=(*CONTROL_PLANE.controllers, "resourceclaim-controller"))
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS, SLICES = f"{RESOURCES}/namespaces/default/resourceclaims", f"{RESOURCES}/resourceslices"
TEMPLATES = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
ZONES = (parse_bits("2-3"), parse_bits("6-7"))
"""CPUs for claims of each NUMA node; 1, 4 and 5 are for pods that own CPUs by their requests."""
SETTINGS: Json = {
    "dra": {},
    "policy": {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "PodslicePolicy",
        "spec": {"claims": {"cpus": "2-3,6-7"}},
    },
}


class ClaimedCluster(Cluster):
    """A cluster whose agent is a driver, with the rights that are shipped for that."""

    def install(self, resources: Json, settings: Json) -> None:
        super().install(resources, settings)
        for document in yaml.safe_load_all(MANIFEST.read_text()):
            self.apply(document)

    def apply(self, document: Json) -> None:
        if document["kind"] != "DeviceClass":
            super().apply(document)
            return
        path = f"{RESOURCES}/deviceclasses/{document['metadata']['name']}"
        self.api.call("PATCH", f"{path}?fieldManager=e2e&force=true&fieldValidation=Strict", document, APPLY)

    def begin(self) -> None:
        super().begin()
        self.until("the driver has published what it has", lambda: bool(slices(self)))

    def nothing_left(self) -> None:
        super().nothing_left()
        for path in (CLAIMS, TEMPLATES):
            self.api.call("DELETE", path)
        left = "ls /var/run/cdi /var/lib/podslice/claims 2>/dev/null | grep json || true"
        self.until("no claim has left a file", lambda: not self.vm.call("shell", command=left).strip())


def slices(cluster: Cluster) -> list[Json]:
    """Return the slices that the driver has published."""
    found: list[Json] = cluster.api.call("GET", SLICES)["items"]
    return found


def asking(cpus: int) -> Json:
    """The spec of a claim for so many CPUs of one NUMA node."""
    exactly = {"deviceClassName": "podslice.io", "capacity": {"requests": {"podslice.io/cpu": str(cpus)}}}
    return {"devices": {"requests": [{"name": "cpus", "exactly": exactly}]}}


def claim(cluster: Cluster, name: str, cpus: int) -> None:
    cluster.api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": asking(cpus)})


def claiming(manifest: Json, claim: str, *, template: bool = False) -> Json:
    """The pod, all of whose containers have the claim."""
    kind = "resourceClaimTemplateName" if template else "resourceClaimName"
    manifest["spec"]["resourceClaims"] = [{"name": "cpus", kind: claim}]
    for container in manifest["spec"]["containers"]:
        container["resources"] = {**container["resources"], "claims": [{"name": "cpus"}]}
    return manifest


def check_owned(cluster: Cluster, found: Json, count: int) -> int:
    """Check that the container runs alone on `count` CPUs of one zone of claims, and return them."""
    cpus = cluster.cpus(found, "c")
    check(cpus.bit_count() == count, f"the container runs on {cpus:b}, its claim is for {count}")
    check(any(cpus & ~zone == 0 for zone in ZONES), f"{cpus:b} are not CPUs for claims of one NUMA node")
    check(cluster.cgroup(found, "c")["cpu.max"].startswith("max "), "the container is throttled")
    return cpus


@in_cluster("X-K90", node=CLAIMED, settings=SETTINGS)
def pods_with_claims(cluster: Cluster) -> None:
    """Pods run on exactly the CPUs of their claims; one for which there is no room waits until another ends."""
    for name in ("a", "b", "late"):
        claim(cluster, name, 2)
    first = cluster.run(claiming(pod("a", ngu("c")), "a"))
    second = cluster.run(claiming(pod("b", ngu("c")), "b"))
    check(first["spec"]["nodeName"] == NODE, "the pod is on another node")
    mine, other = check_owned(cluster, first, 2), check_owned(cluster, second, 2)
    check(not mine & other, "two claims have the same CPUs")
    shared = cluster.run(pod("shared", ngu("c")))
    check(not cluster.cpus(shared, "c") & (mine | other), "a pod without claim runs on CPUs of one")
    cluster.agree()
    cluster.create(claiming(pod("late", ngu("c")), "late"))
    waits = "cannot allocate all claims"
    cluster.until(
        "the scheduler says that nothing is left", lambda: any(waits in one for one in cluster.events("late"))
    )
    cluster.delete("a", grace=1)
    check(check_owned(cluster, cluster.running("late"), 2) == mine, "the claim that waited has not what became free")
    cluster.agree()


@in_cluster("X-K91", node=CLAIMED, settings=SETTINGS)
def kubelet_restarted_under_claims(cluster: Cluster) -> None:
    """A kubelet that starts deletes all slices of its node: they come back, no container moves, a container that ends
    starts again on its claim's CPUs, and the claim is given back in the end."""
    claim(cluster, "a", 2)
    before = check_owned(cluster, cluster.run(claiming(pod("a", ngu("c")), "a")), 2)
    had = {one["metadata"]["uid"] for one in slices(cluster)}
    cluster.restart_kubelet()
    cluster.until("other slices are there", lambda: bool({one["metadata"]["uid"] for one in slices(cluster)} - had))
    check(check_owned(cluster, cluster.get("a"), 2) == before, "the container moved")
    pid = cluster.cgroup(cluster.get("a"), "c")["processes"][0]["pid"]
    count = restarts(cluster.get("a"))
    cluster.vm.call("shell", command=f"kill -9 {pid}")
    cluster.pod_until("a", "was started again", lambda one: restarts(one) > count and bool(container_ids(one)))
    check(check_owned(cluster, cluster.running("a"), 2) == before, "the next container has other CPUs")
    claim(cluster, "b", 2)
    after = check_owned(cluster, cluster.run(claiming(pod("b", ngu("c")), "b")), 2)
    check(not after & before, "two claims have the same CPUs")
    cluster.agree()


@in_cluster("X-K92", node=CLAIMED, settings=SETTINGS)
def agent_restarted_under_claims(cluster: Cluster) -> None:
    """The agent is killed: no container moves, a pod that ends meanwhile waits for it to take its claim back, and the
    next claim is prepared when it is there again."""
    claim(cluster, "a", 2)
    claim(cluster, "b", 2)
    first = check_owned(cluster, cluster.run(claiming(pod("a", ngu("c")), "a")), 2)
    second = check_owned(cluster, cluster.run(claiming(pod("b", ngu("c")), "b")), 2)
    cluster.kill("agent")
    cluster.api.call("DELETE", "/api/v1/namespaces/default/pods/b?gracePeriodSeconds=1")
    check(check_owned(cluster, cluster.get("a"), 2) == first, "the container moved")
    cluster.begin_agent()
    cluster.wait_for_agent()
    cluster.until("the pod that ended is gone", lambda: not cluster.exists("b"))
    check(check_owned(cluster, cluster.get("a"), 2) == first, "the container moved")
    claim(cluster, "c", 2)
    check(
        check_owned(cluster, cluster.run(claiming(pod("c", ngu("c")), "c")), 2) == second,
        "the CPUs were not given back",
    )
    cluster.agree()


@in_cluster("X-K93", node=CLAIMED, settings=SETTINGS)
def claim_made_again(cluster: Cluster) -> None:
    """Pod and claim are deleted by force and made again under the same names: the new pod runs on the new claim's CPUs,
    and the old claim's come back."""
    claim(cluster, "a", 2)
    old = cluster.run(claiming(pod("a", ngu("c")), "a"))
    check_owned(cluster, old, 2)
    cluster.delete("a", grace=0)
    cluster.api.call("PATCH", f"{CLAIMS}/a", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    try:
        cluster.api.call("DELETE", f"{CLAIMS}/a")
    except StatusError as error:
        check(error.code == 404, str(error))
    claim(cluster, "a", 2)
    new = cluster.run(claiming(pod("a", ngu("c")), "a"))
    check(uid(new) != uid(old), "it is the same pod")
    check_owned(cluster, new, 2)
    cluster.until("only the new claim holds CPUs", lambda: len(cluster.owners()) == 1)
    cluster.agree()


@in_cluster("X-K94", node=CLAIMED, settings=SETTINGS)
def claims_beside_exclusive_cpus(cluster: Cluster) -> None:
    """A Guaranteed pod owns CPUs that are for no claim; one that mirrors its claim in its requests has the claim's CPUs
    and no others."""
    body = {"metadata": {"name": "two"}, "spec": {"spec": asking(2)}}
    cluster.api.call("POST", TEMPLATES, body)
    owner = cluster.run(pod("owner", gu("c", 2)))
    by_requests = cluster.exclusive(owner, "c", 2)
    mirrored = cluster.run(claiming(pod("mirrored", gu("c", 2)), "two", template=True))
    by_claim = check_owned(cluster, mirrored, 2)
    check(not by_requests & (by_claim | ZONES[0] | ZONES[1]), f"the pod without claim owns {by_requests:b}")
    check(len(cluster.owners()) == 2, f"owners are {cluster.owners()}")
    cluster.agree()
