"""A Kubernetes control plane on this machine's loopback: etcd and the API server, with or without controllers and the
scheduler. For the virtual machine's kubelet, and for tests that need an API server only.

    with ControlPlane(find_programs(), folder) as plane:
        with plane.api() as api:
            api.call("GET", "/api/v1/namespaces")
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from fcntl import LOCK_EX, flock
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from e2e.certificates import make, signing_key
from e2e.programs import Programs

Json = dict[str, Any]
SERVICE_ADDRESS = "10.96.0.1"
"""The address of the service `kubernetes` in the cluster."""
ADMIN, SCHEDULER, CONTROLLERS = "admin", "system:kube-scheduler", "system:kube-controller-manager"
ACCOUNTS = ("serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller")
"""The controllers that pods with service accounts need."""
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_READY = 900.0
"""Seconds. What stops is seen at once; a machine with other work may need minutes."""
_TRIES = 3
"""On a busy machine hooks of a starting API server give up after 30 s, and it ends."""
_PORTS = range(20_000, 32_000)
_GROUPS = {ADMIN: "system:masters"}
_SAN = f"IP:127.0.0.1,IP:10.0.2.2,IP:{SERVICE_ADDRESS},DNS:localhost,DNS:kubernetes.default.svc"


class ControlPlaneError(Exception):
    """A program of the control plane did not start; the text has its last words."""


class StatusError(Exception):
    """The API server answered with a Status: its code and the whole answer."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code = code
        self.status = status


class Settings(NamedTuple):
    """`nodes` are names that may call as kubelets; without `controllers` no controller manager runs."""

    nodes: tuple[str, ...] = ()
    gates: Mapping[str, bool] = {}
    controllers: tuple[str, ...] = ()
    scheduler: bool = False
    plugins: tuple[str, ...] = ("NodeRestriction",)
    api_server: tuple[str, ...] = ()
    """More options of the API server."""
    controller_manager: tuple[str, ...] = ()
    """More options of the controller manager."""
    authority: str = "complete"
    """The kind of its certificates (`certificates.CA_EXTENSIONS`)."""


class Answer(NamedTuple):
    """An answer, with the texts of its `Warning` headers."""

    code: int
    body: Json
    warnings: list[str]

    @property
    def message(self) -> str:
        """The message of a refusal."""
        return str(self.body.get("message", ""))


def warning_text(header: str) -> str:
    """The quoted text of a Warning header: `299 - "text"`."""
    return header.split('"', 1)[-1].rsplit('"', 1)[0].replace('\\"', '"').replace("\\\\", "\\")


