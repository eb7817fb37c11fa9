"""Messages about failed connections of the agent: refused, DNS, TLS and its cause, tokens, missing rights,
timeouts."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import OPENSSL, make

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.kubelet.kubelet import HTTPKubelet
from podslice.agent.settings import KubeletSettings
from podslice.service.answers import ApiError
from podslice.service.http.failures import describe_answer, describe_failure
from podslice.service.pacing import BackOff
from podslice.service.trust import trust_as_go
from tests.agent.test_apiserver import who
from tests.agent.test_certificates import access, handshake
from tests.clock import PATIENCE, until

pytestmark = pytest.mark.process

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
FORBIDDEN = 'pods is forbidden: User "a:b" cannot list resource "pods" in API group "" at the cluster scope'
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def answering(head: str, body: str = "") -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    return answer


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def say_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


def listing_from(folder: Path, answer: Answer | None, *, tls: str = "own", name: str = "IP:127.0.0.1") -> str:
    """Return the agent's message about a server that answers so, or about none. `tls`: certificate of our `own`
    authority, of an `other` one, or `none`."""

    async def main() -> str:
        made, other = make(folder / "a", name=name), make(folder / "b")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = None
        if answer is not None:
            context = None if tls == "none" else made.server()
            server = await asyncio.start_server(answer, "127.0.0.1", port, ssl=context)
        api = HTTPApiServer(access(port, other.authority if tls == "other" else made.authority))
        try:
            with pytest.raises(ApiError) as caught:
                await api.list_pods("n")
        finally:
            await api.close()
            if server is not None:
                server.close()
        return str(caught.value).replace(f"https://127.0.0.1:{port}/api/v1/pods", "URL")

    return asyncio.run(main())


@needs_openssl
@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (None, {}, "URL: connection refused"),
        (hang_up, {"tls": "other"},
         "URL: TLS: its certificate is not accepted: unable to get local issuer certificate"),
        (hang_up, {"name": "IP:127.0.0.9"}, "URL: TLS: its certificate is not accepted: IP address mismatch, "
         "certificate is not valid for '127.0.0.1'."),
        (say_http, {"tls": "none"}, "URL: TLS: wrong version number"),
        (answering("401 Unauthorized", json.dumps({"kind": "Status", "message": "Unauthorized"})), {},
         "/api/v1/pods: 401 Unauthorized: Unauthorized (the token is expired, or not of this cluster)"),
        (answering("403 Forbidden", json.dumps({"kind": "Status", "message": FORBIDDEN})), {},
         f"/api/v1/pods: 403 Forbidden: {FORBIDDEN} (grant this right: docs/agent.md, Rights)"),
        (answering("503 Service Unavailable", "<html>"), {}, "/api/v1/pods: 503 Service Unavailable"),
    ],
    ids=["refused", "authority", "name", "no-tls", "token", "right", "away"],
)  # fmt: skip
def test_api_server_that_gives_no_list(
    tmp_path: Path, answer: Answer | None, options: dict[str, str], said: str
) -> None:
    """A refused connection, a certificate and why it is not accepted, a token, the right that is missing: as such."""
    assert listing_from(tmp_path, answer, **options) == said


@needs_openssl
def test_expired_certificate(tmp_path: Path) -> None:
    """Dates are verified, and the reason says so."""
    made = make(tmp_path)
    (tmp_path / "index.txt").touch()
    (tmp_path / "x.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
        "[p]\ncommonName=supplied\n"
    )
    command = (
        "ca -batch -notext -config x.cnf -cert ca.crt -keyfile ca.key -in tls.csr -out tls.crt -extfile tls.cnf "
        "-startdate 20200101000000Z -enddate 20200102000000Z"
    )
    subprocess.run([str(OPENSSL), *command.split()], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    context = ssl.create_default_context(cafile=made.authority)
    trust_as_go(context)
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        handshake(context, made.server(), "127.0.0.1")
    assert describe_failure(caught.value) == "TLS: its certificate is not accepted: certificate has expired"


def chained(*errors: BaseException) -> BaseException:
    """As raised one from the other, the first last."""
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (chained(OSError("all"), socket.gaierror(-2, "Name or service not known")), "DNS: Name or service not known"),
        (chained(RuntimeError("x"), TimeoutError(), ssl.SSLWantReadError(2, "x")), "no answer in time"),
        (chained(OSError("all"), ExceptionGroup("a", [OSError(113, "x"), OSError(111, "y")])), "no route to host"),
        (chained(RuntimeError(""), ssl.SSLEOFError(8, "EOF")), "TLS: it hung up during the handshake"),
        (ValueError("a\nb" * 500), "ValueError: " + ("a b" * 500)[:388]),
    ],
    ids=["dns", "time", "first-of-several", "hung-up", "other"],
)  # fmt: skip
def test_causes(error: BaseException, said: str) -> None:
    """The cause that says something is found below those that do not; anything else is one short line."""
    assert describe_failure(error) == said


def test_answers_of_kubelets_are_text() -> None:
    """A kubelet says which right is missing without a Status; pages and broken bytes say nothing or little."""
    text = b"Forbidden (user=system:serviceaccount:a:b, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    assert "subresource(s)=[pods proxy]) (grant this right" in describe_answer(403, "Forbidden", text)
    assert describe_answer(500, "Error", b"\xff\x00") == "500 Error: \ufffd"
    assert describe_answer(500, "Error", b"[" * 100_000) == "500 Error"


@needs_openssl
def test_server_that_falls_silent_is_asked_again(tmp_path: Path) -> None:
    """A watch on which nothing comes any more ends and is begun again; while the server does not even answer that, a
    pod that waits is told so, not that nobody has told about it."""
    watches = 0
    open_ones: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal watches
        open_ones.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if b"watch=1" not in head and watches < 3:
            body = b'{"metadata": {"resourceVersion": "1"}, "items": []}'
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        watches += 1
        if watches < 3:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def main() -> None:
        made = make(tmp_path)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=made.server())
        api = HTTPApiServer(access(server.sockets[0].getsockname()[1], made.authority), quiet=0.2)
        source = ApiSource(api, "n", trouble=lambda what, why: None)
        task = asyncio.ensure_future(source.run(BackOff(0.01, 0.02)))
        await until(lambda: watches == 3 and source.cause)
        assert source.explain_unknown().startswith("no pods from the API server: https://127.0.0.1:")
        assert source.explain_unknown().endswith("/api/v1/pods: no answer in time")
        assert not source.find(who("a"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()
        server.close()
        for writer in open_ones:
            writer.close()

    asyncio.run(main())


@needs_openssl
def test_kubelet_that_gives_no_list(tmp_path: Path) -> None:
    """The kubelet's refusal is told with the right it misses, and a closed port as one."""

    async def main() -> None:
        made, token = make(tmp_path), tmp_path / "token"
        token.write_text("secret")
        text = "Forbidden (user=b, verb=get, resource=nodes, subresource(s)=[pods proxy])"
        server = await asyncio.start_server(answering("403 Forbidden", text), "127.0.0.1", 0, ssl=made.server())
        port = server.sockets[0].getsockname()[1]
        settings = KubeletSettings(port=port, token_file=str(token), ca_file=str(made.authority))
        kubelet = HTTPKubelet(settings, "n", "127.0.0.1")
        with pytest.raises(ApiError, match=r"/pods: 403 Forbidden: Forbidden \(user=b, .*\(grant this right"):
            await kubelet.pods()
        server.close()
        await server.wait_closed()
        with pytest.raises(ApiError, match=rf"https://127\.0\.0\.1:{port}/pods: connection refused"):
            await kubelet.pods()
        await kubelet.close()

    asyncio.run(main())
