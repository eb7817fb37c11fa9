"""The certificate that Helm makes, with real connections: gRPC as agents do, HTTPS as Prometheus and kubelets do."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.deploy.cases import EVERYTHING
from tests.deploy.rendering import ON, by_kind_and_name, needs_helm, render
from tests.shell import podslice

pytestmark = needs_helm
HOST = "podslice-cluster.podslice.svc"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tls.crt` and `tls.key` as the service mounts them, `ca.crt` as agents do."""
    folder, found = tmp_path_factory.mktemp("made"), by_kind_and_name(render(**ON))
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(b64decode(found["Secret", "podslice-cluster-tls"]["data"][name]))
    (folder / "ca.crt").write_text(found["ConfigMap", "podslice-cluster-ca"]["data"]["ca.crt"])
    return folder


def test_agents_know_the_service(files: Path) -> None:
    """A stream's connection is made, by the name that the agents' configuration has and by no other."""

    async def connects(name: str) -> bool:
        server = grpc.aio.server()
        pair = ((files / "tls.key").read_bytes(), (files / "tls.crt").read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        await server.start()
        trusted = grpc.ssl_channel_credentials((files / "ca.crt").read_bytes())
        options = [("grpc.ssl_target_name_override", name)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted, options) as channel:
            call = channel.unary_unary("/none/None")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"", timeout=30)
        await server.stop(None)
        return caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # an answer, over TLS

    assert asyncio.run(connects(HOST))
    assert asyncio.run(connects(f"{HOST}.cluster.local"))
    assert not asyncio.run(connects("other.podslice.svc"))


@pytest.mark.parametrize("values", [ON, EVERYTHING], ids=["defaults", "everything"])
def test_the_service_takes_its_arguments(files: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """`podslice cluster --check-config` takes what the chart tells the service, with that certificate."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(files))
    (found,) = (one for one in render(**values) if one["kind"] == "StatefulSet")
    (container,) = (one for one in found["spec"]["template"]["spec"]["containers"] if one["name"] == "cluster")
    (files / "token").write_text("0123456789abcdef" * 2)
    args = [re.sub("/etc/podslice-(?:cluster|page)", str(files), one) for one in container["args"]]
    args = [re.sub(r"address=[\d.]+:\d+", "address=127.0.0.1:0", one) for one in args]
    answer = podslice(*container["command"][1:], *args, "--check-config")
    said = answer.stdout.splitlines()
    assert (answer.returncode, said[-1].startswith("good; ")) == (0, True), answer.stderr
    assert said[0].startswith("certificate: server until 20")


@pytest.mark.parametrize(("name", "problem"), [(HOST, ""), ("kubernetes.default.svc", "Hostname mismatch")])
def test_strict_clients_take_it(files: Path, name: str, problem: str) -> None:
    """A client that asks for all that RFC 5280 wants, as Python does since 3.13, takes the chain."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files / "tls.crt", files / "tls.key")
    client = ssl.create_default_context(cafile=files / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        if problem:
            with pytest.raises(ssl.SSLCertVerificationError, match=problem):
                client.wrap_socket(here, server_hostname=name)
        else:
            with client.wrap_socket(here, server_hostname=name) as connection:
                assert connection.version() == "TLSv1.3"
    finally:
        here.close()
        thread.join()
