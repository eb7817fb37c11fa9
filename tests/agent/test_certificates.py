"""Whom the agent trusts: the certificates a kubelet trusts, and no others."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import CA_EXTENSIONS, OPENSSL, Certificates, make
from lightkube.config.kubeconfig import KubeConfig
from release.smoke import PYTHONS, find_python

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.service import trust
from podslice.service.answers import ApiError
from podslice.service.trust import trust_as_go
from tests.agent.test_apiserver import pod
from tests.clock import PATIENCE

pytestmark = [pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates"), pytest.mark.process]


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Both sides in memory. Raises `ssl.SSLError`."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b, server_hostname=name), server.wrap_bio(b, a, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def strict(authority: Path) -> ssl.SSLContext:
    """A client as Python makes it since 3.13."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize("kind", CA_EXTENSIONS)
def test_authorities_of_clusters_are_trusted(tmp_path: Path, kind: str) -> None:
    """An authority without key usage or key identifiers is good enough, as it is for the kubelet; with Python's own
    strictness only the complete one would be."""
    made = make(tmp_path, kind)
    context = strict(made.authority)
    if kind != "complete":
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, made.server(), "127.0.0.1")
    context = strict(made.authority)
    trust_as_go(context)
    handshake(context, made.server(), "127.0.0.1")


def test_everything_else_is_still_verified(tmp_path: Path) -> None:
    """Another authority and another name are refused as ever."""
    made, other = make(tmp_path / "a", "plain"), make(tmp_path / "b", "plain")
    for authority, name in ((other.authority, "127.0.0.1"), (made.authority, "127.0.0.2")):
        context = strict(authority)
        trust_as_go(context)
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, made.server(), name)


TRY = """
import runpy, ssl, sys
trust, authority, certificate, key = sys.argv[1:]

def accepted(change):
    client = ssl.create_default_context(cafile=authority)
    change(client)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b, server_hostname="127.0.0.1"), server.wrap_bio(b, a, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return getattr(error, "verify_message", "") or str(error)
    return ""

print(accepted(lambda context: None), accepted(runpy.run_path(trust)["trust_as_go"]), sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_every_python_trusts_them(tmp_path: Path, version: str) -> None:
    """Whatever Python the agent runs on accepts all four kinds of authorities, and none of a stranger; since 3.13 it
    would not by itself."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version}")

    def tried(authority: Path, made: Certificates) -> list[str]:
        command = [python, "-c", TRY, trust.__file__, authority, made.certificate, made.key]
        # Other Pythons have no podslice installed: the module and what it imports need the standard library only.
        env = {**os.environ, "PYTHONPATH": str(Path(trust.__file__).parents[2])}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE, env=env)
        return done.stdout.strip().split("|")

    for kind in CA_EXTENSIONS:
        made = make(tmp_path / kind, kind)
        by_itself, as_go = tried(made.authority, made)
        assert as_go == ""
        assert bool(by_itself) == (kind != "complete" and version in ("3.13", "3.14"))
    stranger = make(tmp_path / "stranger", "plain")
    assert all("unable to get local issuer" in said for said in tried(stranger.authority, made))


def test_authority_below_another_is_one(tmp_path: Path) -> None:
    """Where only the intermediate authority is named, it is believed, as Go does."""
    made = make(tmp_path)
    (tmp_path / "sub.cnf").write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n")
    for command in (
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=sub -keyout sub.key -out sub.csr",
        "x509 -req -in sub.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile sub.cnf -out sub.crt",
        "x509 -req -in tls.csr -CA sub.crt -CAkey sub.key -CAcreateserial -extfile tls.cnf -out tls.crt",
    ):
        subprocess.run(
            [str(OPENSSL), *command.split()], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE
        )
    context = strict(tmp_path / "sub.crt")
    trust_as_go(context)
    handshake(context, made.server(), "127.0.0.1")


def access(port: int, authority: Path) -> Any:
    """Return the connection settings of a kubeconfig."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    return KubeConfig.from_dict({
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
    }).get()  # fmt: skip


async def serve(made: Certificates, body: bytes) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=made.server())


@pytest.mark.parametrize("kind", CA_EXTENSIONS)
def test_api_server_with_such_an_authority_is_read(tmp_path: Path, kind: str) -> None:
    """The client reads pods over TLS whatever extensions the authority has, and says why it refuses a stranger."""

    async def main() -> None:
        made, other = make(tmp_path / "a", kind), make(tmp_path / "b")
        server = await serve(made, json.dumps({"items": [pod("a")]}).encode())
        port = int(server.sockets[0].getsockname()[1])
        api, stranger = HTTPApiServer(access(port, made.authority)), HTTPApiServer(access(port, other.authority))
        assert [one.uid for one in (await api.list_pods("n")).pods] == ["a"]
        with pytest.raises(ApiError, match="TLS: its certificate is not accepted: "):
            await stranger.list_pods("n")
        await api.close()
        await stranger.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())
