"""An agent as a process of its own, while the kubelet beside it becomes one of another release."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from podslice.status.agent_socket import read_status
from podslice.status.status import AgentStatus
from podslice.values.errors import InputError
from tests.agent.test_apiserver import HTTPServer
from tests.agent.test_daemon import api_pod
from tests.agent.test_process import Listening, start
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

pytestmark = pytest.mark.process
FIRST = "v1.34.2"


class UpgradedKubelet(HTTPServer):
    """An API server that answers the first question for the Node with one version, none while there is no other, and
    later ones with that. Its list has one pod."""

    def __init__(self, first: str) -> None:
        super().__init__()
        self.versions = [first]

    def _answer(self, line: str) -> tuple[int, list[dict[str, Any]]]:
        if "/api/v1/nodes/" in line:
            if not self.versions:
                return 500, [{}]
            info = {"nodeInfo": {"kubeletVersion": self.versions[0]}}
            if self.versions[0] == FIRST:
                self.versions.clear()
            return 200, [{"kind": "Node", "metadata": {"uid": "node"}, "status": info}]
        if "watch=1" in line or line.startswith(("POST", "PATCH")):
            return 200, []
        made = api_pod("db", "4")
        made["spec"]["nodeName"] = "n1"
        return 200, [{"metadata": {"resourceVersion": "7"}, "items": [made]}]


def kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
    return path


@pytest.mark.slow
def test_an_upgrade_of_the_kubelet_beside_it(tmp_path: Path) -> None:
    """It begins anew in the same process as the newer release, on its state files: what runs keeps its CPUs."""

    def read() -> AgentStatus | None:
        try:
            return read_status(str(tmp_path / "agent.sock"))
        except InputError:
            return None

    async def main() -> None:
        server, fake = UpgradedKubelet(FIRST), FakeRuntime(request_timeout=PATIENCE)
        environment = {"KUBECONFIG": str(kubeconfig(tmp_path, await server.start())), "NODE_NAME": "n1"}
        fields: dict[str, Any] = {"podResourcesSocket": "", "metricsAddress": "", "sources": {"apiServer": True}}
        async with Listening(tmp_path / "nri.sock", fake) as runtime:
            agent = start(tmp_path, environment, **fields)
            try:
                await asyncio.wait_for(fake.attached.wait(), PATIENCE)
                sandbox = await fake.run_pod("db", name="db", namespace="default")
                container = await fake.create_container(sandbox, "app", container_id="a" * 64)
                seen = await asyncio.to_thread(read)
                assert seen is not None
                assert (seen.kubernetes, seen.kubelet) == ("1.34", FIRST)
                server.versions.append("v1.35.1")
                await until(lambda: (found := read()) is not None and found.kubernetes == "1.35" and found.connected)
                again = read()
                assert again is not None
                assert (again.kubelet, runtime.accepted) == ("v1.35.1", 2)
                assert again.pods[0].containers[0].cpus == container.cpus
                agent.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(agent.wait, PATIENCE) == 0
            finally:
                agent.kill()
                agent.wait()
                server._server.close()
        log = (tmp_path / "log").read_text()
        assert "the kubelet is v1.35.1; decided as Kubernetes 1.34, starts again as 1.35" in log

    asyncio.run(main())
