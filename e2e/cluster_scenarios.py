"""The register of what is tried in a cluster, and pods as users create them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.cluster import NODE, RESERVED, Cluster, complete, container_ids, is_mirror, restarts
from e2e.controlplane import STRATEGIC
from e2e.pods import burstable, gu, ngu, pod
from e2e.world import check
from podslice.values.cpuset import parse_bits

Json = dict[str, Any]
PROGRAM, DAEMON_SET, SYSTEMD, REBOOTS, TWO = "program", "daemon set", "systemd", "reboots", "two"
SYSTEMD_DAEMON_SET, SCHEDULED, REACHED, CLAIMED = "daemon set under systemd", "scheduled", "reached", "claimed"


class ClusterScenario(NamedTuple):
    """`promise` is one sentence; `resources` and `settings` are the agent's fields that differ from in the shipped
    configuration; `short` ones are part of the set that CI runs; `node` is how the node is set up: the agent as a
    PROGRAM, as its DAEMON_SET in its image, as a program under SYSTEMD as init and cgroup driver, as both
    (SYSTEMD_DAEMON_SET), on one that REBOOTS, as a program on each of TWO, on one with our scheduler (SCHEDULED), as
    a daemon set on one whose kubelet the API server reaches (REACHED), or as a driver for claims (CLAIMED)."""

    ident: str
    promise: str
    resources: Json
    short: bool
    node: str
    run: Callable[[Cluster], None]
    settings: Json


CLUSTER: dict[str, ClusterScenario] = {}
Function = Callable[[Cluster], None]


def in_cluster(
    ident: str, resources: Json | None = None, *, short: bool = False, node: str = PROGRAM, settings: Json | None = None
) -> Callable[[Function], Function]:
    """Register a function, whose docstring is the promise."""

    def register(function: Function) -> Function:
        assert ident not in CLUSTER, ident
        promise = " ".join((function.__doc__ or "").split())
        CLUSTER[ident] = ClusterScenario(ident, promise, resources or {}, short, node, function, settings or {})
        return function

    return register


@in_cluster("X-K01", short=True)
def guaranteed_pod(cluster: Cluster) -> None:
    """A Guaranteed pod that the scheduler placed owns its CPUs and is not throttled."""
    shared = cluster.run(pod("shared", ngu("c")))
    owner = cluster.run(pod("owner", gu("c", 2)))
    check(owner["spec"]["nodeName"] == NODE, "the pod is on another node")
    owned = cluster.exclusive(owner, "c", 2)
    cluster.agree()
    check(not cluster.cpus(shared, "c") & owned, "the other pod runs on the owned CPUs")


@in_cluster("X-K02", short=True)
def pod_level_resources(cluster: Cluster) -> None:
    """Of a pod's own four CPUs one container owns two, the others share the rest within the pod's quota."""
    budget = cluster.run(pod("budget", gu("own", 2), ngu("a"), ngu("b"), budget=(4, "128Mi")))
    owned = cluster.cpus(budget, "own")
    rest = cluster.cpus(budget, "a")
    check(owned.bit_count() == rest.bit_count() == 2, f"own has {owned:b}, a has {rest:b}")
    check(not owned & rest, "own and a overlap")
    check(cluster.cpus(budget, "b") == rest, "a and b are not on the same CPUs")
    check(cluster.cgroup(budget, "own")["cpu.max"] == "max 100000", "own is throttled")
    quota = cluster.cgroup(budget)["cpu.max"]
    check(quota == "400000 100000", f"cpu.max of the pod is {quota}")
    cluster.agree()


@in_cluster("X-K03")
def sidecar_and_init_containers(cluster: Cluster) -> None:
    """The app container gets the CPUs of an init container again; a sidecar keeps its own."""
    init = {**gu("first", 2), "command": ["/bin/sh", "-c", "sleep 3"]}
    manifest = pod("lives", gu("app", 2), init=(init, gu("side", 1, sidecar=True)))
    cluster.create(manifest)
    first = cluster.pod_until(
        "lives", "runs its init container",
        lambda found: any("running" in one["state"] for one in found["status"].get("initContainerStatuses", [])),
    )  # fmt: skip
    began = {one["name"] for one in first["status"]["initContainerStatuses"] if "running" in one["state"]}
    check(began == {"first"}, f"running first: {began}")
    early = cluster.exclusive(first, "first", 2)
    running = cluster.running("lives")
    app, side = cluster.exclusive(running, "app", 2), cluster.exclusive(running, "side", 1)
    check(not app & side, "app and side overlap")
    check(early & (app | side) == early, "CPUs of the init container were not used again")
    cluster.agree()


@in_cluster("X-K04")
def burstable_pod(cluster: Cluster) -> None:
    """A Burstable pod shares the node's CPUs and keeps the quota that its limit asks for."""
    owner = cluster.run(pod("owner", gu("c", 2)))
    bursts = cluster.run(pod("bursts", burstable("c", "500m", "1")))
    cpus = cluster.cpus(bursts, "c")
    check(not cpus & cluster.exclusive(owner, "c", 2), "the Burstable pod runs on owned CPUs")
    check(cpus == parse_bits(cluster.status()["pools"]["shared"]) and bool(cpus & RESERVED), "not on the shared pool")
    for what in ("c", ""):
        quota = cluster.cgroup(bursts, what)["cpu.max"]
        check(quota == "100000 100000", f"cpu.max of {what or 'the pod'} is {quota}")
    cluster.agree()


