"""The agent as its DaemonSet: the image built from deploy/container, in a pod with the manifest's rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from release.image import archive_digest

from e2e.cluster import CONFIG_MAP, MANIFEST, Cluster, container_ids, is_ready, restarts
from e2e.cluster_scenarios import DAEMON_SET, SYSTEMD_DAEMON_SET, in_cluster
from e2e.cluster_systemd import SystemdCluster, as_ever, reload_units, run_pods
from e2e.controlplane import MERGE, ControlPlane
from e2e.pods import gu, ngu, pod
from e2e.vm import VirtualMachine
from e2e.world import check

Json = dict[str, Any]
_PODS = "/api/v1/namespaces/podslice/pods"
_IMAGE = "localhost/podslice"


class DaemonSetCluster(Cluster):
    """The agent comes with `kubectl apply`, as docs/agent.md says for a kubelet whose cgroup driver is cgroupfs."""

    def __init__(self, vm: VirtualMachine, plane: ControlPlane, image: Path) -> None:
        super().__init__(vm, plane)
        self._image = image

    def begin_agent(self) -> None:
        self.apply(_one_more_authority(self.plane.authority.read_text()))
        digest = archive_digest(self._image)
        self.vm.call("import_image", digest=digest, timeout=600)
        self.apply(self.daemon_set(digest))

    def daemon_set(self, image: str) -> Json:
        return daemon_set(image, self.cgroup_driver)

    def wait_for_agent(self) -> None:
        self.until("the agent's pod is ready", lambda: any(is_ready(one) for one in self.agents()), 300)

    def agents(self) -> list[Json]:
        """The pods of the DaemonSet that are not on their way out."""
        found = self.api.call("GET", _PODS)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def last_words(self) -> str:
        said = [json.dumps(one["status"].get("containerStatuses"))[:1500] for one in self.agents()]
        logs = "tail -n 8 /var/log/pods/podslice_*/agent/*.log | cut -c1-500"
        return "\n".join([*said, self.vm.call("shell", command=f"{logs}; true"), super().last_words()])


def _one_more_authority(certificates: str) -> Json:
    """These builds of the API server mount it beside the service account's token, and have a controller of their own
    that makes it."""
    metadata = {"name": "openshift-service-ca.crt", "namespace": "podslice"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"service-ca.crt": certificates}}


class SeeingDaemonSetCluster(DaemonSetCluster):
    """The same in the node's process namespace, as docs/defrag.md says for containers that allow moves with `true`."""

    def daemon_set(self, image: str) -> Json:
        found = super().daemon_set(image)
        found["spec"]["template"]["spec"]["hostPID"] = True
        return found


class SystemdDaemonSetCluster(DaemonSetCluster, SystemdCluster):
    """The same where the shipped folder of cgroups is the right one."""


def daemon_set(image: str, cgroup_driver: str) -> Json:
    """Return the shipped DaemonSet with the changes that its comments ask of an operator: the image, and where the
    driver is not systemd the folder of cgroups."""
    (found,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "DaemonSet"]
    text = json.dumps(found).replace("podslice@sha256:PUT-THE-DIGEST-OF-YOUR-IMAGE-HERE", f"{_IMAGE}@{image}")
    if cgroup_driver == "cgroupfs":
        text = text.replace("/sys/fs/cgroup/kubepods.slice", "/sys/fs/cgroup/kubepods")
    changed: Json = json.loads(text)
    return changed


@in_cluster("X-K40", node=DAEMON_SET)
def daemon_set_as_shipped(cluster: Cluster) -> None:
    """The shipped manifests with our image's digest: the agent's pod gets ready, and pods get what is theirs."""
    assert isinstance(cluster, DaemonSetCluster)
    (agent,) = cluster.agents()
    check(agent["status"]["podIP"] != agent["status"]["hostIP"], "the agent is on the node's network")
    shared, owner = cluster.run(pod("shared", ngu("c"))), cluster.run(pod("owner", gu("c", 2)))
    owned = cluster.exclusive(owner, "c", 2)
    cluster.agree()
    check(not cluster.cpus(shared, "c") & owned, "the other pod runs on owned CPUs")
    check(not cluster.cpus(agent, "agent") & owned, "the agent itself runs on owned CPUs")
    check(restarts(agent) == 0, "the agent was restarted")


