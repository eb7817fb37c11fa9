"""`kubectl podslice` against a real API server: with the rights that are shipped, and without them.

The agent is one whose status listener is real; its node's kubelet is a fake that only forwards ports.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml
from e2e.certificates import make
from e2e.clienttools import HOW, find
from e2e.controlplane import MERGE, Api
from e2e.sharedplane import Cluster

from podslice.kubectl.why.capture_pod import CapturePlan, new_pod
from tests.agent.test_daemon import api_pod
from tests.cluster.bench import pod_object
from tests.cluster.pagebench import ServedCluster, serve
from tests.conformance.deployed import WORKER
from tests.kubectl.conftest import PODS
from tests.kubectl.fakeapi import upgrade
from tests.kubectl.liveagent import live_agent
from tests.kubectl.test_page import crowded_cluster
from tests.read_documents import read_document

ROOT = Path(__file__).parents[2]
TOKEN = secrets.token_hex(16)
NODE = f"kubectl-{WORKER}"


class FakeKubelet(ThreadingHTTPServer):
    """Forwards ports of pods by name, and nothing else."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("0.0.0.0", 0), _Forwarding)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.ports: dict[str, int] = {}
        self.asked: list[str] = []


class _Forwarding(BaseHTTPRequestHandler):
    server: FakeKubelet
    timeout = 20

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        upgrade(self, self.server.ports.get(urlsplit(self.path).path.rpartition("/")[2]))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silent."""


class Setting(NamedTuple):
    """The cluster with one node, its agents' namespace, and users: `reader` has the shipped roles, `stranger` none."""

    cluster: Cluster
    admin: Api
    namespace: str
    kubelet: FakeKubelet
    address: str
    folder: Path

    def run(self, *arguments: str, user: str = "reader", token: str = "") -> subprocess.CompletedProcess[str]:
        """The plugin as a process."""
        config = self.folder / f"{user}.json"
        config.write_text(json.dumps(self.cluster.kubeconfig(token=token or self.token(user))))
        command = [sys.executable, "-c", "from podslice.entry import kubectl; kubectl()", *arguments]
        environment = {**os.environ, "KUBECONFIG": str(config)}
        return subprocess.run(
            [*command, "--agent-namespace", self.namespace], capture_output=True, text=True, env=environment, cwd=ROOT
        )

    def token(self, user: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{user}/token"
        return str(self.admin.call("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"])

    def add_agent(self, name: str, port: int, ip: str, *, secret: str = "") -> None:
        """An agent's pod that runs on the node."""
        container = {"name": "agent", "image": "i", "ports": [{"name": "status", "containerPort": port}]}
        volumes = [{"name": "status-token", "secret": {"secretName": secret}}] if secret else []
        pod = {
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "podslice"}},
            "spec": {"nodeName": NODE, "containers": [container], "volumes": volumes,
                     "automountServiceAccountToken": False},
        }  # fmt: skip
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.admin.call("POST", pods, pod)
        status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
        self.admin.call("PATCH", f"{pods}/{name}/status", status, MERGE)
        self.kubelet.ports[name] = port


def own_address() -> str:
    """An address of this machine other than the loopback's, which the API server's proxy does not connect to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return str(probe.getsockname()[0])


@pytest.fixture
def setting(cluster: Cluster, admin: Api, tmp_path: Path) -> Iterator[Setting]:
    namespace = f"kubectl-{secrets.token_hex(4)}"
    cluster.prepare_namespace(namespace)
    for user in ("reader", "stranger"):
        admin.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": user}})
    grant(admin, namespace)
    kubelet = FakeKubelet(make(tmp_path / "kubelet").server())
    thread = threading.Thread(target=kubelet.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    address = own_address()
    endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.server_address[1]}}}
    status = {**endpoint, "addresses": [{"type": "InternalIP", "address": address}]}
    try:
        admin.ask("DELETE", f"/api/v1/nodes/{NODE}")
        admin.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        admin.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, MERGE)
        yield Setting(cluster, admin, namespace, kubelet, address, tmp_path)
    finally:
        for path in (f"/api/v1/nodes/{NODE}", f"/api/v1/namespaces/{namespace}"):
            admin.ask("DELETE", path)
        kubelet.shutdown()
        thread.join()
        kubelet.server_close()


def grant(admin: Api, namespace: str) -> None:
    """The shipped roles of those who only look, bound to the reader."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    for role in yaml.safe_load_all((ROOT / "deploy" / "manifests" / "kubectl.yaml").read_text()):
        if role["metadata"]["name"] == "podslice-kubectl-move":
            continue
        wide = role["kind"] == "ClusterRole"
        place = group if wide else f"{group}/namespaces/{namespace}"
        name = f"{namespace}-reader"
        role["metadata"] = {"name": name}
        admin.call("POST", f"{place}/{role['kind'].lower()}s", role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name}
        bound = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        admin.call("POST", f"{place}/{role['kind'].lower()}bindings", bound)


