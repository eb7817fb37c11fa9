"""Whatever keeps the plugin from an answer is one line with what to do about it, and exit code 2."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import OPENSSL, make

from podslice.entry import kubectl_complete
from tests.kubectl.conftest import Plugin, stored
from tests.kubectl.fakeapi import TOKEN, FakeAPI, fake_api, kubeconfig
from tests.kubectl.liveagent import NODE

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


def fails(plugin: Plugin, *arguments: str) -> str:
    """The one line of an error."""
    answer = plugin(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("podslice: error: ")
    assert line.endswith(")"), "no remedy"
    return line


def test_no_configuration(plugin: Plugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without KUBECONFIG, ~/.kube/config and a pod's service account."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no cluster is configured" in fails(plugin, "top")
    assert "--context: there is no kubeconfig" in fails(plugin, "top", "--context", "dev")
    assert "does not exist" in fails(plugin, "top", "--kubeconfig", str(tmp_path / "none"))


@pytest.mark.parametrize(("arguments", "part"), [
    (("--context", "dew"), "there is no context 'dew' (did you mean dev?)"),
    (("--cluster", "other"), "there is no cluster 'other' (one of lab)"),
    (("--user", "bob"), "there is no user 'bob' (one of ann)"),
    (("--request-timeout", "soon"), "--request-timeout: 'soon' is not a time"),
    (("--request-timeout", "-1s"), "--request-timeout: '-1s' is negative"),
])  # fmt: skip
def test_wrong_names(plugin: Plugin, api: FakeAPI, arguments: tuple[str, ...], part: str) -> None:
    """A name that the kubeconfig does not have is reported with those that it has."""
    assert part in fails(plugin, "top", *arguments)


@pytest.mark.parametrize(("config", "part"), [
    ({"clusters": 1}, "clusters: is not a list"),
    ({"clusters": [{"cluster": {}}]}, "clusters[0]: has no name"),
    ({"current-context": ""}, "there is no current-context"),
    ({"contexts": [{"name": "dev", "context": {"cluster": "gone"}}]}, "there is no cluster 'gone'"),
    ({"clusters": [{"name": "lab", "cluster": {"server": 1}}]}, "clusters[0].cluster.server"),
    ({"clusters": [{"name": "lab", "cluster": {}}]}, "cluster lab: has no server"),
    ({"clusters": [{"name": "lab", "cluster": {"server": "ftp://x"}}]}, "'ftp://x' is not an address"),
    ({"clusters": [{"name": "lab", "cluster": {"server": "https://x:99999"}}]}, "'https://x:99999'"),
    ({"users": [{"name": "ann", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider is not supported"),
    ({"users": [{"name": "ann", "user": {"tokenFile": "/nope"}}]}, "/nope: cannot be read"),
    ({"users": [{"name": "ann", "user": {"client-certificate-data": "eA=="}}]}, "has no client-key"),
    ({"users": [{"name": "ann", "user": {"client-certificate-data": "!"}}]}, "is not base64"),
    ({"users": [{"name": "ann", "user": {"exec": {"command": "x"}}}]}, "apiVersion '' is not supported"),
    ({"clusters": [{"name": "lab", "cluster": {"server": "https://x", "proxy-url": "socks5://x"}}]}, "socks5://"),
    ({"clusters": [{"name": "lab", "cluster": {"server": "https://x", "certificate-authority-data": "eA=="}}]},
     "is not a certificate"),
    ({"kind": "Pod"}, "is not a kubeconfig"),
])  # fmt: skip
def test_broken_kubeconfig(plugin: Plugin, api: FakeAPI, config: dict[str, Any], part: str) -> None:
    """A kubeconfig that does not make sense is named with the place."""
    path = Path(os.environ["KUBECONFIG"])
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    answer = plugin("top")
    assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
    assert part in answer.stderr


def test_expired_token(plugin: Plugin, api: FakeAPI) -> None:
    """The API server's answer to an unknown token."""
    api.tokens = {"other"}
    line = fails(plugin, "top")
    assert "does not accept the credentials of user ann: Unauthorized" in line
    assert "log in again" in line


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_api_server_that_is_not_well(plugin: Plugin, api: FakeAPI, code: int) -> None:
    """Its own words, and who says more."""
    said = {"kind": "Status", "status": "Failure", "message": "etcdserver: request timed out", "code": code}
    api.body = code, "application/json", json.dumps(said).encode()
    line = fails(plugin, "top")
    assert "etcdserver: request timed out (try again; kubectl get --raw '/readyz?verbose' says" in line


