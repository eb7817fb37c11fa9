"""A whole agent that is followed: its settings make stream and object, and its pods arrive on the other side."""

from __future__ import annotations

import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from e2e.certificates import OPENSSL, make
from msgspec.structs import replace

from podslice.agent.optional_parts import cluster_loops, make_authority
from podslice.agent.process.daemon import Agent
from podslice.agent.settings import ClusterSettings, settings_from_dict
from podslice.cluster.journal.journals import Journals
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.replica.rulebook import Rulebook
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import MACHINE, api_pod, settings, with_agent
from tests.clock import until
from tests.service.fake_runtime import FakeRuntime

NODE = "followed"
pytestmark = [
    pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)"),
    pytest.mark.slow,
    pytest.mark.process,
]


async def caller(token: str) -> str:
    assert token == "of the agent"
    return NODE


def test_its_pods_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's pods are in the service's replica with equal digests, the object is written, and both are
    counted; with `--observe` the agent sends no decisions of its own but the content of the kubelet's state files."""
    monkeypatch.setattr("podslice.agent.api_server.checkpoint.QUIET_SECONDS", 0.0)
    tls = make(tmp_path / "tls", name="DNS:localhost,IP:127.0.0.1")
    (tmp_path / "token").write_text("of the agent")
    troubles: list[str] = []

    def make_journals() -> Journals:
        versions = {version("podslice")}
        return Journals(Rulebook(), versions, caller=caller, trouble=lambda what, why: troubles.append(why))

    cluster = {"tokenFile": str(tmp_path / "token"), "caFile": str(tls.authority)}
    sources = {"apiServer": True, "nodeName": NODE}

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        journals = make_journals()
        await fake.run_pod("a")
        await fake.create_container("sandbox-a", "app")
        if agent.observe:
            assert agent.owner.admitting.journal.journal is None
            await until(lambda: api.node_states)
            of_kubelet = digest(kubelet.state)
            written = api.node_states[-1][1]
            assert (written.allocation, written.named) == (of_kubelet.allocation, of_kubelet.named)
            await journals.start("127.0.0.1", port, tls.certificate.read_bytes(), tls.key.read_bytes())
            await until(lambda: journals.is_fresh(NODE))
            page = agent.endpoints.page.text()
            assert b"podslice_cluster_streams 1.0" in page
            assert b"podslice_cluster_services 1.0" in page
            await journals.close()
            return
        assert "observed" not in agent.loops
        used = await journals.start("127.0.0.1", 0, tls.certificate.read_bytes(), tls.key.read_bytes())
        cluster = with_service(agent, used)
        journal, reporter = agent.owner.admitting.journal, agent.reporter
        given = (cluster, journal, agent.configured.api, NODE, reporter.trouble, make_authority(cluster),
                 reporter.stream_began)  # fmt: skip
        for name, loop in cluster_loops(*given):
            agent.supervisor.start(name, loop)
        await until(lambda: journals.is_fresh(NODE))
        node = agent.owner.node
        assert node is not None
        assert "a" in node.pods
        await until(lambda: journals.nodes[NODE].replica.digest == digest(node.state))
        assert b"podslice_cluster_streams 1.0" in agent.endpoints.page.text()
        await until(lambda: api.node_states)
        assert api.node_states[0][0] == NODE
        await journals.close()

    kubelet = Node(from_synthetic(MACHINE), settings_from_dict(settings(tmp_path)).config, predicates=False)
    for name, data in kubelet.files.items():
        (tmp_path / name).write_bytes(data)
    cluster["kubeletDirectory"] = str(tmp_path)
    objects = {"a": api_pod("a", "4")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for observe in (True, False):
        cluster = {**cluster, "services": [f"127.0.0.1:{port}"]} if observe else cluster | {"services": []}
        folder = tmp_path / f"observe-{observe}"
        folder.mkdir()
        with_agent(folder, test, observe=observe, objects=dict(objects), sources=sources, cluster=cluster)
    assert troubles == []


def with_service(agent: Agent, port: int) -> ClusterSettings:
    """The agent's settings with the service that listens by now."""
    assert agent.endpoints.settings.cluster is not None
    return replace(agent.endpoints.settings.cluster, services=(f"127.0.0.1:{port}",), checkpoint=False)