@contextlib.contextmanager
def agent(setting: Setting, **options: Any) -> Iterator[int]:
    with live_agent(setting.folder / "agent", PODS, node=NODE, **options) as port:
        yield port


def add_service(setting: Setting, port: int, ip: str, *, secret: str = "") -> None:
    """A replica of `podslice cluster` that runs on the node."""
    container = {"name": "cluster", "image": "i", "ports": [{"name": "page", "containerPort": port}]}
    volumes = [{"name": "page-token", "secret": {"secretName": secret}}] if secret else []
    spec = {"nodeName": NODE, "containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
    metadata = {"name": "podslice-cluster-0", "labels": {"app.kubernetes.io/name": "podslice-cluster"}}
    pods = f"/api/v1/namespaces/{setting.namespace}/pods"
    setting.admin.call("POST", pods, {"metadata": metadata, "spec": spec})
    status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
    setting.admin.call("PATCH", f"{pods}/podslice-cluster-0/status", status, MERGE)
    setting.kubelet.ports["podslice-cluster-0"] = port


def port_of(site: ServedCluster) -> int:
    return int(site.url.rsplit(":", 1)[1].strip("/"))


def test_the_service_through_a_port_forward(setting: Setting) -> None:
    """With the shipped roles pending, fit (a manifest is sent) and fragmentation are read from the service's loopback;
    a stranger reads nothing."""
    with serve(crowded_cluster()) as site:
        add_service(setting, port_of(site), "10.0.0.9")
        pending = setting.run("pending", "-o", "json")
        assert (pending.returncode, pending.stderr) == (1, "")
        assert read_document(pending.stdout, "PendingPodList")["total"] == 3
        manifest = setting.folder / "pod.yaml"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **asked_pod("mine", 6)}))
        fit = setting.run("fit", "-f", str(manifest))
        assert (fit.returncode, fit.stderr) == (1, "")
        assert "default/mine: none of 2 nodes takes it" in fit.stdout
        assert setting.run("fragmentation").returncode == 0
        assert any(f"port={port_of(site)}" in path for path in setting.kubelet.asked)
        denied = setting.run("pending", user="stranger")
        assert (denied.returncode, denied.stdout, denied.stderr.count("\n")) == (2, "", 1)


def test_the_service_through_the_proxy(setting: Setting, tmp_path: Path) -> None:
    """Behind TLS and a Secret's token the page is asked over the API server's proxy, a manifest too, by those whom the
    chart's role lets; the same page without the token says no."""
    tls = make(tmp_path / "page").server()
    with serve(crowded_cluster(), token=lambda: TOKEN, host="0.0.0.0", tls=tls) as site:
        add_service(setting, port_of(site), setting.address, secret="page")
        data = {"token": base64.b64encode(TOKEN.encode()).decode()}
        secrets_path = f"/api/v1/namespaces/{setting.namespace}/secrets"
        setting.admin.call("POST", secrets_path, {"metadata": {"name": "page"}, "data": data})
        manifest = setting.folder / "pod.yaml"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **asked_pod("mine", 3)}))
        admin = setting.cluster.tokens["admin"]
        fit = setting.run("fit", "-f", str(manifest), token=admin)
        assert (fit.returncode, fit.stderr) == (0, "")
        assert "default/mine: 1 of 2 nodes take it" in fit.stdout
        assert setting.run("fragmentation", token=admin).returncode == 0
        assert setting.kubelet.asked == []
        assert setting.run("fragmentation").returncode == 2


