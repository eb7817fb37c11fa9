"""`podslice cluster` as a process, beside an API server on paper: its log, its checks, and addresses that are taken."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from e2e.certificates import OPENSSL, Certificates, make

from podslice.cluster.checks import REVIEWS as RIGHTS
from podslice.cluster.checks import check_certificate
from podslice.cluster.command import cluster
from podslice.cluster.journal.callers import REVIEWS as TOKENS
from podslice.cluster.running import ClusterOptions
from podslice.cluster.running import check as run_check
from podslice.service.certificates import CertificateFiles
from podslice.service.http.access import check_free, listening_error
from podslice.values.errors import InputError

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)"),
]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/podslice/leases/podslice-scheduler"


class PaperServer(ThreadingHTTPServer):
    """Lists nothing, watches nothing, and allows what `denied` does not name; `holder` has the Lease."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.denied: set[tuple[str, str]] = set()
        self.holder = ""
        self.over = threading.Event()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a configuration of clients."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        document = {
            "clusters": [cluster], "contexts": [context], "current-context": "x",
            "users": [{"name": "u", "user": {"token": "t"}}],
        }  # fmt: skip
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file


class _Answer(BaseHTTPRequestHandler):
    server: PaperServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "watch=1" in self.path:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.server.over.wait(60)
            self.close_connection = True
        elif self.path == LEASE:
            self._send({"spec": {"holderIdentity": self.server.holder}})
        else:
            self._send({"metadata": {"resourceVersion": "1"}, "items": []})

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == RIGHTS:
            asked = sent["spec"]["resourceAttributes"]
            self._send({"status": {"allowed": (asked["verb"], asked["resource"]) not in self.server.denied}})
        else:
            assert self.path == TOKENS
            self._send({"status": {"authenticated": False}})

    def _send(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def api() -> Iterator[PaperServer]:
    server = PaperServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("tls"), name="DNS:localhost,IP:127.0.0.1")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Addresses:
    """Free addresses for all listeners, and the options that name them."""

    def __init__(self, made: Certificates) -> None:
        self.ports = {name: free_port() for name in ("", "metrics-", "journal-", "page-")}
        self.options = [f"--{name}address=127.0.0.1:{port}" for name, port in self.ports.items()]
        self.options += [f"--tls-cert={made.certificate}", f"--tls-key={made.key}", f"--client-ca={made.authority}"]