@pytest.mark.parametrize("path", [
    "/api/v1/namespaces/podslice/pods", "/api/v1/namespaces/podslice/pods/podslice-agent-n7/portforward",
])  # fmt: skip
@pytest.mark.parametrize("command", [("top",), ("node", NODE), ("audit",)])
def test_missing_rights(plugin: Plugin, api: FakeAPI, agent_port: int, path: str, command: tuple[str, ...]) -> None:
    """The API server's own words, and the roles that are shipped."""
    api.add(NODE, agent_port)
    api.forbidden = (path,)
    line = fails(plugin, *command)
    assert 'User "ann" cannot get it' in line
    assert "podslice-kubectl" in line


def test_no_such_things(plugin: Plugin, api: FakeAPI) -> None:
    """No node, no agent on it, no agent at all, no pod."""
    assert "there is no node n9 (kubectl get nodes lists them)" in fails(plugin, "node", "n9")
    api.objects["/api/v1/nodes/n9"] = {"kind": "Node"}
    assert "no agent runs on node n9" in fails(plugin, "node", "n9")
    assert "no agent runs in namespace podslice" in fails(plugin, "top")
    assert "there is no pod default/x" in fails(plugin, "pod", "default/x")
    assert "'a/b/c' is not a pod" in fails(plugin, "pod", "a/b/c")


@pytest.mark.parametrize(("arguments", "part"), [
    (("node", ""), "'' is not a valid node name"),
    (("node", "../pods"), "'../pods' is not a valid node name"),
    (("top", "One Two"), "'One Two' is not a valid node name"),
    (("explain", "-f", "examples/small.yaml", "--node", "n7?x"), "'n7?x' is not a valid node name"),
    (("pod", "x y"), "'x y' is not a valid pod name"),
    (("pod", "?limit=1"), "'?limit=1' is not a valid pod name"),
    (("pod", "shop/%2e%2e"), "'%2e%2e' is not a valid pod name"),
    (("pod", "-n", "a/../b", "x"), "-n: 'a/../b' is not a valid namespace name"),
    (("top", "--agent-namespace", "a/b"), "--agent-namespace: 'a/b' is not a valid namespace name"),
    (("pending", "--agent-namespace", "A"), "--agent-namespace: 'A' is not a valid namespace name"),
])  # fmt: skip
def test_names_that_are_none(plugin: Plugin, api: FakeAPI, arguments: tuple[str, ...], part: str) -> None:
    """An invalid name never becomes part of a request."""
    assert part in fails(plugin, *arguments)
    assert not any(name in path for path in api.asked for name in (" ", "%", "..", "?x"))


def test_an_agent_behind_a_kubelet_that_is_down(plugin: Plugin, api: FakeAPI, agent_port: int) -> None:
    """It is reported with its node and a remedy, and in a list in its row, also where it is the only one."""
    api.add("n8", 0)
    api.unreachable.add("podslice-agent-n8")
    line = fails(plugin, "node", "n8")
    assert "the agent on n8 cannot be asked: error dialing backend" in line
    assert "kubectl get node n8" in line
    for nodes in ((), (NODE,)):
        for node in nodes:
            api.add(node, agent_port)
        top = plugin("top", "-o", "json")
        assert (top.returncode, top.stderr) == (0, "")
        rows = {row["node"]: row["problem"] for row in json.loads(top.stdout)["items"]}
        assert "error dialing backend" in rows.pop("n8")
        assert rows == dict.fromkeys(nodes, "")