@in_cluster("X-K41", node=DAEMON_SET)
def agent_pod_replaced(cluster: Cluster) -> None:
    """The agent's pod is deleted: the next one leaves everything as it was; a pod that came between gets its CPUs."""
    assert isinstance(cluster, DaemonSetCluster)
    owner = cluster.run(pod("owner", gu("c", 2)))
    owned = cluster.exclusive(owner, "c", 2)
    (agent,) = cluster.agents()
    cluster.api.call("DELETE", f"{_PODS}/{agent['metadata']['name']}")
    late = cluster.run(pod("late", gu("c", 1)))
    cluster.until("another pod of the agent is ready", lambda: [is_ready(one) for one in cluster.agents()] == [True])
    check(cluster.exclusive(owner, "c", 2) == owned, "the owner moved")
    cluster.until("the late pod owns a CPU", lambda: cluster.cpus(late, "c").bit_count() == 1)
    cluster.agree("late")
    check(not cluster.exclusive(late, "c", 1) & owned, "owned twice")


@in_cluster("X-K42", node=DAEMON_SET)
def agent_process_killed(cluster: Cluster) -> None:
    """The agent's process is killed: the kubelet starts it again in the same pod, and no container moves."""
    assert isinstance(cluster, DaemonSetCluster)
    owner = cluster.run(pod("owner", gu("c", 2)))
    owned = cluster.exclusive(owner, "c", 2)
    (agent,) = cluster.agents()
    before = container_ids(agent)["agent"]
    for process in cluster.cgroup(agent, "agent")["processes"]:
        cluster.vm.call("shell", command=f"kill -9 {process['pid']}")
    cluster.until(
        "the agent is ready again",
        lambda: (
            [container_ids(one).get("agent", before) != before and is_ready(one) for one in cluster.agents()] == [True]
        ),
    )
    check(cluster.exclusive(owner, "c", 2) == owned, "the owner moved")
    new = cluster.run(pod("new", gu("c", 1)))
    check(not cluster.exclusive(new, "c", 1) & owned, "owned twice")
    cluster.agree()


@in_cluster("X-K43", node=DAEMON_SET)
def configuration_rolled_out(cluster: Cluster) -> None:
    """A changed configuration and a restarted DaemonSet: pods keep their CPUs, and the new rules hold for the next."""
    assert isinstance(cluster, DaemonSetCluster)
    owner = cluster.run(pod("owner", gu("c", 1)))
    owned = cluster.exclusive(owner, "c", 1)
    config = yaml.safe_load(cluster.agent_config())
    config["resources"]["topologyManagerPolicy"] = "single-numa-node"
    cluster.api.call("PATCH", CONFIG_MAP, {"data": {"agent.yaml": yaml.safe_dump(config)}}, MERGE)
    names = {one["metadata"]["name"] for one in cluster.agents()}
    again = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    cluster.api.call("PATCH", "/apis/apps/v1/namespaces/podslice/daemonsets/podslice-agent", again, MERGE)

    def rolled_out() -> bool:
        agents = cluster.agents()
        return [one["metadata"]["name"] not in names and is_ready(one) for one in agents] == [True]

    cluster.until("the new pod of the agent is ready", rolled_out, 240)
    check(cluster.exclusive(owner, "c", 1) == owned, "the owner moved")
    cluster.create(pod("wide", gu("c", 5)))
    refused = "TopologyAffinityError"
    cluster.pod_until("wide", "is refused", lambda one: one["status"].get("reason") == refused)
    cluster.agree()


@in_cluster("X-K44", node=SYSTEMD_DAEMON_SET)
def daemon_set_under_systemd(cluster: Cluster) -> None:
    """The shipped manifests as they are where systemd is the driver of cgroups: the agent's pod gets ready, and pods
    have what is theirs, after `systemctl daemon-reload` too."""
    assert isinstance(cluster, SystemdDaemonSetCluster)
    (agent,) = cluster.agents()
    run_pods(cluster)
    owned = cluster.exclusive(cluster.get("owner"), "c", 2)
    check(not cluster.cpus(agent, "agent") & owned, "the agent itself runs on owned CPUs")
    reload_units(cluster)
    as_ever(cluster)


@in_cluster("X-K45", node=SYSTEMD_DAEMON_SET)
def agent_pod_replaced_under_systemd(cluster: Cluster) -> None:
    """The same, and the agent's pod is deleted: the next one leaves everything as it was."""
    assert isinstance(cluster, SystemdDaemonSetCluster)
    owner, shared = cluster.run(pod("owner", gu("c", 2))), cluster.run(pod("shared", ngu("c")))
    owned = cluster.exclusive(owner, "c", 2)
    (agent,) = cluster.agents()
    cluster.api.call("DELETE", f"{_PODS}/{agent['metadata']['name']}")
    cluster.until("another pod of the agent is ready", lambda: [is_ready(one) for one in cluster.agents()] == [True])
    check(cluster.exclusive(owner, "c", 2) == owned, "the owner moved")
    cluster.agree()
    check(not cluster.cpus(shared, "c") & owned, "the other pod runs on owned CPUs")
