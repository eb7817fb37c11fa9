"""The agent's client and source against a real API server: its certificates, tokens and rights."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import CA_EXTENSIONS, make
from e2e.controlplane import ControlPlane, Settings
from e2e.programs import find_programs
from e2e.sharedplane import Cluster
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.service.pacing import BackOff
from tests.clock import until

NODE = "system:node:n1"


@pytest.fixture(params=[kind for kind in CA_EXTENSIONS if kind != "complete"])
def plane(request: pytest.FixtureRequest, programs: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """An API server with certificates as clusters have them, and Python 3.13 does not take them by itself."""
    settings = Settings(nodes=("n1",), authority=request.param)
    with ControlPlane(find_programs(), tmp_path / "plane", settings) as running:
        yield running


def following(config: dict[str, Any], test: Callable[[ApiSource, list[str]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        troubles: list[str] = []
        api = HTTPApiServer(KubeConfig.from_dict(config).get())
        source = ApiSource(api, "n1", trouble=lambda what, why: troubles.append(why))
        task = asyncio.ensure_future(source.run(BackOff(0.05, 0.1)))
        try:
            await test(source, troubles)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()

    asyncio.run(main())


def test_its_certificates_are_accepted(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods are followed although its authority lacks what a strict Python asks for; when it stops and comes back,
    why there is no news is known while it lasts."""
    own = ssl.create_default_context

    def strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = own(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)

    async def test(source: ApiSource, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        assert troubles == []
        await asyncio.to_thread(plane.stop, "kube-apiserver")
        await until(lambda: source.cause)
        await until(lambda: source.explain_unknown().endswith(": connection refused"))
        await asyncio.to_thread(plane.start_server)
        await until(lambda: not source.cause)

    following(plane.kubeconfig(NODE), test)


def test_why_there_are_no_pods(cluster: Cluster, tmp_path: Path) -> None:
    """A token that is none, a user without the right, and another cluster's authority are told as what they are."""
    base = cluster.kubeconfig("system:node:one")
    token, authority = base["users"][0]["user"], base["clusters"][0]["cluster"]
    for changed, old, new, said in (
        (
            token,
            "token",
            token["token"],
            '403 Forbidden: pods is forbidden: User "system:node:one" cannot list resource',
        ),
        (token, "token", "guessed", "401 Unauthorized: Unauthorized (the token is expired, or not of this cluster)"),
        (authority, "certificate-authority", str(make(tmp_path).authority), "TLS: its certificate is not accepted: "),
        (authority, "server", "https://127.0.0.1:1", "https://127.0.0.1:1/api/v1/pods: connection refused"),
    ):
        kept = changed[old]
        changed[old] = new

        async def test(source: ApiSource, troubles: list[str], said: str = said) -> None:
            await until(lambda: source.cause)
            assert said in source.explain_unknown()
            assert source.explain_unknown().startswith("no pods from the API server: ")
            assert not source.ready

        following(base, test)
        changed[old] = kept
