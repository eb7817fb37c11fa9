"""podslice cluster beside a second kube-scheduler, for a node with a real kubelet and an agent that reports to its
journal.

Both run on this machine with what deploy/manifests/scheduler.yaml says: its service account, rights, arguments and
scheduler's configuration. Only addresses and places of files are other ones.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.certificates import make
from e2e.cluster import MANIFEST, Cluster, container_ids
from e2e.cluster_refusals import SINGLE
from e2e.cluster_scenarios import SCHEDULED, in_cluster
from e2e.controlplane import ControlPlane, free_port
from e2e.pods import gu, pod
from e2e.vm import VirtualMachine
from e2e.world import check

Json = dict[str, Any]
JOURNAL_ADDRESS, JOURNAL_PORT = "10.96.0.9", 9097
_HOST = "podslice-cluster.podslice.svc"
_FOLDER = "/etc/podslice-cluster"
REPORTING: Json = {"cluster": {"services": [f"{_HOST}:{JOURNAL_PORT}"], "caFile": f"{_FOLDER}/ca.crt"}}
"""Settings with which the agent reports to the service."""


class ScheduledCluster(Cluster):
    """`port`: where the node reaches this machine as the service's address."""

    def __init__(self, vm: VirtualMachine, plane: ControlPlane, port: int) -> None:
        super().__init__(vm, plane)
        self._journal, self._extender, self._metrics = port, free_port(), free_port()

    def install(self, resources: Json, settings: Json) -> None:
        """With the service and its scheduler."""
        super().install(resources, settings)
        documents = list(_documents())
        for document in documents:
            if document["kind"] != "StatefulSet":
                self.apply(document)
        folder = self.plane.folder / "service"
        certificates = make(folder, name=f"DNS:{_HOST}")
        service, scheduler = folder / "service.kubeconfig", folder / "scheduler.kubeconfig"
        for file, account in ((service, "podslice-cluster"), (scheduler, "podslice-scheduler")):
            file.write_text(json.dumps(self.plane.kubeconfig_of(self.token(account))))
        (stateful,) = [one for one in documents if one["kind"] == "StatefulSet"]
        (container,) = [one for one in stateful["spec"]["template"]["spec"]["containers"] if one["name"] == "cluster"]
        text = " ".join(container["args"]).replace(_FOLDER, str(folder))
        text = text.replace(f"0.0.0.0:{JOURNAL_PORT}", f"127.0.0.1:{self._journal}")
        text = text.replace("0.0.0.0:9099", f"127.0.0.1:{self._metrics}")
        command = ["env", f"KUBECONFIG={service}", sys.executable, "-m", *container["command"], *text.split()]
        self.plane.start_program("podslice-cluster", *command, f"--address=127.0.0.1:{self._extender}")
        self.plane.start_scheduler(self._scheduler(documents, scheduler), name="podslice-scheduler")
        self.vm.call("write", path=f"{_FOLDER}/ca.crt", text=certificates.authority.read_text())

    def _scheduler(self, documents: list[Json], config: Path) -> Json:
        """The shipped configuration, for the service of this machine."""
        (shipped,) = [one for one in documents if one["kind"] == "ConfigMap"]
        found: Json = yaml.safe_load(shipped["data"]["scheduler.yaml"])
        found["clientConnection"]["kubeconfig"] = str(config)
        (extender,) = found["extenders"]
        extender["urlPrefix"] = extender["urlPrefix"].replace("9098", str(self._extender))
        extender["httpTimeout"] = "30s"
        return found

    def begin_agent(self) -> None:
        token = self.token("podslice-agent", audiences=["podslice-cluster"])
        self.vm.call("write", path="/var/run/secrets/podslice-cluster/token", text=token)
        self.vm.call("shell", command=f"echo {JOURNAL_ADDRESS} {_HOST} >> /etc/hosts")
        super().begin_agent()

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the service, zero where it has none of that name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        found = re.search(rf"^{name}{re.escape('{' + shown + '}') if shown else ''} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def last_words(self) -> str:
        said = [f"--- {name}\n{self.plane.log(name)[-1500:]}" for name in ("podslice-cluster", "podslice-scheduler")]
        return "\n".join([*said, super().last_words()])


def _documents() -> Iterator[Json]:
    for name in ("scheduler.yaml", "nodestate.yaml"):
        yield from filter(None, yaml.safe_load_all(MANIFEST.with_name(name).read_text()))


def _with_scheduler(manifest: Json) -> Json:
    manifest["spec"]["schedulerName"] = "podslice"
    return manifest


@in_cluster("X-K70", SINGLE, node=SCHEDULED, settings=REPORTING)
def placed_where_it_fits(cluster: Cluster) -> None:
    """Through the shipped scheduler and service a pod that the node would refuse waits instead, and runs once there is
    room on one NUMA node; every plan is what the node then does."""
    assert isinstance(cluster, ScheduledCluster)
    proven = "podslice_cluster_nodes_proven"
    cluster.until("the node's state is proven", lambda: cluster.metric(proven) == 1)
    cluster.run(_with_scheduler(pod("first", gu("c", 1))))
    cluster.run(_with_scheduler(pod("second", gu("c", 3))))
    cluster.create(_with_scheduler(pod("third", gu("c", 3))))
    waits = cluster.pod_until("third", "waits", lambda found: bool(_why_not(found)))
    check(not waits["spec"].get("nodeName"), "the pod has a node")
    check("no NUMA node has 3 exclusive CPUs free" in _why_not(waits), f"it waits because {_why_not(waits)}")
    cluster.delete("second", grace=1)
    third = cluster.running("third")
    cluster.exclusive(third, "c", 3)
    cluster.agree()
    check(not cluster.status()["rejected"], "the agent has refused a pod")
    cluster.until("three plans agree", lambda: cluster.metric("podslice_cluster_placements_total", fate="agreed") == 3)
    for fate in ("disputed", "refused"):
        count = cluster.metric("podslice_cluster_placements_total", fate=fate)
        check(not count, f"{count:.0f} placements are {fate}")
    check(bool(container_ids(cluster.get("first"))), "the first pod does not run any more")
    check(cluster.metric(proven) == 1, "the node's state is not proven any more")


def _why_not(found: Json) -> str:
    """Why no scheduler has found a node, empty while none has looked."""
    conditions = {one["type"]: one for one in found["status"].get("conditions", [])}
    return str(conditions.get("PodScheduled", {}).get("message", ""))
