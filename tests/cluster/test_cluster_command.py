"""`podslice cluster` as a process, with its shipped rights, between a real kube-scheduler and agents' streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import NamedTuple

import pytest
from e2e.certificates import Certificates, make
from e2e.controlplane import Api, ControlPlane, free_port
from e2e.hollow_nodes import node_rules
from e2e.programs import find_programs
from e2e.scheduling import Pods, create_node, eventually, extender, pod, started
from e2e.sharedplane import cluster_of, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.journal import NodeJournal
from podslice.agent.reporter import JournalStream
from podslice.agent.supervise import Supervisor
from podslice.cluster.apiclient import HTTPClusterApi
from podslice.cluster.watching import pod_table
from podslice.core.node import Node
from podslice.k8s.clusterobjects import ScheduledPod
from tests.cluster.deployed import apply, deploy_rights, token_of
from tests.documents import read_document

NODES = ("n0", "n1")
AUDIENCE = "podslice-cluster"


class Beside(NamedTuple):
    """A running `podslice cluster`: its ports, and what belongs to it."""

    plane: ControlPlane
    api: Api
    certificates: Certificates
    process: subprocess.Popen[bytes]
    port: int
    journals: int
    metrics: int
    page: int

    def asked(self, path: str) -> str:
        """What it says over HTTP, or nothing."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


@pytest.fixture
def beside(programs: None, tmp_path: Path) -> Iterator[Beside]:
    certificates = make(tmp_path / "tls") if (tmp_path / "tls").mkdir() is None else None
    assert certificates is not None
    with ControlPlane(find_programs(), tmp_path / "plane") as plane, plane.api() as api:
        prepare_namespace(api, "default")
        deploy_rights(api)
        for document in (
            {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "only", "namespace": "podslice"}},
            {
                "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
                "metadata": {"name": "only"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "podslice-cluster",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "only", "namespace": "podslice"}],
            },
        ):  # fmt: skip
            assert apply(api, document).code in (200, 201)
        config = tmp_path / "kubeconfig"
        config.write_text(json.dumps(cluster_of(plane, ()).kubeconfig(token=token_of(api, "only"))))
        port = free_port(4)
        with (tmp_path / "service.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "podslice", "cluster", f"--address=127.0.0.1:{port}",
                    f"--journal-address=127.0.0.1:{port + 1}", f"--metrics-address=127.0.0.1:{port + 2}",
                    f"--tls-cert={certificates.certificate}", f"--tls-key={certificates.key}",
                    f"--page-address=127.0.0.1:{port + 3}",
                ],
                env={**os.environ, "KUBECONFIG": str(config)}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            yield Beside(plane, api, certificates, process, port, port + 1, port + 2, port + 3)
        finally:
            process.kill()
            process.wait()