class Api:
    """Calls to an API server as one user, over one connection. Not for several threads at a time."""

    def __init__(self, port: int, authority: Path, token: str) -> None:
        self._token = token
        context = ssl.create_default_context(cafile=str(authority))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=300)
        self.warnings: list[str] = []
        """The texts of the last answer's `Warning` headers."""

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Json:
        """The answer. Raises `StatusError` for any other than a good one."""
        answer = self.ask(method, path, body, kind)
        if answer.code >= 300:
            raise StatusError(answer.code, answer.body)
        return answer.body

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """The answer, good or bad. No blanks between values, as Go's clients write: the server keeps some of them."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"}
        answer = self._answer(method, path, data, headers)
        text = answer.read()
        self.warnings = [warning_text(header) for header in answer.headers.get_all("Warning") or []]
        try:
            found: Json = json.loads(text)
        except ValueError:
            found = {"message": text.decode(errors="replace")[:500]}
        return Answer(answer.status, found, self.warnings)

    def column(self, path: str, name: str) -> dict[str, str]:
        """A column of what kubectl prints of a list, or of one object, by the objects' names."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        table = json.loads(self._answer("GET", path, None, headers).read())
        at = [column["name"] for column in table["columnDefinitions"]].index(name)
        return {row["cells"][0]: row["cells"][at] for row in table["rows"]}

    def _answer(self, method: str, path: str, data: bytes | None, headers: Json) -> http.client.HTTPResponse:
        """Send a request, and retry once on a new connection: a kept one may have been closed meanwhile."""
        try:
            self._connection.request(method, path, data, headers)
            return self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError, ssl.SSLError):
            self._connection.close()
            self._connection.request(method, path, data, headers)
            return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ControlPlane:
    """Runs from `start` to `stop`, or as a context; it ends with the thread that started it, however that ends.
    Everything is in `folder`: a copy of it (`keep`) starts again with the same certificates, tokens and objects."""

    def __init__(self, programs: Programs, folder: Path, settings: Settings | None = None) -> None:
        self._programs = programs
        self.folder = folder
        self._settings = settings or Settings()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd_port = 0
        self.port = 0
        self.authority = folder / "ca.crt"

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until the API server is ready. Raises `ControlPlaneError`, `FetchError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "tls.crt").exists():
            self._write_tokens()
            signing_key(self.folder)
            make(self.folder, self._settings.authority, _SAN)
        self._etcd_port = free_port(2)
        self._start("etcd", str(self._programs.etcd), str(self.folder / "etcd.data"), str(self._etcd_port))
        self._wait("etcd", lambda: "ready" in self.log("etcd"))
        self.port = free_port()
        self.start_server()
        if self._settings.scheduler:
            self._client("kube-scheduler", SCHEDULER)
        if self._settings.controllers:
            self._client(
                "kube-controller-manager", CONTROLLERS,
                "--use-service-account-credentials=true", f"--controllers={','.join(self._settings.controllers)}",
                f"--service-account-private-key-file={self.folder / 'sa.key'}",
                f"--root-ca-file={self.authority}", *self._settings.controller_manager,
            )  # fmt: skip

    def start_server(self) -> None:
        """Start the API server, at its port, again if it ends before it is ready. Raises `ControlPlaneError`."""
        name = "kube-apiserver"
        for attempt in range(1, _TRIES + 1):
            self._start(name, str(self._programs.hyperkube), name, *self._api_options())
            try:
                self._wait(name, self._ready)
                break
            except ControlPlaneError:
                if attempt == _TRIES or self._running[name].poll() is None:
                    raise

    def start_program(self, name: str, *command: str) -> None:
        """Start another program, which ends with the others."""
        self._start(name, *command)

    def start_scheduler(
        self, configuration: Json, *options: str, name: str = "kube-scheduler", token: str = ""
    ) -> None:
        """A scheduler with these members of a KubeSchedulerConfiguration; several run under different names. With
        `token` it runs as that user, otherwise the cluster's own scheduler."""
        client = self.folder / f"{name}.json"
        client.write_text(json.dumps(self.kubeconfig_of(token or self.token(SCHEDULER))))
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(client), "qps": 2000, "burst": 4000},
            "leaderElection": {"leaderElect": False},
        } | configuration  # fmt: skip
        config = self.folder / f"{name}.config"
        config.write_text(json.dumps(whole))
        whom = [f"--{which}-kubeconfig={client}" for which in ("authentication", "authorization")]
        command = [str(self._programs.hyperkube), "kube-scheduler", f"--config={config}", *whom, "--secure-port=0"]
        self._start(name, *command, *options)

    def processor_seconds(self) -> dict[str, float]:
        """Return the resources that each running program has used."""
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for name, process in self._running.items():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / ticks
        return found

    def stop(self, *names: str) -> None:
        """Stop these programs, or all; etcd ends cleanly."""
        for name in [name for name in reversed(self._running) if name in names or not names]:
            process = self._running.pop(name)
            process.terminate() if name == "etcd" else process.kill()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def keep(self, target: Path) -> None:
        """A copy of the folder, whose control plane is stopped."""
        assert not self._running
        shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns("*.log"))

    def api(self, user: str = ADMIN) -> Api:
        return Api(self.port, self.authority, self.token(user))

    def token(self, user: str) -> str:
        """The bearer token of a user."""
        found: str = json.loads((self.folder / "tokens.json").read_text())[user]
        return found

    def kubeconfig(self, user: str, server: str | None = None) -> Json:
        """Return the kubeconfig of `user`, with `server` as the address of the API server where that is not the
        loopback's."""
        return self.kubeconfig_of(self.token(user), server)

    def kubeconfig_of(self, token: str, server: str | None = None) -> Json:
        """Return the kubeconfig for a token."""
        cluster = {"server": server or f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.authority)}
        return kubeconfig(cluster, token)

    def log(self, program: str) -> str:
        """Return the log of a program."""
        path = self.folder / f"{program}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _write_tokens(self) -> None:
        users = [ADMIN, SCHEDULER, CONTROLLERS, *(f"system:node:{name}" for name in self._settings.nodes)]
        tokens = {user: secrets.token_hex(16) for user in users}
        (self.folder / "tokens.json").write_text(json.dumps(tokens))
        lines = []
        for user, token in tokens.items():
            group = "system:nodes" if user.startswith("system:node:") else _GROUPS.get(user)
            lines.append(f"{token},{user},{user}" + (f',"{group}"' if group else ""))
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    def _api_options(self) -> list[str]:
        own, gates = self.folder, self._settings.gates
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}", f"--tls-cert-file={own / 'tls.crt'}",
            f"--tls-private-key-file={own / 'tls.key'}", f"--client-ca-file={self.authority}",
            f"--token-auth-file={own / 'tokens.csv'}", "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(self._settings.plugins)}", "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={own / 'sa.pub'}", f"--service-account-signing-key-file={own / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true",
            *([f"--feature-gates={gates_text(gates)}"] if gates else []),
            *self._settings.api_server,
        ]  # fmt: skip

    def _client(self, program: str, user: str, *options: str) -> None:
        """A program that works for the API server."""
        config = self.folder / f"{program}.json"
        config.write_text(json.dumps(self.kubeconfig(user)))
        whom = [f"--{which}kubeconfig={config}" for which in ("", "authentication-", "authorization-")]
        self._start(
            program, str(self._programs.hyperkube), program, *whom, "--secure-port=0", "--leader-elect=false", *options
        )

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY
        while not ready():
            if self._running[name].poll() is not None or time.monotonic() > deadline:
                words = " | ".join(self.log(name).strip().splitlines()[-3:])
                raise ControlPlaneError(f"{name} is not ready: {words or 'it said nothing'}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        with self.api() as api:
            try:
                api.call("GET", "/readyz")
            except (StatusError, OSError, http.client.HTTPException):
                return False
        return True


def gates_text(gates: Mapping[str, bool]) -> str:
    """Feature gates as options of programs name them."""
    return ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())


def kubeconfig(cluster: Json, token: str) -> Json:
    """A kubeconfig with one user and one cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }


def free_port(count: int = 1) -> int:
    """Return the first of several neighbouring free ports of the loopback. All processes of a user take turns, below
    the ports that the kernel gives to connections, so that no other takes it before it is listened on."""
    with (Path(tempfile.gettempdir()) / f"podslice-ports-{os.getuid()}").open("a+") as turns:
        flock(turns, LOCK_EX)
        turns.seek(0)
        first = int(turns.read() or _PORTS.start)
        while True:
            first = first if first + count <= _PORTS.stop else _PORTS.start
            if all(_free(first + more) for more in range(count)):
                break
            first += 1
        turns.truncate(0)
        turns.write(str(first + count))
    return first


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
