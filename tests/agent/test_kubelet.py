"""Pods from the kubelet beside the agent: polled, read at once for a pod nobody knows, over TLS with a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import OPENSSL, Certificates, make

from podslice.agent.kubelet.kubelet import HTTPKubelet, KubeletSource
from podslice.agent.kubelet.sources import Sources
from podslice.agent.process.host_access import HostAccess
from podslice.agent.settings import KubeletSettings, settings_from_dict
from podslice.agent.wiring import wire
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.answers import ApiError
from podslice.service.identity import RESOURCES_ANNOTATION, Identity
from podslice.service.pacing import BackOff
from podslice.service.podlist import PodListPage, decode_list
from podslice.values.errors import InputError
from tests.agent.helpers import MACHINE
from tests.agent.test_apiserver import pod, static, until, who
from tests.agent.test_daemon import settings

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


class FakeKubelet:
    """Lists `objects`; `failure` is raised instead while there is one."""

    def __init__(self, *objects: Any) -> None:
        self.objects = list(objects)
        self.failure: Exception | None = None
        self.reads = 0

    async def pods(self) -> PodListPage:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return decode_list([json.dumps({"items": self.objects}).encode()], "node")


class Waits:
    """Waits that end when the test says so, or when what they wait for happens."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.go = asyncio.Semaphore(0)

    async def __call__(self, event: asyncio.Event, seconds: float) -> None:
        self.seconds.append(seconds)
        if seconds < 0.1:
            return
        waiting = [asyncio.ensure_future(one) for one in (event.wait(), self.go.acquire())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


def with_source(
    kubelet: FakeKubelet, test: Callable[[KubeletSource, Waits, list[str]], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        waits, troubles = Waits(), list[str]()
        source = KubeletSource(kubelet, every=10.0, trouble=lambda what, why: troubles.append(why), wait=waits)
        task = asyncio.ensure_future(source.run(BackOff(1.0, 30.0)))
        try:
            await until(lambda: kubelet.reads)
            await test(source, waits, troubles)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_list_is_read_again_and_again() -> None:
    """Pods that came or went since the last reading are right after the next; static pods are among them by
    themselves."""
    kubelet = FakeKubelet(pod("a"), pod("hash", name="dns-node", namespace="kube-system"))

    async def test(source: KubeletSource, waits: Waits, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        assert source.find(who("a")) is not None
        assert source.find(static("hash")) is not None
        kubelet.objects = [pod("b")]
        waits.go.release()
        await until(lambda: source.find(who("b")))
        assert source.find(who("a")) is None
        assert (kubelet.reads, troubles) == (2, [])

    with_source(kubelet, test)


def test_unknown_pod_is_looked_for_at_once() -> None:
    """A sandbox that asks for a pod the list does not have makes the list be read, not waited for."""
    kubelet = FakeKubelet()

    async def test(source: KubeletSource, waits: Waits, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        kubelet.objects = [pod("new")]
        annotated = Identity("new", "default", "new", {RESOURCES_ANNOTATION: '{"limits": {"cpu": "9"}}'})
        sources = Sources([source], wait=5.0, annotation=True)
        assert sources.find(annotated) is None
        found = await Sources([source], wait=5.0, annotation=False).wait_for(annotated)
        assert found is not None
        assert kubelet.reads == 2
        with pytest.raises(InputError, match="wants 9"):
            sources.find(annotated)

    with_source(kubelet, test)


@pytest.mark.parametrize("failure", [ApiError("https://x: 403 Forbidden"), RecursionError("x"), ValueError("y" * 9999)])
def test_failures_are_waited_out(failure: Exception) -> None:
    """Whatever goes wrong is said, and tried again more and more slowly; what was known stays known, and pods that
    are not are told why. A static pod is not waited for meanwhile."""
    kubelet = FakeKubelet(pod("a"))

    async def test(source: KubeletSource, waits: Waits, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        assert source.expects(static("hash"))
        kubelet.failure = failure
        for _ in range(3):
            waits.go.release()
            before = kubelet.reads
            await until(lambda before=before: kubelet.reads > before)  # type: ignore[misc]
        await until(lambda: len(troubles) == 3)
        assert source.find(who("a")) is not None
        assert source.explain_unknown().startswith("no pods from the kubelet: ")
        assert (source.expects(who("b")), source.expects(static("hash"))) == (True, False)
        kubelet.failure = None
        waits.go.release()
        await until(lambda: not source.cause)
        assert source.explain_unknown() == "the kubelet does not list this pod yet"
        long = [seconds for seconds in waits.seconds if seconds != 10.0 and seconds > 0.1]
        assert long == sorted(long)

    with_source(kubelet, test)


def test_bad_pod_is_said_once_and_hides_no_other() -> None:
    """A pod that cannot be read is one line, not one at each reading."""
    kubelet = FakeKubelet(pod("bad", "lots"), None, pod("good"))

    async def test(source: KubeletSource, waits: Waits, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        for _ in range(3):
            before = kubelet.reads
            waits.go.release()
            await until(lambda before=before: kubelet.reads > before)  # type: ignore[misc]
        assert source.find(who("good")) is not None
        with pytest.raises(InputError, match="pod default/bad"):
            source.find(who("bad"))
        assert len(troubles) == 2

    with_source(kubelet, test)


class HTTPSKubelet:
    """A kubelet's port: `/pods` for who has the token, with the answer's headers as a kubelet sends them."""

    def __init__(self, made: Certificates) -> None:
        self.made = made
        self.token = "secret"
        self.body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod("a")]}).encode()
        self.heads: list[str] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.made.server())
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        good = f"Bearer {self.token}\r\n" in head and head.startswith("GET /pods HTTP/1.1\r\n")
        code, body = ("200 OK", self.body) if good else ("401 Unauthorized", b"Unauthorized")
        headers = "Content-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"HTTP/1.1 {code}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


def over_tls(folder: Path, test: Callable[[HTTPSKubelet, Callable[..., HTTPKubelet]], Coroutine[Any, Any, None]],
             name: str = "IP:127.0.0.1") -> None:  # fmt: skip
    async def main() -> None:
        kubelet = HTTPSKubelet(make(folder / "pki", "plain", name))
        port = await kubelet.start()
        token = folder / "token"
        token.write_text("secret\n")
        clients: list[HTTPKubelet] = []

        def client(**fields: Any) -> HTTPKubelet:
            given = {"port": port, "token_file": str(token), "ca_file": str(kubelet.made.authority), **fields}
            clients.append(HTTPKubelet(KubeletSettings(**given), "node", "127.0.0.1"))
            return clients[-1]

        await test(kubelet, client)
        for one in clients:
            await one.close()
        await kubelet.close()

    asyncio.run(main())


@needs_openssl
@pytest.mark.process
def test_kubelet_is_read_over_tls(tmp_path: Path) -> None:
    """With its authority or its own certificate a kubelet is trusted, by another or none it is not; a rotated token is
    read again."""

    async def test(kubelet: HTTPSKubelet, client: Callable[..., HTTPKubelet]) -> None:
        good = client()
        assert [one.uid for one in (await good.pods()).pods] == ["a"]
        assert "accept-encoding: identity" in kubelet.heads[-1].lower()
        assert len((await client(ca_file=str(kubelet.made.certificate)).pods()).pods) == 1
        assert len((await client(ca_file="", insecure_skip_tls_verify=True).pods()).pods) == 1
        other = make(tmp_path / "other")
        for stranger in (client(ca_file=str(other.authority)), client(ca_file="")):
            with pytest.raises(ApiError, match="TLS: its certificate is not accepted: "):
                await stranger.pods()
        kubelet.token = "rotated"
        with pytest.raises(ApiError, match="401"):
            await good.pods()
        (tmp_path / "token").write_text("rotated")
        assert len((await good.pods()).pods) == 1

    over_tls(tmp_path, test)


@needs_openssl
@pytest.mark.process
def test_name_in_the_certificate(tmp_path: Path) -> None:
    """A kubelet's own certificate names the node, not the address it is read at."""

    async def test(kubelet: HTTPSKubelet, client: Callable[..., HTTPKubelet]) -> None:
        with pytest.raises(ApiError, match="TLS: its certificate is not accepted: "):
            await client().pods()
        for name in ("node", "$(NODE_NAME)"):
            assert len((await client(server_name=name).pods()).pods) == 1
        with pytest.raises(ApiError, match="TLS: its certificate is not accepted: "):
            await client(server_name="node-2").pods()

    over_tls(tmp_path, test, "DNS:node")


@needs_openssl
@pytest.mark.parametrize("token", ["", "a\nb", "gr\xfcn", None])
@pytest.mark.process
def test_no_token_is_a_typed_error(tmp_path: Path, token: str | None) -> None:
    """A token that is missing, or none, is a failed try and reaches nobody."""

    async def test(kubelet: HTTPSKubelet, client: Callable[..., HTTPKubelet]) -> None:
        file = tmp_path / "token"
        file.unlink() if token is None else file.write_text(token)
        with pytest.raises(ApiError):
            await client().pods()
        assert kubelet.heads == []

    over_tls(tmp_path, test)


@needs_openssl
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"kind":"Status","code":500}', b'{"items":' + b"[" * 40_000])
@pytest.mark.process
def test_bad_answer_is_a_typed_error(tmp_path: Path, body: bytes) -> None:
    """An answer that is not a list of pods is a failed try."""

    async def test(kubelet: HTTPSKubelet, client: Callable[..., HTTPKubelet]) -> None:
        kubelet.body = body
        with pytest.raises(ApiError):
            await client().pods()

    over_tls(tmp_path, test)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"port": 0}, "sources.kubelet.port: 0 is not a port"),
        ({"everySeconds": 0.1}, "sources.kubelet.everySeconds: 0.1 is out of range"),
        ({"insecureSkipTLSVerify": True, "caFile": "/ca.crt"}, "insecureSkipTLSVerify: checks nothing"),
        ({"tokenfile": "x"}, r"sources.kubelet.tokenfile: unknown field \(did you mean tokenFile\?\)"),
    ],
)
def test_settings_are_checked(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    """A mistake in `sources.kubelet` is one line with its field."""
    with pytest.raises(InputError, match=message):
        settings_from_dict(settings(tmp_path, sources={"kubelet": fields}))


def test_authority_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    """A `caFile` that is not there stops the start with what to do."""
    loaded = settings_from_dict(settings(tmp_path, sources={"kubelet": {"caFile": str(tmp_path / "none")}}))
    with pytest.raises(InputError, match=r"sources\.kubelet\.caFile: .*cannot be used"):
        wire(loaded, from_synthetic(MACHINE), HostAccess())
