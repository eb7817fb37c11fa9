"""Whom the agent trusts: the certificates a kubelet trusts, and no others."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import CA_EXTENSIONS, OPENSSL, Certificates, make
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.apiclient import HTTPApiServer, trust_as_go
from podslice.k8s.podlist import ApiError
from tests.agent.test_apiserver import pod

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


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


def access(port: int, authority: Path) -> Any:
    """What a kubeconfig says."""
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
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.list_pods("n")
        await api.close()
        await stranger.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())