def agent_token(api: Api, node: str) -> str:
    """As the kubelet gets it for the agent's pod on that node."""
    path = "/api/v1/namespaces/podslice/pods"
    spec = {"nodeName": node, "serviceAccountName": "podslice-agent", "containers": [{"name": "c", "image": "i"}]}
    made = api.call("POST", path, {"metadata": {"name": f"agent-{node}"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": f"agent-{node}", "uid": made["metadata"]["uid"]}
    return token_of(api, audiences=[AUDIENCE], boundObjectRef=bound)


class StreamingNodes:
    """Nodes that decide with the real core and tell of it over gRPC."""

    def __init__(self) -> None:
        like = node_rules()
        self.nodes = {name: Node.of(like.rules, like.state) for name in NODES}
        self.journals = {name: NodeJournal(version=installed_version("podslice")) for name in NODES}
        for name, journal in self.journals.items():
            journal.begin(self.nodes[name])
        self.decided: dict[str, bool] = {}

    def pod_news(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        about = new or old
        node = None if about is None else self.nodes.get(about.node)
        if about is None or node is None:
            return
        before = node.state
        if new is None:
            node.remove(about.uid)
            self.journals[about.node].removed(before, about.uid)
        elif about.name not in self.decided:
            decision = node.admit(new.pod)
            self.decided[about.name] = decision.admitted
            self.journals[about.node].decided(before, new.pod, decision)


@asynccontextmanager
async def agents(beside: Beside, folder: Path) -> AsyncIterator[StreamingNodes]:
    nodes = StreamingNodes()
    config = KubeConfig.from_dict(beside.plane.kubeconfig("admin")).get()
    api = HTTPClusterApi(config)
    loops = Supervisor(lambda name, why: None)
    loops.start("pods", pod_table(api, nodes.pod_news, lambda where, what: None).run)
    for name in NODES:
        file = folder / f"token-{name}"
        file.write_text(await asyncio.to_thread(agent_token, beside.api, name))
        stream = JournalStream(
            f"127.0.0.1:{beside.journals}", nodes.journals[name], node=name, token_file=file,
            ca_file=beside.certificates.authority, trouble=lambda where, what: None,
        )  # fmt: skip
        loops.start(name, stream.run)
    try:
        yield nodes
    finally:
        await loops.stop()
        await api.close()


def check_page(port: int, waiting: str) -> None:
    """What people are told of the pod that waits: the scheduler's reason, counted, and a request that would do."""
    command = [sys.executable, "-m", "podslice", "cluster", "pending", f"--url=http://127.0.0.1:{port}", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (1, "")
    (row,) = read_document(answer.stdout, "PendingPodList")["items"]
    assert (row["name"], row["state"]) == (waiting, "refused")
    assert row["reason"] == "0/2 nodes take it: 2 no NUMA node has 10 exclusive CPUs free"
    assert row["way"]["text"].startswith("Ask for 6 instead of 10 CPUs in container ")


def test_beside_a_scheduler(beside: Beside, tmp_path: Path) -> None:
    """Pods of 10 CPUs fill two nodes of four NUMA nodes each: eight run as they were planned, the ninth is told why it
    waits, and goes where one leaves. Told to end, the service ends well."""
    for name in NODES:
        create_node(beside.api, name, cpus=63)
    started(beside.plane, "podslice", {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
    pods = Pods(beside.api)

    def scene(nodes: StreamingNodes) -> None:
        eventually(lambda: "podslice_cluster_nodes_proven 2.0" in beside.asked("/metrics"))
        assert beside.asked("/readyz") == "ok\n"
        for number in range(9):
            pods.create(pod(f"p{number}", "podslice", cpus="10"))
        eventually(lambda: len(nodes.decided) == 8 + len(NODES), "not every pod that fits was placed")
        assert all(nodes.decided.values())
        bound = [number for number in range(9) if pods.node(f"p{number}")]
        (waiting,) = set(range(9)) - set(bound)
        text = "0/2 nodes are available: 2 no NUMA node has 10 exclusive CPUs free."
        eventually(lambda: text in pods.unscheduled(f"p{waiting}").get("message", ""))
        check_page(beside.page, f"p{waiting}")
        plan = pods.get(f"p{bound[0]}")["metadata"]["annotations"]["podslice.io/plan"]
        assert "cpus" in json.loads(plan)
        pods.delete(f"p{bound[0]}")
        eventually(lambda: pods.node(f"p{waiting}"))
        eventually(lambda: 'podslice_cluster_placements_total{fate="agreed"} 9.0' in beside.asked("/metrics"))
        metrics = beside.asked("/metrics")
        for fate in ("disputed", "refused"):
            assert f'podslice_cluster_placements_total{{fate="{fate}"}} 0.0' in metrics

    async def main() -> None:
        async with agents(beside, tmp_path) as nodes:
            await asyncio.to_thread(scene, nodes)

    asyncio.run(main())
    beside.process.send_signal(signal.SIGTERM)
    assert beside.process.wait(30) == 0