def command(api: PaperServer, folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = os.environ | {"KUBECONFIG": str(api.kubeconfig(folder))}
    return subprocess.Popen(
        [sys.executable, "-m", "podslice", "cluster", *options],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def read_until(process: subprocess.Popen[str], *events: str) -> list[dict[str, Any]]:
    """Read the log until it has had all these events."""
    assert process.stderr is not None
    lines, missing = list[dict[str, Any]](), set(events)
    while missing:
        line = process.stderr.readline()
        assert line, f"the process ended before it said {missing}"
        lines.append(json.loads(line))
        missing.discard(lines[-1]["event"])
    return lines


def test_a_life_in_its_log(api: PaperServer, tmp_path: Path, made: Certificates) -> None:
    """The log has, each once and as JSON: the start, the certificate, the lists, who leads, a handshake that failed,
    also gRPC's own, the refused stream of a stranger, and the end."""
    api.holder = f"{socket.gethostname()}_1234"
    addresses = Addresses(made)
    process = command(api, tmp_path, *addresses.options, "--lease=podslice/podslice-scheduler")
    lines = read_until(process, "serving", "leads", "certificate loaded")
    while len([one for one in lines if one["event"] == "listed"]) < 3:
        lines += read_until(process, "listed")
    events = [one["event"] for one in lines]
    assert events[0] == "starting"
    for event in ("starting", "certificate loaded", "serving", "leads"):
        assert events.count(event) == 1
    (serving,) = (one for one in lines if one["event"] == "serving")
    assert [serving[name] for name in ("extender", "metrics", "journals")] == list(addresses.ports.values())[:3]
    listed = {one["path"]: (one["objects"], one["lists"]) for one in lines if one["event"] == "listed"}
    assert listed == {
        "/api/v1/nodes": (0, 1), "/api/v1/pods": (0, 1), "/apis/podslice.io/v1alpha1/nodestates": (0, 1)
    }  # fmt: skip

    with urllib.request.urlopen(f"http://127.0.0.1:{addresses.ports['metrics-']}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert "podslice_cluster_leader 1.0" in metrics
    assert 'podslice_cluster_certificate_expiry_timestamp_seconds{certificate="clientAuthority"}' in metrics

    with socket.create_connection(("127.0.0.1", addresses.ports["journal-"])) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        (failed,) = (one for one in read_until(process, "handshake failed") if one["event"] == "handshake failed")
    assert failed["connection"] == "--journal-address"
    assert "HTTP_REQUEST" in failed["what"]

    process.send_signal(signal.SIGTERM)
    out, rest = process.communicate(timeout=60)
    last = [json.loads(line) for line in rest.splitlines()]
    assert [one["event"] for one in last] == ["stopping", "stopped"]
    assert (last[0]["signal"], out, process.returncode) == ("SIGTERM", "", 0)


def invoke(api: PaperServer, folder: Path, *options: str) -> tuple[int, str]:
    """Run the command here until it ends, and return the exit code and what it says."""
    environment = {"KUBECONFIG": str(api.kubeconfig(folder))}
    ran = CliRunner().invoke(cluster, options, env=environment)
    return (2, str(ran.exception)) if isinstance(ran.exception, InputError) else (ran.exit_code, ran.output)


@pytest.mark.parametrize("name", ["", "metrics-", "page-"])
def test_an_address_that_is_taken(api: PaperServer, tmp_path: Path, made: Certificates, name: str) -> None:
    """The error of a start, and of a check, names the option and the address."""
    addresses = Addresses(made)
    option, _, where = addresses.options[list(addresses.ports).index(name)].partition("=")
    text = f"{option}: {where} cannot be listened on: Address already in use (free it or choose another"
    with socket.create_server(("127.0.0.1", addresses.ports[name])):
        for more in ((), ("--check-config",)):
            code, said = invoke(api, tmp_path, *addresses.options, *more)
            assert (code, said.startswith(text)) == (2, True), said


def test_addresses_that_are_not_here() -> None:
    """A name of which one address is of this machine will do; one of which none is, or no name at all, is an error."""
    check_free("127.0.0.1", 0)
    with pytest.raises(OSError) as error:  # noqa: PT011  its number counts
        check_free("192.0.2.1", 0)
    assert error.value.errno == errno.EADDRNOTAVAIL
    found = listening_error(error.value, "192.0.2.1", 9097, "--journal-address")
    assert str(found).startswith("--journal-address: 192.0.2.1:9097 cannot be listened on: Cannot assign requested")
    nobody = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert "cannot be listened on: Name or service not known" in str(listening_error(nobody, "x", 1, "--address"))


def test_one_address_of_a_name_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` has an IPv6 address also where the machine has none."""
    here, there = ((socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "192.0.2.1"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: [there, here])
    check_free("localhost", 0)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: [there, there])
    with pytest.raises(OSError, match="Cannot assign"):
        check_free("localhost", 0)


def test_two_services_on_one_address(api: PaperServer, tmp_path: Path, made: Certificates) -> None:
    """A second service does not share the agents of the first: it fails."""
    first, second = Addresses(made), Addresses(made)
    second.options[2] = first.options[2]
    process = command(api, tmp_path, *first.options)
    try:
        read_until(process, "serving")
        code, said = invoke(api, tmp_path, *second.options)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    where = f"127.0.0.1:{first.ports['journal-']}"
    assert (code, said.partition(" (")[0]) == (
        2, f"--journal-address: {where} cannot be listened on: Address already in use"
    )  # fmt: skip


def test_checks(api: PaperServer, tmp_path: Path, made: Certificates) -> None:
    """Certificates, addresses and rights are checked; what is wrong is named with its option."""
    options = Addresses(made).options
    lease = "--lease=podslice/podslice-scheduler"
    code, said = invoke(api, tmp_path, "--check-config", *options, lease)
    assert code == 0
    assert "certificate: server until 20" in said
    assert ", clientAuthority until 20" in said
    assert "are free" in said
    assert "rights: all 13" in said
    assert said.splitlines()[-1].startswith("good; kube-scheduler asks at 127.0.0.1:")

    api.denied = {("patch", "pods"), ("get", "leases")}
    code, said = invoke(api, tmp_path, "--check-config", *options, lease)
    assert code == 2
    assert "rights: the API server does not allow patch pods/status (nominations), " in said
    assert "get leases.coordination.k8s.io (leadership)" in said
    assert "ClusterRole podslice-cluster" in said

    api.server_close()
    code, said = invoke(api, tmp_path, "--check-config", *options)
    assert code == 0
    assert "rights: not checked, " in said

    other = make(tmp_path / "other")
    for wrong, text in (
        (f"--tls-cert={made.key}", f"{made.key}: --tls-cert: has a private key and no certificate"),
        (f"--tls-key={made.certificate}", f"{made.certificate}: --tls-key: has a certificate and no private key"),
        (f"--tls-key={other.key}", "--tls-cert, --tls-key: the key is not that of the certificate"),
        (f"--client-ca={made.key}", f"{made.key}: --client-ca: has a private key and no certificate"),
        ("--client-ca=/nowhere", "/nowhere: --client-ca: cannot be read: No such file or directory"),
        ("--lease=podslice", "--lease: 'podslice' is not a Lease"),
    ):
        code, said = invoke(api, tmp_path, "--check-config", *options, wrong)
        assert (code, text in said) == (2, True), said


def test_an_expired_certificate(made: Certificates) -> None:
    """It is an error of the check, with the time and the option; one that will soon expire is told."""
    files = CertificateFiles(str(made.certificate), str(made.key), str(made.authority))
    checked = run_check(ClusterOptions(tls=files))
    assert checked.certificate is not None
    ends = checked.certificate.expiries
    assert "(soon)" not in check_certificate(checked, ends["server"] - 20 * 86400)
    assert "(soon)" in check_certificate(checked, ends["server"] - 86400)
    with pytest.raises(InputError, match="--tls-cert: expired at 20"):
        check_certificate(checked, ends["server"])
    checked.certificate.loaded.expiries["server"] += 86400
    with pytest.raises(InputError, match="--client-ca: expired at 20"):
        check_certificate(checked, ends["clientAuthority"])
    assert check_certificate(run_check(ClusterOptions()), 0.0) == "certificate: none"
