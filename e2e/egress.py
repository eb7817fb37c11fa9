"""Connections of the API server to a guest's kubelet, for `kubectl exec` and `port-forward`: an egress proxy.

A guest's address exists in its own network only. The API server has a setting for nodes that it cannot reach itself
(EgressSelectorConfiguration, KEP-1281): it asks a proxy by CONNECT, and this one takes it to the port of this machine
that QEMU forwards.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from e2e.certificates import client

_MASTERS = "/O=system:masters/CN=kube-apiserver-kubelet-client"
_CHUNK = 64 << 10


class Egress(socketserver.ThreadingUnixStreamServer):
    """Runs as a context, at the socket `path`. `ports`: the loopback's port for each `address:port` that can be asked
    for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="egress-")
        self.path = f"{self._folder.name}/socket"
        super().__init__(self.path, _Connect)
        self.ports = ports

    def __enter__(self) -> Egress:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._folder.cleanup()

    def options(self, folder: Path) -> tuple[str, ...]:
        """Return the configuration of the API server whose certificates are in `folder`; the kubelet knows it by a
        certificate."""
        certificate, key = client(folder, _MASTERS)
        connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": self.path}}}
        config = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
        path = folder / "egress.json"
        path.write_text(json.dumps(config))
        return (
            f"--egress-selector-config-file={path}",
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
        )


class _Connect(socketserver.StreamRequestHandler):
    rbufsize = 0
    server: Egress

    def handle(self) -> None:
        target = self.rfile.readline().decode().split()[1]
        while self.rfile.readline().strip():
            pass
        if target not in self.server.ports:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.server.ports[target])) as node:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(node, self.connection), daemon=True)
            back.start()
            _copy(self.connection, node)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one of them has ended; the other then gets an end of file."""
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