def asked_pod(name: str, cpus: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": pod_object(name, str(cpus))["spec"]}


def add_pod(setting: Setting, name: str, cpus: str, **status: Any) -> None:
    """A pod of a user on the node; what the agent knows of it has the name as its UID."""
    pod = api_pod(name, cpus)
    spec = {**pod["spec"], "nodeName": NODE, "automountServiceAccountToken": False}
    spec["containers"][0]["image"] = "i"
    pods = f"/api/v1/namespaces/{setting.namespace}/pods"
    setting.admin.call("POST", pods, {"metadata": {"name": name}, "spec": spec})
    setting.admin.call("PATCH", f"{pods}/{name}/status", {"status": status}, MERGE)


def test_through_a_port_forward(setting: Setting) -> None:
    """With the shipped roles everything is read through a forwarded port of the pod's loopback."""
    with agent(setting) as port:
        setting.add_agent("agent-a", port, "10.0.0.9")
        top = setting.run("top", "-o", "json")
        assert (top.returncode, top.stderr) == (0, "")
        (row,) = read_document(top.stdout, "NodeUsageList")["items"]
        assert (row["node"], row["exclusive"], row["problem"]) == (NODE, 15, "")
        assert any("/portForward/" in path and f"port={port}" in path for path in setting.kubelet.asked)
        shown = setting.run("node", NODE)
        assert (shown.returncode, "default/web" in shown.stdout, "thread 0" in shown.stdout) == (0, True, True)
        assert setting.run("audit").returncode == 1
        add_pod(setting, "big", "20", phase="Failed", reason="TopologyAffinityError", message="no")
        event = {
            "metadata": {"name": "big.1", "namespace": setting.namespace}, "type": "Warning", "reason": "Told",
            "message": "by the agent",
            "involvedObject": {"kind": "Pod", "name": "big", "namespace": setting.namespace},
        }  # fmt: skip
        uid = setting.admin.call("GET", f"/api/v1/namespaces/{setting.namespace}/pods/big")["metadata"]["uid"]
        event["involvedObject"]["uid"] = uid  # type: ignore[index]
        setting.admin.call("POST", f"/api/v1/namespaces/{setting.namespace}/events", event)
        pod = setting.run("pod", "-n", setting.namespace, "big")
        assert pod.returncode == 0
        for part in (f"{setting.namespace}/big  on {NODE}, Failed", "TopologyAffinityError: no", "by the agent",
                     "Ask for 16 instead of 20 CPUs"):  # fmt: skip
            assert part in pod.stdout


def test_through_the_proxy(setting: Setting) -> None:
    """On the pod's address and behind a Secret's token it is read through the API server's proxy by those who may; who
    may only forward ports is served that way."""
    file = setting.folder / "token"
    file.write_text(TOKEN)
    with agent(setting, host="0.0.0.0", token_file=str(file)) as port:
        setting.add_agent("agent-b", port, setting.address, secret="status")
        data = {"token": base64.b64encode(TOKEN.encode()).decode()}
        secret = f"/api/v1/namespaces/{setting.namespace}/secrets"
        setting.admin.call("POST", secret, {"metadata": {"name": "status"}, "data": data})
        by_admin = setting.run("node", NODE, "-o", "json", token=setting.cluster.tokens["admin"])
        assert (by_admin.returncode, by_admin.stderr) == (0, "")
        assert read_document(by_admin.stdout, "AgentStatus")["node"] == NODE
        assert setting.kubelet.asked == []
        denied = setting.run("node", NODE)
        assert (denied.returncode, "secrets" in denied.stderr, denied.stderr.count("\n")) == (2, True, 1)
        allow_secret(setting)
        assert setting.run("node", NODE).returncode == 0
        assert setting.kubelet.asked


def allow_secret(setting: Setting) -> None:
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{setting.namespace}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["status"], "verbs": ["get"]}
    setting.admin.call("POST", f"{group}/roles", {"metadata": {"name": "token"}, "rules": [rule]})
    bound = {
        "metadata": {"name": "token"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "token"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": setting.namespace}],
    }
    setting.admin.call("POST", f"{group}/rolebindings", bound)


def test_without_rights(setting: Setting) -> None:
    """A user without the roles, a token that is not valid, a node that is not there: one line each, exit code 2."""
    said = {
        "stranger": setting.run("top", user="stranger"),
        "guessed": setting.run("top", token="guessed"),
        "node": setting.run("node", "no-such-node"),
        "agent": setting.run("node", NODE),
        "pod": setting.run("pod", "default/no-such-pod"),
    }
    assert {name: (one.returncode, one.stdout, one.stderr.count("\n")) for name, one in said.items()} == dict.fromkeys(
        said, (2, "", 1)
    )
    for name, part in (
        ("stranger", "podslice-kubectl"), ("guessed", "log in again"), ("node", "there is no node no-such-node"),
        ("agent", f"no agent runs on node {NODE}"), ("pod", "there is no pod default/no-such-pod"),
    ):  # fmt: skip
        assert part in said[name].stderr


def test_a_kubelet_that_is_down(setting: Setting) -> None:
    """The API server's words are told with the node and with what to look at; in a list they are the node's row."""
    setting.add_agent("agent-e", 9096, "10.0.0.9")
    gone = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
    setting.admin.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": gone}, MERGE)
    one = setting.run("node", NODE)
    assert (one.returncode, one.stdout, one.stderr.count("\n")) == (2, "", 1)
    for part in (f"the agent on {NODE} cannot be asked: error dialing backend", f"kubectl get node {NODE}"):
        assert part in one.stderr
    top = setting.run("top", "-o", "json")
    (row,) = read_document(top.stdout, "NodeUsageList")["items"]
    assert (top.returncode, row["node"], "error dialing backend" in row["problem"]) == (0, NODE, True)


def test_bad_input(setting: Setting) -> None:
    """Names that are none, a selector that is none: one line each with what to write, exit code 2."""
    for arguments, part in (
        (("node", ""), "is not a valid node name"),
        (("pod", "?x"), "is not a valid pod name"),
        (("pod", "-n", "a b", "x"), "is not a valid namespace name"),
        (("top", "--agent-label", "==="), "--agent-label: "),
    ):
        said = setting.run(*arguments)
        assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1), arguments
        assert part in said.stderr
        assert said.stderr.endswith(")\n"), "no remedy"


