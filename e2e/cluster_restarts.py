"""Programs of the node are restarted under pods that run."""

from __future__ import annotations

import itertools
from typing import Any

from e2e.cluster import Cluster, container_ids
from e2e.cluster_scenarios import CLUSTER, PROGRAM, ClusterScenario, in_cluster
from e2e.pods import burstable, gu, ngu, pod
from e2e.world import CheckError, check

Json = dict[str, Any]
_PROGRAMS = ("kubelet", "containerd", "agent")


def some_pods(cluster: Cluster) -> dict[str, int]:
    """A pod that owns CPUs, one with pod-level resources and one that shares the node's; the masks of their
    containers."""
    cluster.run_all(
        pod("owner", gu("c", 2)),
        pod("level", gu("own", 1), ngu("rest"), budget=(2, "64Mi")),
        pod("shares", burstable("c")),
    )
    return masks(cluster)


def masks(cluster: Cluster) -> dict[str, int]:
    return {
        f"{found['metadata']['name']}/{name}": cluster.cpus(found, name)
        for found in cluster.pods()
        for name in container_ids(found)
    }


def _ids(cluster: Cluster) -> dict[str, list[str]]:
    return {found["metadata"]["name"]: sorted(container_ids(found).values()) for found in cluster.pods()}


def _check_unmoved(cluster: Cluster, before: dict[str, int], ids: dict[str, list[str]]) -> None:
    """Check that every container runs where it ran before, and a new pod gets CPUs of its own. A container with another
    id than before is one that the kubelet has started again meanwhile, maybe before the agent was there."""
    again = [name for name, now in _ids(cluster).items() if now != ids[name]]
    cluster.agree(*again)
    after: list[dict[str, int]] = []

    def as_before() -> bool:
        after[:] = [masks(cluster)]
        return after == [before]

    try:
        cluster.until("everybody runs where it ran before", as_before)
    except CheckError as error:
        raise CheckError(f"{error}: before {before}, afterwards {after}") from None
    new = cluster.run(pod("new", gu("c", 1)))
    owned = cluster.exclusive(new, "c", 1)
    check(not any(mask & owned for name, mask in before.items() if name != "shares/c"), "the new pod's CPUs are owned")
    cluster.agree(*again)


def _start(cluster: Cluster, program: str) -> None:
    start = {"kubelet": cluster.start_kubelet, "containerd": cluster.start_containerd, "agent": cluster.begin_agent}
    start[program]()


def _all_up(cluster: Cluster) -> None:
    cluster.wait_for_agent()
    cluster.wait_for_kubelet()


def restart(order: tuple[str, ...], cluster: Cluster) -> None:
    before, ids = some_pods(cluster), _ids(cluster)
    for program in order:
        cluster.kill(program)
    for program in order:
        _start(cluster, program)
    _all_up(cluster)
    _check_unmoved(cluster, before, ids)


def _register() -> None:
    """One program, then all three, killed and started again in every order."""
    orders = [*((program,) for program in _PROGRAMS), *itertools.permutations(_PROGRAMS)]
    for number, order in enumerate(orders, 20):
        ident = f"X-K{number}"
        programs = " then ".join(order)
        promise = f"Killed and started again: {programs}. No container moves, and the next pod gets CPUs of its own."

        def run(cluster: Cluster, order: tuple[str, ...] = order) -> None:
            restart(order, cluster)

        CLUSTER[ident] = ClusterScenario(ident, promise, {}, order == ("agent",), PROGRAM, run, {})


_register()


@in_cluster("X-K29")
def pod_made_while_the_agent_is_away(cluster: Cluster) -> None:
    """A pod that is created while the agent is away gets its CPUs when the agent is back."""
    before = some_pods(cluster)
    cluster.kill("agent")
    late = cluster.run(pod("late", gu("c", 2)))
    check(cluster.cpus(late, "c").bit_count() > 2, "pinned without an agent")
    cluster.begin_agent()
    cluster.wait_for_agent()
    cluster.until("the late pod owns CPUs", lambda: cluster.cpus(late, "c").bit_count() == 2)
    cluster.agree("late")
    check(not cluster.exclusive(late, "c", 2) & before["owner/c"], "owned twice")