def test_a_node_that_was_asked_for(plugin: Plugin, api: FakeAPI, agent_port: int) -> None:
    """A node to try a pod on that does not exist, or has no agent, is the answer."""
    api.add(NODE, agent_port)
    api.add_pod(stored("web"))
    assert "there is no node n9" in fails(plugin, "pod", "default/web", "--node", "n9")
    api.objects["/api/v1/nodes/n9"] = {"kind": "Node"}
    assert "no agent runs on node n9" in fails(plugin, "pod", "default/web", "--node", "n9")


def test_an_agent_that_crashes(plugin: Plugin, api: FakeAPI) -> None:
    """Its pod is Running for Kubernetes while its container waits for its next start."""
    api.add(NODE, 0)
    api.agents[-1]["status"] = {
        "phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    }  # fmt: skip
    line = fails(plugin, "node", NODE)
    assert "the agent on n7 does not run (CrashLoopBackOff)" in line
    assert "describe pod podslice-agent-n7" in line
    assert line == fails(plugin, "defrag", "--node", NODE, "--undo", "--yes")


def test_an_agent_that_does_not_listen(plugin: Plugin, api: FakeAPI) -> None:
    """A port without listener behind the port-forward, and behind the proxy."""
    name = api.add(NODE, 1)
    assert "error trying to reach service" in plugin("node", NODE, "--via", "proxy").stderr
    del api.ports[name]
    assert "connection refused" in fails(plugin, "node", NODE)
    api.add_pod(stored("web"))
    assert "connection refused" in plugin("pod", "default/web").stdout


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[" * 100_000, b'{"kind": "Other"}', b'{"apiVersion": 1, "node": []}']
)
def test_whatever_answers_in_place_of_an_agent(plugin: Plugin, api: FakeAPI, body: bytes) -> None:
    """Another program at the agent's port is reported as such."""
    api.add(NODE, 0)
    api.body = None
    list_of_agents = json.dumps({"items": api.agents}).encode()

    def answer(handler: Any) -> None:
        is_list = handler.path.startswith("/api/v1/namespaces/podslice/pods?")
        handler._send(200, "application/json", list_of_agents if is_list else body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.kubectl.fakeapi._Handler.do_GET", answer)
        for command in (("node", NODE), ("node", NODE, "-o", "json"), ("explain", "-f", "-", "--node", NODE)):
            found = plugin(*command, "--via", "proxy")
            assert (found.returncode, len(found.stderr.splitlines())) == (2, 1), found


@pytest.mark.parametrize(
    "body", [(200, "text/html", b"<html>log in</html>"), (302, "text/html", b""), (503, "text/plain", b"x")]
)
def test_whatever_answers_in_place_of_an_api_server(plugin: Plugin, api: FakeAPI, body: tuple[int, str, bytes]) -> None:
    """A login page or a load balancer is not taken for a cluster."""
    api.body = body
    fails(plugin, "top")


def test_unreachable(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No listener, no answer, no such host, a connection that breaks."""

    def use(server: str) -> None:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server)))

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        use(f"https://127.0.0.1:{port}")
        assert "cannot be reached: Connection refused (is the API server up?" in fails(plugin, "top")
        silent.listen()
        assert "does not answer" in fails(plugin, "top", "--request-timeout", "200ms")
    use("https://no-such-host.invalid")
    assert "no host of that name" in fails(plugin, "top")


@needs_openssl
@pytest.mark.process
def test_certificates(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority that is unknown, another name, a server without TLS: each has its own remedy; right ones are
    accepted, by file, by data, under another name, or unseen."""
    import base64

    found = make(tmp_path / "certs", name="DNS:kubernetes")
    data = base64.b64encode(found.authority.read_bytes()).decode()
    with fake_api(found.server()) as api:
        server = f"https://127.0.0.1:{api.server_address[1]}"

        def use(server: str = server, **cluster: Any) -> str:
            options = {name.replace("_", "-"): value for name, value in cluster.items()}
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server, cluster=options)))
            return plugin("top").stderr

        assert "the certificate is not trusted" in use()
        assert "the certificate is for another name" in use(certificate_authority=str(found.authority))
        assert "set tls-server-name of cluster lab" in use(certificate_authority_data=data)
        for good in (
            {"certificate_authority": "certs/ca.crt", "tls_server_name": "kubernetes"},
            {"certificate_authority_data": data, "tls_server_name": "kubernetes"},
            {"insecure_skip_tls_verify": True},
        ):
            assert "no agent runs in namespace podslice" in use(**good)
        assert "breaks the connection off" in use(server.replace("https", "http"))
    with fake_api() as plain:
        assert "does not speak TLS" in use(f"https://127.0.0.1:{plain.server_address[1]}")


