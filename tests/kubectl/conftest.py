"""The plugin in this process, a cluster that exists on the loopback only, and one agent in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice.kubectl.commands.main import main
from tests.agent.test_daemon import api_pod
from tests.kubectl.fakeapi import FakeAPI, fake_api, kubeconfig
from tests.kubectl.liveagent import NODE, live_agent
from tests.shell import Answer

PODS = [api_pod("web", "4"), api_pod("db", "11"), api_pod("big", "20")]


class Plugin:
    """Runs `kubectl podslice` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patch = capsys, monkeypatch

    def __call__(self, *arguments: str) -> Answer:
        self._patch.setattr(sys, "argv", ["kubectl-podslice", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)


def stored(name: str, **status: Any) -> dict[str, Any]:
    """Return one of the pods as the API server has it, on the agent's node."""
    pod = next(one for one in PODS if one["metadata"]["name"] == name)
    spec = {**pod["spec"], "nodeName": NODE}
    return {**pod, "spec": spec, "status": {"phase": "Running", "qosClass": "Guaranteed", **status}}


@pytest.fixture(scope="session")
def agent_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The status listener of an agent that runs web and db and has refused big."""
    with live_agent(tmp_path_factory.mktemp("agent"), PODS) as port:
        yield port


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeAPI]:
    """Over plain HTTP, and KUBECONFIG names it."""
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with fake_api() as server:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield server


@pytest.fixture
def plugin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plugin:
    return Plugin(capsys, monkeypatch)