def test_a_loopback_address_is_no_way_for_the_proxy(setting: Setting) -> None:
    """The API server's proxy does not connect to a loopback, so the shipped listener is a port-forward's alone."""
    with agent(setting) as port:
        setting.add_agent("agent-c", port, "127.0.0.1")
        answer = setting.run("node", NODE, "--via", "proxy", token=setting.cluster.tokens["admin"])
        assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)


def test_kubectl_finds_the_plugin(setting: Setting) -> None:
    """The real kubectl calls it as `kubectl podslice` and completes its words."""
    kubectl = find("kubectl")
    if kubectl is None:
        pytest.skip(f"no kubectl: {HOW}")
    config = setting.folder / "admin.json"
    config.write_text(json.dumps(setting.cluster.kubeconfig()))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(config), "PATH": path}
    with agent(setting) as port:
        setting.add_agent("agent-d", port, "10.0.0.9")

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([kubectl, *words], capture_output=True, text=True, env=environment)

        top = run("podslice", "top", "--agent-namespace", setting.namespace)
        assert (top.returncode, NODE in top.stdout, top.stderr) == (0, True, "")
        assert "node\tShow pods" in run("__complete", "podslice", "no").stdout


def test_the_pod_that_captures_a_node_is_taken(setting: Setting) -> None:
    """A real API server takes the pod of `why --capture`, and refuses it under Pod Security baseline with
    the words that podslice looks for."""
    pod, pods = new_pod(CapturePlan(NODE, "busybox:1.36", setting.namespace)), f"/api/v1/namespaces/{setting.namespace}"
    setting.admin.call("POST", f"{pods}/pods?dryRun=All", pod)
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    setting.admin.call("PATCH", pods, labels, MERGE)
    refused = setting.admin.ask("POST", f"{pods}/pods?dryRun=All", pod)
    assert refused.code == 403
    assert "violates PodSecurity" in refused.message
