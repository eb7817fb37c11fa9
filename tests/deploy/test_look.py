"""The program of `helm test`, with an API server and a service that this test plays."""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import Certificates, make

from tests.deploy.cases import EVERYTHING
from tests.deploy.rendering import CHART, ON, by_kind_and_name, needs_helm, render

LOOK = CHART / "files" / "look.py"
AGENTS, SERVICE = "podslice/daemonsets/podslice-agent", "podslice/statefulsets/podslice-cluster"
READY = {
    f"/apis/apps/v1/namespaces/{AGENTS}": {"desiredNumberScheduled": 3, "numberReady": 3},
    f"/apis/apps/v1/namespaces/{SERVICE}": {"replicas": 2, "readyReplicas": 2},
}


class Played(HTTPServer):
    """Answers each path with a status, to whom it knows by a token, and is ready or not."""

    statuses: dict[str, dict[str, int]]
    ready = 200

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server: Any = self.server
            known = self.headers.get("Authorization") == "Bearer secret"
            found = server.statuses.get(self.path)
            code = server.ready if self.path == "/readyz" else 200 if known and found else 404
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps({"status": found}).encode())

        def log_message(self, *_: Any) -> None:
            pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[Played]:
    with Played(("127.0.0.1", 0), Played.Handler) as played:
        played.statuses = {path: dict(status) for path, status in READY.items()}
        played.socket = certificates.server().wrap_socket(played.socket, server_side=True)
        thread = threading.Thread(target=played.serve_forever)
        thread.start()
        yield played
        played.shutdown()
        thread.join()


def look(
    server: Played, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run it as the pod does; what is not well at once is not waited for."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_bytes(authority.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
    program = runpy.run_path(str(LOOK))
    monkeypatch.setitem(program["main"].__globals__, "ACCOUNT", str(tmp_path))
    monkeypatch.setitem(program["main"].__globals__, "AUTHORITY", str(tmp_path / "ca.crt"))
    monkeypatch.setitem(program["main"].__globals__, "PATIENCE", 0)
    with pytest.raises(SystemExit) as ended:
        program["main"]([AGENTS, SERVICE, f"127.0.0.1:{server.server_port}"])
    return int(ended.value.code or 0), capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "ready", "said"),
    [
        ({}, 200, "all is ready"),
        ({AGENTS: {"desiredNumberScheduled": 3, "numberReady": 2}}, 200, f"{AGENTS}: 2 of 3 are ready"),
        ({AGENTS: {"desiredNumberScheduled": 0, "numberReady": 0}}, 200, "no node or replica is wanted"),
        ({SERVICE: {"replicas": 2}}, 200, f"{SERVICE}: 0 of 2 are ready"),
        ({SERVICE: {}}, 200, f"{SERVICE}: HTTP Error 404"),
        ({}, 503, "HTTP Error 503"),
    ],
)
def test_what_is_not_well(
    server: Played, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], change: dict[str, dict[str, int]], ready: int, said: str,
) -> None:  # fmt: skip
    """Agents and replicas that are not ready, workloads that want nothing or are not there, and a service that says
    so itself, each in one line, and the test fails."""
    for name, status in change.items():
        server.statuses[f"/apis/apps/v1/namespaces/{name}"] = status
    server.ready = ready
    code, output = look(server, certificates.authority, tmp_path, monkeypatch, capsys)
    assert said in output
    assert (code, len(output.splitlines())) == (0 if said == "all is ready" else 1, 1)


def test_another_authority(
    server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service's certificate must be one of the authority that agents know."""
    other = make(tmp_path / "other")
    code, output = look(server, other.authority, tmp_path, monkeypatch, capsys)
    assert (code, "CERTIFICATE_VERIFY_FAILED" in output) == (1, True)


@needs_helm
def test_the_chart_asks_for_all_there_is() -> None:
    """The pod looks at every DaemonSet, at the StatefulSet and at the service, and its account may get them, in both
    namespaces."""
    for values in (ON, EVERYTHING):
        objects = render(**values)
        found = by_kind_and_name(objects)
        (pod,) = (one for (kind, _), one in found.items() if kind == "Pod")
        (container,) = pod["spec"]["containers"]
        sets = {
            f"{one['metadata']['namespace']}/{one['kind'].lower()}s/{one['metadata']['name']}"
            for one in objects
            if one["kind"] in ("DaemonSet", "StatefulSet")
        }
        (config,) = (one for (kind, name), one in found.items() if kind == "ConfigMap" and name.endswith("-scheduler"))
        host = f"{config['metadata']['name'].removesuffix('-scheduler')}-cluster.{config['metadata']['namespace']}.svc"
        assert set(container["args"]) == {*sets, f"{host}:9099"}
        roles = [one for one in objects if one["kind"] == "Role" and one["metadata"]["name"].endswith("-test")]
        assert {one["metadata"]["namespace"] for one in roles} == {name.partition("/")[0] for name in sets}
        assert found["ConfigMap", pod["metadata"]["name"]]["data"]["look.py"].strip() == LOOK.read_text().strip()
        hooks = [one for one in objects if one["metadata"]["labels"]["app.kubernetes.io/name"] == "podslice-test"]
        assert {one["metadata"]["annotations"]["helm.sh/hook"] for one in hooks} == {"test"}
