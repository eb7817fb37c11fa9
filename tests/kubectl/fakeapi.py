"""An API server as far as `kubectl podslice` asks one: who may do what, a few objects, and the ways to a pod's port."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
_PROXY = re.compile(r"/api/v1/namespaces/[^/]+/pods/(?:https:)?([^/:]+):(\d+)/proxy(/.*)")
_FORWARD = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/]+)/portforward")
_EXEC = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/]+)/exec")
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TOKEN = "good-token"


def agent_pod(name: str, node: str, *, port: int = 9096, secret: str = "", phase: str = "Running") -> Json:
    """A pod of the DaemonSet, as the API server has it."""
    ports = [{"name": "status", "containerPort": port}]
    volumes = [{"name": "status-token", "secret": {"secretName": secret}}] if secret else []
    return {
        "metadata": {"name": name, "namespace": "podslice", "labels": {"app.kubernetes.io/name": "podslice"}},
        "spec": {"nodeName": node, "containers": [{"name": "agent", "ports": ports}], "volumes": volumes},
        "status": {"phase": phase},
    }


def service_pod(name: str, *, port: int = 9101, secret: str = "", phase: str = "Running") -> Json:
    """A replica of `podslice cluster`, as the API server has it."""
    volumes = [{"name": "page-token", "secret": {"secretName": secret}}] if secret else []
    ports = [{"name": "page", "containerPort": port}]
    return {
        "metadata": {"name": name, "namespace": "podslice", "labels": {"app.kubernetes.io/name": "podslice-cluster"}},
        "spec": {"nodeName": "n0", "containers": [{"name": "cluster", "ports": ports}], "volumes": volumes},
        "status": {"phase": phase},
    }


class FakeAPI(ThreadingHTTPServer):
    """`ports` are those behind the pods' own by pod name; `forbidden` paths begin what is answered with 403; `objects`
    by path; `unreachable` pods have no kubelet; `asked` are paths with their query. `body` answers everything,
    where it is set. `runs` is what a command in a container comes to, given what it reads: the pieces that it says, on
    standard error or not, and its exit code. `made` are pods that were created, `deleted` their paths; `becomes` is the
    status of one (None: the connection breaks), `log` its log, `refusal` the answer to a creation."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tokens = {TOKEN}
        self.ports: dict[str, int] = {}
        self.agents: list[Json] = []
        self.objects: dict[str, Json] = {}
        self.events: list[Json] = []
        self.forbidden: tuple[str, ...] = ()
        self.unreachable: set[str] = set()
        self.asked: list[str] = []
        self.body: tuple[int, str, bytes] | None = None
        self.headers: list[dict[str, str]] = []
        self.made: list[Json] = []
        self.deleted: list[str] = []
        self.becomes: Callable[[Json], Json | None] = lambda pod: {"phase": "Succeeded"}
        self.log: Callable[[Json], bytes] = lambda pod: b""
        self.refusal: tuple[int, str] | None = None
        self.runs: Callable[[list[str], bytes], tuple[list[tuple[bool, bytes]], int]] | None = None

    def add(self, node: str, port: int, **facts: Any) -> str:
        """An agent on a node, with its listener."""
        name = f"podslice-agent-{node}"
        self.agents.append(agent_pod(name, node, **facts))
        self.ports[name] = port
        self.objects[f"/api/v1/nodes/{node}"] = {"kind": "Node", "metadata": {"name": node}}
        return name

    def add_service(self, name: str, port: int, **facts: Any) -> None:
        """A replica of the cluster's service, with its page."""
        self.agents.append(service_pod(name, **facts))
        self.ports[name] = port

    def add_pod(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self.objects[f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"] = pod

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what tests are about."""


@contextlib.contextmanager
def fake_api(context: ssl.SSLContext | None = None) -> Iterator[FakeAPI]:
    """Serves until the end; over TLS with a context."""
    with FakeAPI() as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def kubeconfig(
    folder: Path, server: str, *, cluster: Json | None = None, user: Json | None = None, **context: Any
) -> Path:
    """A file for one cluster and one user, whose context is `dev`."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "ann", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [{"name": "dev", "context": {"cluster": "lab", "user": "ann", **context}}],
        "current-context": "dev",
    }
    path.write_text(json.dumps(config))
    return path


class _Handler(BaseHTTPRequestHandler):
    server: FakeAPI
    timeout = 20

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.headers.append(dict(self.headers))
        parts = urlsplit(self.path)
        if self.server.body is not None:
            self._send(*self.server.body)
        elif self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.server.tokens:
            self._refuse(401, "Unauthorized")
        elif any(parts.path.startswith(path) for path in self.server.forbidden):
            self._refuse(403, f'"{parts.path}" is forbidden: User "ann" cannot get it')
        elif found := _PROXY.fullmatch(parts.path):
            self._proxy(found[1], found[3] + (f"?{parts.query}" if parts.query else ""))
        elif found := _FORWARD.fullmatch(parts.path):
            self._forward(found[1])
        elif _EXEC.fullmatch(parts.path):
            execute(self, parse_qs(parts.query)["command"])
        elif self.command == "DELETE":
            self._delete(parts.path)
        elif self.command == "POST" and parts.path.endswith("/pods"):
            self._create(parts.path)
        elif parts.path.endswith("/log"):
            self._send(200, "text/plain", self.server.log(self.server.made[-1]))
        else:
            self._object(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})

    def _create(self, path: str) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refusal is not None:
            self._refuse(*self.server.refusal)
            return
        self.server.made.append(pod)
        self.server.objects[f"{path}/{pod['metadata']['name']}"] = pod
        self._json(pod)

    def _delete(self, path: str) -> None:
        if self.server.objects.pop(path, None) is None:
            self._refuse(404, f'"{path}" not found')
            return
        self.server.deleted.append(path)
        self._json({"kind": "Status", "status": "Success"})

    def _object(self, path: str, query: dict[str, str]) -> None:
        made = next((pod for pod in self.server.made if path.endswith(f"/pods/{pod['metadata']['name']}")), None)
        if made is not None and path in self.server.objects:
            status = self.server.becomes(made)
            if status is None:
                self.close_connection = True
                return
            self.server.objects[path] = {**made, "status": status}
        if path == "/api/v1/namespaces/podslice/pods":
            node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            label, _, value = query.get("labelSelector", "").partition("=")
            listed = [pod for pod in self.server.agents if not label or pod["metadata"]["labels"].get(label) == value]
            items = [pod for pod in listed if node in ("", pod["spec"]["nodeName"])]
            self._json({"kind": "PodList", "items": items})
        elif path.endswith("/events"):
            self._json({"kind": "EventList", "items": self.server.events})
        elif path in self.server.objects:
            self._json(self.server.objects[path])
        else:
            self._refuse(404, f'"{path}" not found')

    def _proxy(self, pod: str, target: str) -> None:
        connection = HTTPConnection("127.0.0.1", self.server.ports[pod], timeout=10)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection.request(self.command, target, body or None, {**headers, "Host": "10.0.0.1:9096"})
            answer = connection.getresponse()
            self._send(answer.status, answer.headers["Content-Type"], answer.read())
        except OSError as error:
            self._refuse(503, f"error trying to reach service: dial tcp 10.0.0.1:9096: {error.strerror}")
        finally:
            connection.close()

    def _forward(self, pod: str) -> None:
        if pod in self.server.unreachable:
            self._refuse(500, "error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused")
            return
        upgrade(self, self.server.ports.get(pod))

    def _json(self, data: Json) -> None:
        self._send(200, "application/json", json.dumps(data).encode())

    def _refuse(self, code: int, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
        self._send(code, "application/json", json.dumps(status).encode())

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silent."""


def upgrade(handler: BaseHTTPRequestHandler, port: int | None) -> None:
    """A kubelet's side of `v4.channel.k8s.io`: one GET to a local port, answered in small frames; without a port the
    error channel says so."""
    switch(handler)
    number = struct.pack("<H", 9096)
    for channel in (0, 1):
        handler.wfile.write(frame(bytes([channel]) + number))
    request = receive(handler.rfile)
    assert request[0] == 0
    if port is None:
        handler.wfile.write(frame(b"\x01failed to connect to localhost:9096: connection refused"))
        return
    handler.wfile.write(frame(b"are you there?", kind=9))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as behind:
        behind.sendall(request[1:])
        while data := behind.recv(1000):
            handler.wfile.write(frame(b"\x00" + data))
    handler.close_connection = True


def switch(handler: BaseHTTPRequestHandler) -> None:
    """From HTTP to frames. What a kubelet has to say then is of no type that a client could ask for: a real one answers
    406 to other wishes."""
    assert handler.headers.get("Accept", "*/*") == "*/*"
    key = handler.headers["Sec-WebSocket-Key"]
    accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    handler.wfile.write(
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n"
            f"Sec-WebSocket-Protocol: {handler.headers['Sec-WebSocket-Protocol']}\r\n\r\n"
        ).encode()
    )


def execute(handler: _Handler, command: list[str]) -> None:
    """A kubelet's side of `v5.channel.k8s.io`: read stdin until the client closes it, then send output and exit status.
    An unknown command is one that is not in the container."""
    assert handler.headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"
    switch(handler)
    given = b""
    while (message := receive(handler.rfile)) != b"\xff\x00":
        assert message[0] == 0
        given += message[1:]
    status: Json = {"kind": "Status", "status": "Failure", "message": "executable file not found in $PATH"}
    if handler.server.runs is not None:
        said, code = handler.server.runs(command, given)
        for error, data in said:
            handler.wfile.write(frame((b"\x02" if error else b"\x01") + data))
        causes = [{"reason": "ExitCode", "message": str(code)}]
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        status = {"kind": "Status", "status": "Success"} if code == 0 else {"kind": "Status", **failed}
    handler.wfile.write(frame(b"\x03" + json.dumps(status).encode()))
    handler.close_connection = True


def frame(payload: bytes, kind: int = 2) -> bytes:
    """As a server sends it: not masked, in two pieces where it is long."""
    if len(payload) > 500 and kind == 2:
        return _piece(payload[:300], kind, final=False) + _piece(payload[300:], 0, final=True)
    return _piece(payload, kind, final=True)


def _piece(payload: bytes, kind: int, *, final: bool) -> bytes:
    head = bytes([(0x80 if final else 0) | kind])
    size = bytes([len(payload)]) if len(payload) < 126 else bytes([126]) + struct.pack("!H", len(payload))
    return head + size + payload


def receive(stream: Any) -> bytes:
    """A message of a client, which masks; answers to pings are passed over."""
    while True:
        head = stream.read(2)
        size = head[1] & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", stream.read(2))
        if size == 127:
            (size,) = struct.unpack("!Q", stream.read(8))
        mask, payload = stream.read(4), stream.read(size)
        if head[0] & 0x0F != 10:
            return bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