@pytest.mark.process
def test_credential_plugin(plugin: Plugin, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program beside the kubeconfig prints the token, and runs again when that is rejected; one that fails, is
    missing or prints something else is reported, with its own hint."""
    program, count = tmp_path / "login", tmp_path / "count"

    def use(script: str, **more: Any) -> None:
        program.write_text(f"#!{sys.executable}\nimport json, os, sys, pathlib\n{script}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        plugin_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", **more}
        server = f"http://127.0.0.1:{api.server_address[1]}"
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server, user={"exec": plugin_})))

    printed = """
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
count = pathlib.Path(sys.argv[1])
count.write_text(str(int(count.read_text()) + 1) if count.exists() else "1")
token = os.environ["WORD"] if count.read_text() != "1" else "old"
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {"token": token}}))
"""
    use(printed, args=[str(count)], env=[{"name": "WORD", "value": TOKEN}])
    assert "no agent runs" in plugin("top").stderr
    assert count.read_text() == "2"
    use("sys.exit('the session is over')")
    assert "ended with 1: the session is over (log in again)" in fails(plugin, "top")
    use("print('{}')")
    assert "printed no ExecCredential" in fails(plugin, "top")
    use("", command="./gone", installHint="get it from the cloud")
    assert "cannot be run: No such file or directory (get it from the cloud)" in fails(plugin, "top")


@pytest.mark.process
@pytest.mark.parametrize("field", ["certificate-authority", "certificate-authority-data"])
def test_credential_plugin_knows_the_cluster(
    field: str, plugin: Plugin, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With provideClusterInfo a plugin gets the server and the authority's certificate, from a file too, in base64."""
    program, seen = tmp_path / "login", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" > {seen}\n')
    program.chmod(0o755)
    (tmp_path / "ca.crt").write_text("PEM")
    server = f"http://127.0.0.1:{api.server_address[1]}"
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "provideClusterInfo": True}
    cluster = {field: "ca.crt" if field == "certificate-authority" else "UEVN"}
    config = kubeconfig(tmp_path, server, user={"exec": login}, cluster=cluster)
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert "printed no ExecCredential" in fails(plugin, "top")
    given = json.loads(seen.read_text())["spec"]["cluster"]
    assert given == {"server": server, "certificate-authority-data": "UEVN"}


def test_completion(
    plugin: Plugin, api: FakeAPI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubectl completes commands, options and names of nodes; a cluster that does not answer completes nothing."""

    def completed(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-podslice", *words])
        kubectl_complete()
        return capsys.readouterr().out.splitlines()

    api.add(NODE, 1)
    assert [line.split("\t")[0] for line in completed("")] == [
        "audit", "capture", "defrag", "explain", "fit", "fragmentation", "node", "pending", "pod", "top", "upgrade",
        "why", ":4",
    ]  # fmt: skip
    assert completed("node", "") == [NODE, ":4"]
    assert completed("explain", "--node", "n") == [NODE, ":4"]
    assert completed("explain", "-f", "")[-1] == ":0"
    assert any(line.startswith("--agent-namespace") for line in completed("top", "--agent"))
    api.tokens = set()
    assert completed("node", "") == [":4"]
