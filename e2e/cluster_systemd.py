"""A node under systemd: the first process, and the driver of cgroups for containerd and the kubelet.

systemd knows of a pod's slice what the kubelet set, and of a container's scope what the runtime set. What the
agent writes into their files it does not know, and takes back when it looks at its units again.
"""

from __future__ import annotations

from e2e.cluster import Cluster, container_ids
from e2e.cluster_refusals import SINGLE, refused_for_good
from e2e.cluster_restarts import restart
from e2e.cluster_scenarios import SYSTEMD, in_cluster
from e2e.pods import burstable, gu, ngu, pod
from e2e.world import check

NO_PASS = {"reconcileSeconds": 3600}
"""What is put right is put right at once."""


class SystemdCluster(Cluster):
    """It makes the slices and scopes of pods."""

    cgroup_driver = "systemd"


def _units(cluster: Cluster, *patterns: str) -> list[str]:
    """The names of units that are there."""
    listed = cluster.vm.call("shell", command=f"systemctl list-units --no-legend --plain {' '.join(patterns)}")
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def run_pods(cluster: Cluster) -> None:
    """One that shares the node's CPUs and is then moved off those that the next ones own."""
    cluster.run(pod("shares", burstable("c", "500m", "1")))
    cluster.run_all(pod("owner", gu("c", 2)), pod("level", gu("own", 2), ngu("rest"), budget=(3, "128Mi")))
    as_ever(cluster)


def as_ever(cluster: Cluster) -> None:
    """Check that every container has its CPUs, and no owner of CPUs is throttled."""
    cluster.agree()
    owned = cluster.exclusive(cluster.get("owner"), "c", 2)
    level = cluster.get("level")
    own, rest = cluster.cpus(level, "own"), cluster.cpus(level, "rest")
    check((own.bit_count(), rest.bit_count()) == (2, 1), f"own has {own:b}, rest has {rest:b}")
    shared = cluster.cpus(cluster.get("shares"), "c")
    check(not shared & (owned | own | rest), f"shares runs on {shared:b}, others own {owned | own | rest:b}")
    quota = cluster.cgroup(level)["cpu.max"]
    check(quota == "300000 100000", f"cpu.max of the pod of pod-level resources is {quota}")
    quota = cluster.cgroup(cluster.get("shares"), "c")["cpu.max"]
    check(quota == "100000 100000", f"cpu.max of the pod that shares is {quota}")


@in_cluster("X-K50", settings=NO_PASS, node=SYSTEMD)
def under_systemd(cluster: Cluster) -> None:
    """With systemd as the driver of cgroups pods own CPUs, share the rest and keep the quota that is theirs."""
    run_pods(cluster)
    for name in ("shares", "owner", "level"):
        for ident in container_ids(cluster.get(name)).values():
            check(_units(cluster, f"cri-containerd-{ident}.scope") != [], f"{name} has a container without a scope")


@in_cluster("X-K51", settings=NO_PASS, node=SYSTEMD)
def daemon_reload(cluster: Cluster) -> None:
    """After `systemctl daemon-reload`, which undoes what was not set through systemd, all is soon as it was."""
    run_pods(cluster)
    for _ in range(2):
        reload_units(cluster)
        as_ever(cluster)


def reload_units(cluster: Cluster) -> None:
    """`systemctl daemon-reload`, until the agent has seen what it takes back."""
    before = _drifts(cluster)
    cluster.vm.call("shell", command="systemctl daemon-reload")
    cluster.until("what systemd took back was seen", lambda: _drifts(cluster) > before)


@in_cluster("X-K52", settings=NO_PASS, node=SYSTEMD)
def properties_set(cluster: Cluster) -> None:
    """After `systemctl set-property` on the scopes and slices of pods all is soon as it was, but for what was set."""
    run_pods(cluster)
    for unit in _units(cluster, "'cri-containerd-*.scope'", "'kubepods*-pod*.slice'"):
        _set_property(cluster, unit, "CPUWeight=50")
    weights = {one["cpu.weight"] for path, one in cluster.vm.call("pod_cgroups").items() if "-pod" in path}
    check(weights == {"50"}, f"the weights are {weights}")
    as_ever(cluster)
    (slice_of_owner,) = _units(cluster, f"'kubepods-pod{_escape_uid(cluster, 'owner')}.slice'")
    for ident in container_ids(cluster.get("shares")).values():
        _set_property(cluster, f"cri-containerd-{ident}.scope", "AllowedCPUs=0-7")
    _set_property(cluster, slice_of_owner, "CPUQuota=50%")
    as_ever(cluster)


@in_cluster("X-K53", SINGLE, node=SYSTEMD)
def all_restarted(cluster: Cluster) -> None:
    """Killed and started again under systemd: containerd then kubelet then agent. No container moves, and the next pod
    gets CPUs of its own."""
    restart(("containerd", "kubelet", "agent"), cluster)


@in_cluster("X-K54", SINGLE, node=SYSTEMD)
def refused_under_systemd(cluster: Cluster) -> None:
    """A pod that does not fit is Failed as everywhere, and leaves neither scope nor slice."""
    cluster.create(pod("wide", gu("c", 5)))
    refused_for_good(cluster, "wide")
    patterns = [f"'kubepods*-pod{_escape_uid(cluster, 'wide')}.slice'", "'cri-containerd-*.scope'"]
    cluster.delete("wide")
    cluster.until("no unit of it is left", lambda: not _units(cluster, *patterns))


def _drifts(cluster: Cluster) -> int:
    return len(cluster.status()["drift"])


def _set_property(cluster: Cluster, unit: str, assignment: str) -> None:
    cluster.vm.call("shell", command=f"systemctl set-property --runtime {unit} {assignment}")


def _escape_uid(cluster: Cluster, name: str) -> str:
    """The UID of a pod as it is part of its slice's name."""
    return str(cluster.get(name)["metadata"]["uid"]).replace("-", "_")