@in_cluster("X-K05")
def static_pod(cluster: Cluster) -> None:
    """A static pod owns CPUs, its mirror at the API server says what it asks for, and without its file it is gone."""
    path, name = "/etc/kubernetes/manifests/static.json", f"static-{NODE}"
    manifest = complete(pod("static", gu("c", 2)))
    cluster.vm.call("write", path=path, text=json.dumps(manifest))
    cluster.until("the mirror is there", lambda: cluster.exists(name))
    mirror = cluster.running(name)
    check(is_mirror(mirror), "the pod is not a mirror")
    cluster.exclusive(mirror, "c", 2)
    cluster.agree()
    cluster.vm.call("shell", command=f"rm {path}")
    cluster.until("the mirror is gone", lambda: not cluster.exists(name))


@in_cluster("X-K06")
def ephemeral_container(cluster: Cluster) -> None:
    """An ephemeral container shares the node's CPUs and takes none of those that its pod owns."""
    owner = cluster.run(pod("owner", gu("c", 2)))
    owned = cluster.exclusive(owner, "c", 2)
    debug = {"name": "debug", "image": "localhost/sleep:1", "imagePullPolicy": "Never"}
    path = "/api/v1/namespaces/default/pods/owner/ephemeralcontainers"
    cluster.api.call("PATCH", path, {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC)
    found = cluster.pod_until("owner", "runs the ephemeral container", lambda one: "debug" in container_ids(one))
    cluster.agree()
    check(not cluster.cpus(found, "debug") & owned, "the ephemeral container runs on owned CPUs")
    check(cluster.exclusive(found, "c", 2) == owned, "the owner moved")


@in_cluster("X-K07")
def crash_loop(cluster: Cluster) -> None:
    """A container that crashes again and again keeps its CPUs, also while nothing of it runs."""
    crashing = {**gu("c", 2), "command": ["/bin/sh", "-c", "sleep 4; exit 1"]}
    first = cluster.run(pod("crash", crashing))
    owned = cluster.exclusive(first, "c", 2)
    cluster.pod_until("crash", "waits after a crash", lambda one: restarts(one) >= 1 and not container_ids(one))
    held = parse_bits(cluster.status()["pools"]["exclusive"])
    check(held & owned == owned, f"the CPUs in use are {held:b}, the pod had {owned:b}")
    others = cluster.run(pod("other", gu("c", 2)))
    check(not cluster.exclusive(others, "c", 2) & owned, "another pod got the CPUs")
    again = cluster.pod_until("crash", "runs again", lambda one: restarts(one) >= 2 and bool(container_ids(one)))
    check(cluster.exclusive(again, "c", 2) == owned, "the container came back on other CPUs")


@in_cluster("X-K08", short=True)
def finished_job(cluster: Cluster) -> None:
    """The CPUs of a Job's pod are free when the pod has finished, although its object is still there."""
    worker = {**gu("c", 2), "command": ["/bin/sh", "-c", "sleep 5"]}
    template = {"spec": {**complete(pod("job", worker))["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "job"}, "spec": {"template": template}}
    cluster.api.call("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    cluster.until("the Job's pod runs", lambda: any(container_ids(one) for one in cluster.pods()))
    (running,) = cluster.pods("job-name=job")
    cluster.exclusive(running, "c", 2)
    name = running["metadata"]["name"]
    cluster.pod_until(name, "has finished", lambda one: one["status"]["phase"] == "Succeeded")
    cluster.until("no CPU is owned", lambda: not cluster.owners())
    check(cluster.exists(name), "the pod is gone")
    cluster.api.call("DELETE", "/apis/batch/v1/namespaces/default/jobs/job?propagationPolicy=Background")
