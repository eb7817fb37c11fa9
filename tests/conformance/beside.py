"""`podslice cluster` as a process beside a real API server, with its shipped rights, and agents' streams to it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import NamedTuple

from e2e.certificates import Certificates, make
from e2e.controlplane import Api, ControlPlane, Json, Settings, free_port
from e2e.hollow_nodes import node_rules
from e2e.programs import find_programs
from e2e.sharedplane import cluster_of, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.journal import NodeJournal
from podslice.agent.reporter import JournalStream
from podslice.cluster.apiclient import HTTPClusterApi
from podslice.cluster.object_table import pod_table
from podslice.node.node import Node
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.pacing import BackOff
from podslice.service.supervise import Supervisor
from podslice.service.trust import AuthorityFile
from tests.conformance.deployed import apply, deploy_rights, token_of

NODES = ("n0", "n1")
AUDIENCE = "podslice-cluster"
ACCOUNT = "only"
"""The service account of the service, which has the role `podslice-cluster` and none of kube-scheduler's."""
PROGRAM = ("-m", "podslice")
_GROUP = "rbac.authorization.k8s.io"


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
    log: Path

    def asked(self, path: str) -> str:
        """Return its answer over HTTP, empty for none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


def bind_role(api: Api, account: str, *, role: str = "podslice-cluster") -> None:
    """A service account in `podslice` with this role and no other."""
    for document in (
        {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": account, "namespace": "podslice"}},
        {
            "kind": "ClusterRoleBinding", "apiVersion": f"{_GROUP}/v1", "metadata": {"name": account},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "podslice"}],
        },
    ):  # fmt: skip
        assert apply(api, document).code in (200, 201)


@contextmanager
def service_beside(
    folder: Path,
    *options: str,
    settings: Settings | None = None,
    manifests: Sequence[Json] = (),
    program: Sequence[str] = PROGRAM,
) -> Iterator[Beside]:
    """The service with these further options and the rights of the role `podslice-cluster`, as shipped or as these
    `manifests` have it. `program` is what Python runs."""
    (folder / "tls").mkdir()
    certificates = make(folder / "tls")
    with ControlPlane(find_programs(), folder / "plane", settings) as plane, plane.api() as api:
        prepare_namespace(api, "default")
        deploy_rights(api)
        for document in manifests:
            assert apply(api, document).code in (200, 201)
        bind_role(api, ACCOUNT)
        with process_beside(plane, api, certificates, folder / "service", *options, program=program) as beside:
            yield beside


@contextmanager
def process_beside(
    plane: ControlPlane,
    api: Api,
    certificates: Certificates,
    folder: Path,
    *options: str,
    port: int = 0,
    program: Sequence[str] = PROGRAM,
) -> Iterator[Beside]:
    """One process of the service, with four ports from `port` on; its log and its kubeconfig are in `folder`."""
    folder.mkdir(exist_ok=True)
    config = folder / "kubeconfig"
    config.write_text(json.dumps(cluster_of(plane, ()).kubeconfig(token=token_of(api, ACCOUNT))))
    port = port or free_port(4)
    log = folder / "service.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable, *program, "cluster", f"--address=127.0.0.1:{port}",
                f"--journal-address=127.0.0.1:{port + 1}", f"--metrics-address=127.0.0.1:{port + 2}",
                f"--tls-cert={certificates.certificate}", f"--tls-key={certificates.key}",
                f"--page-address=127.0.0.1:{port + 3}", *options,
            ],
            env={**os.environ, "KUBECONFIG": str(config)}, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield Beside(plane, api, certificates, process, port, port + 1, port + 2, port + 3, log)
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
    """Nodes that decide with the real core and tell of it over gRPC. With `honours` a pod gets what was planned for it.
    While `waits`, pods that are bound to a node do not start; `start` starts them in any order."""

    def __init__(self, names: Sequence[str] = NODES, *, like: Node | None = None, honours: bool = False) -> None:
        like = like or node_rules()
        self.nodes = {name: Node.of(like.rules, like.state) for name in names}
        self.journals = {name: NodeJournal(version=installed_version("podslice"), honours=honours) for name in names}
        for name, journal in self.journals.items():
            journal.begin(self.nodes[name])
        self.decided: dict[str, bool] = {}
        self.declines: set[str] = set()
        """Names of pods that the nodes refuse without asking the core."""
        self.waits = False
        self.waiting: dict[str, ScheduledPod] = {}

    def pod_changed(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        about = new or old
        node = None if about is None else self.nodes.get(about.node)
        if about is None or node is None:
            return
        before = node.state
        if new is None:
            self.waiting.pop(about.name, None)
            node.remove(about.uid)
            self.journals[about.node].record_removal(before, about.uid)
        elif self.waits and about.name not in self.decided:
            self.waiting.setdefault(about.name, new)
        elif about.name not in self.decided:
            self._decide(new)

    def _decide(self, pod: ScheduledPod) -> None:
        node, journal = self.nodes[pod.node], self.journals[pod.node]
        if pod.name in self.declines:
            self.decided[pod.name] = False
            journal.record_refusal(pod.uid, "UnexpectedAdmissionError", "a test wants it")
            return
        before = node.state
        decision = journal.admission_for(pod.pod)(node, pod.pod)
        self.decided[pod.name] = decision.admitted
        journal.record_decision(before, pod.pod, decision)

    def start(self, *names: str) -> None:
        """The kubelet starts pods that wait, in this order. To be called on the event loop."""
        for name in names:
            self._decide(self.waiting.pop(name))

    def lose(self, name: str) -> None:
        """A pod is gone from a node, and only its journal says so. To be called on the event loop."""
        node = self.nodes[name]
        before, uid = node.state, next(iter(node.state.cpu.assignments))
        node.remove(uid)
        self.journals[name].record_removal(before, uid)

    def cpus(self, uid: str) -> int:
        """The CPUs that a pod owns, as bits."""
        sets = [one for node in self.nodes.values() for one in node.state.cpu.assignments.get(uid, {}).values()]
        return sets[0] if sets else 0


@asynccontextmanager
async def streaming(
    beside: Beside, folder: Path, nodes: StreamingNodes, *others: Beside
) -> AsyncIterator[StreamingNodes]:
    """The nodes hear of their pods, and tell the service and its `others` processes."""
    config = KubeConfig.from_dict(beside.plane.kubeconfig("admin")).get()
    api = HTTPClusterApi(config)
    loops = Supervisor(lambda name, why: None)
    loops.start("pods", pod_table(api, nodes.pod_changed, lambda where, what: None).run)
    for name in nodes.nodes:
        file = folder / f"token-{name}"
        file.write_text(await asyncio.to_thread(agent_token, beside.api, name))
        for process in (beside, *others):
            stream = JournalStream(
                f"127.0.0.1:{process.journals}", nodes.journals[name], node=name, token_file=file,
                authority=AuthorityFile(beside.certificates.authority, "cluster.caFile"),
                trouble=lambda where, what: None,
            )  # fmt: skip
            loops.start(f"{name} {process.journals}", partial(stream.run, BackOff(0.2, 2.0)))
    try:
        yield nodes
    finally:
        await loops.stop()
        await api.close()
