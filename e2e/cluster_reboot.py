"""A node whose machine fails and comes back."""

from __future__ import annotations

from typing import Any

from e2e.cluster import Cluster, container_ids
from e2e.cluster_restarts import masks, some_pods
from e2e.cluster_scenarios import REBOOTS, in_cluster
from e2e.world import check

Json = dict[str, Any]


class RebootCluster(Cluster):
    """The files of containerd, the kubelet and the agent are on a disk, as on every real node."""

    def start(self, resources: Json, settings: Json) -> None:
        self.kill("containerd")
        self._keep()
        super().start(resources, settings)

    def reboot(self) -> None:
        """The power fails and comes back. Until the node's programs are well; the kubelet starts once the agent is
        ready, as deploy/systemd has it."""
        self.vm.boot_again()
        self._keep()
        self._join_network()
        self._prepare_kubelet()
        self.vm.call("unpack_checkout")
        self.begin_agent()
        self.wait_for_agent()
        self.start_kubelet()
        self.wait_for_kubelet()

    def _keep(self) -> None:
        """Its disk, and what every guest has."""
        self.vm.call("keep_on_disk")
        self.vm.call("wait_ready", timeout=600)
        self.vm.keep_a_quota()


@in_cluster("X-K30", node=REBOOTS)
def node_rebooted(cluster: Cluster) -> None:
    """The node's machine is off and boots again; its pods come back, and each that owned CPUs owns as many."""
    assert isinstance(cluster, RebootCluster)
    before = some_pods(cluster)
    old = {found["metadata"]["name"]: container_ids(found) for found in cluster.pods()}
    cluster.vm.call("shell", command="sync")
    cluster.reboot()

    def back() -> bool:
        return all(
            set(container_ids(found)) == set(old[found["metadata"]["name"]])
            and not set(container_ids(found).values()) & set(old[found["metadata"]["name"]].values())
            for found in cluster.pods()
        )

    cluster.until("all pods run again", back)
    cluster.agree(*old)
    after = {name: mask.bit_count() for name, mask in masks(cluster).items()}
    check(after == {name: mask.bit_count() for name, mask in before.items()}, f"before {before}, afterwards {after}")
