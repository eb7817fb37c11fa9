"""The way from the API server to a kubelet that only this machine's loopback leads to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from e2e.certificates import make
from e2e.controlplane import ControlPlane, Settings
from e2e.egress import Egress
from e2e.packages import FetchError
from e2e.programs import find_programs
from e2e.sharedplane import prepare_namespace

ADDRESS, PORT = "10.96.0.15", 10250


def _ask(egress: Egress, target: str) -> socket.socket:
    asked = socket.socket(socket.AF_UNIX)
    asked.settimeout(20)
    asked.connect(egress.path)
    asked.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return asked


def test_what_is_asked_for_is_reached_both_ways() -> None:
    """The client's bytes reach the port of that address, and the answer comes back; each side learns that the other
    has closed."""
    with socket.create_server(("127.0.0.1", 0)) as kubelet:
        kubelet.settimeout(20)
        with Egress({f"{ADDRESS}:{PORT}": kubelet.getsockname()[1]}) as egress:
            with _ask(egress, f"{ADDRESS}:{PORT}") as asked:
                reached, _ = kubelet.accept()
                with asked.makefile("rb") as said:
                    assert said.readline() == b"HTTP/1.1 200 Connection established\r\n"
                    assert said.readline() == b"\r\n"
                    asked.sendall(b"question")
                    assert reached.recv(100) == b"question"
                    reached.sendall(b"answer")
                    assert said.read(6) == b"answer"
            with reached:
                assert reached.recv(1) == b""


def test_any_other_address_is_refused() -> None:
    """The proxy leads to kubelets that it was told of, nowhere else."""
    with Egress({}) as egress, _ask(egress, "10.96.0.99:10250") as asked, asked.makefile("rb") as said:
        assert said.readline() == b"HTTP/1.1 502 Bad Gateway\r\n"


class _Kubelet(BaseHTTPRequestHandler):
    connection: ssl.SSLSocket

    def do_GET(self) -> None:
        subject = dict(pair for part in (self.connection.getpeercert() or {})["subject"] for pair in part)  # type: ignore[misc]
        data = f"{subject['organizationName']} asked for {self.path.partition('?')[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def _kubelet(folder: Path, authority: Path) -> Iterator[int]:
    """A kubelet that knows clients by certificates of this authority; its port."""
    context = make(folder, name=f"IP:{ADDRESS}").server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Kubelet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.slow
@pytest.mark.conformance
def test_a_real_api_server_comes_that_way(tmp_path: Path) -> None:
    """With the egress's options kube-apiserver asks a node's kubelet through it, as a member of system:masters."""
    try:
        programs = find_programs()
    except FetchError as error:
        pytest.skip(str(error))
    folder = tmp_path / "plane"
    with ControlPlane(programs, folder):
        pass
    with _kubelet(tmp_path / "kubelet", folder / "ca.crt") as port, Egress({f"{ADDRESS}:{PORT}": port}) as egress:
        settings = Settings(api_server=egress.options(folder))
        with ControlPlane(programs, folder, settings) as plane, plane.api() as api:
            prepare_namespace(api, "default")
            status = {
                "addresses": [{"type": "InternalIP", "address": ADDRESS}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
            }
            api.call("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "status": status})
            spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
            api.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
            answer = api.ask("GET", "/api/v1/namespaces/default/pods/p/log")
    assert answer.body["message"] == "system:masters asked for /containerLogs/default/p/c"
