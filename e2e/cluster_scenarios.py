"""The register of what is tried in a cluster, and pods as users create them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.cluster import NODE, RESERVED, Cluster
from e2e.pods import burstable, gu, ngu, pod
from e2e.world import check
from podslice.core.values.cpuset import parse_bits

Json = dict[str, Any]


class ClusterScenario(NamedTuple):
    """`promise` is one sentence; `resources` are what the agent's configuration has otherwise than the shipped one;
    `short` ones are part of the set that CI runs."""

    ident: str
    promise: str
    resources: Json
    short: bool
    run: Callable[[Cluster], None]


CLUSTER: dict[str, ClusterScenario] = {}
Function = Callable[[Cluster], None]


def in_cluster(ident: str, resources: Json | None = None, *, short: bool = False) -> Callable[[Function], Function]:
    """Register a function, whose docstring is the promise."""

    def register(function: Function) -> Function:
        assert ident not in CLUSTER, ident
        CLUSTER[ident] = ClusterScenario(ident, " ".join((function.__doc__ or "").split()), resources or {}, short,
                                         function)  # fmt: skip
        return function

    return register


@in_cluster("X-K01", short=True)
def guaranteed_pod(cluster: Cluster) -> None:
    """A Guaranteed pod that the scheduler placed owns its CPUs, and nobody throttles it."""
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
    """What an init container owned the app container gets again; a sidecar keeps its own."""
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
