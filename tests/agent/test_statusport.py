"""The agent's answers to `kubectl podslice`: complete, only for those who may, and enough to decide elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.process.daemon import Agent
from podslice.agent.settings import settings_from_dict
from podslice.api.pod.spec import pod_from_dict
from podslice.kubectl.live import remote_node
from podslice.values.errors import InputError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import api_pod, settings, with_agent
from tests.read_documents import read_document
from tests.service.fake_runtime import FakeRuntime

TOKEN = "0123456789abcdef0123456789abcdef"


async def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), body


def test_a_node_is_rebuilt_from_what_its_agent_tells(tmp_path: Path) -> None:
    """Away from the node the same pods hold the same CPUs and the next pod is decided alike, in words too."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        for name, cpu in (("a", "4"), ("b", "11"), ("shared", "500m")):
            await api.apply(api_pod(name, cpu))
            await fake.create_container(await fake.run_pod(name), "app")
        code, body = await get(agent.endpoints.status_port, "/node", Host="localhost")
        assert code == 200
        there, here = remote_node(read_document(body, "LiveNode"), "test").node, agent.owner.node
        assert there is not None
        assert here is not None
        assert there.view.owners == here.view.owners
        assert (there.view.shared, there.view.reserved) == (here.view.shared, here.view.reserved)
        for cpu in ("3", "5", "17"):
            pod = pod_from_dict(api_pod(f"next-{cpu}", cpu))
            assert there.try_admit(pod) == here.try_admit(pod)
        assert not there.try_admit(pod_from_dict(api_pod("large", "17"))).admitted

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")


def test_status_and_audit(tmp_path: Path) -> None:
    """The status is the one of the socket, the audit compares containers with the state; anything else is not there."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        await fake.create_container(await fake.run_pod("a"), "app")
        code, body = await get(agent.endpoints.status_port, "/status", Host="127.0.0.1:1")
        assert (code, read_document(body, "AgentStatus")["pods"][0]["name"]) == (200, "a")
        code, body = await get(agent.endpoints.status_port, "/audit", Host="localhost")
        assert code == 200
        assert [finding["kind"] for finding in read_document(body, "AuditReport")["findings"]] == ["missing"]
        assert await get(agent.endpoints.status_port, "/x", Host="localhost") == (404, "try /status, /node or /audit\n")

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")


def test_nothing_secret_of_a_pod_leaves_the_node(tmp_path: Path) -> None:
    """Images, labels, annotations and what else a pod's author wrote are not told, only what decides: of annotations
    those that a policy reads."""
    secret = "swordfish"
    pod = api_pod("a", "2")
    pod["metadata"] |= {"labels": {"team": secret}, "annotations": {"note": secret, "podslice.io/movable": "true"}}
    pod["spec"]["nodeSelector"] = {"pool": secret}
    pod["spec"]["containers"][0] |= {"image": secret, "env": [{"name": "PASSWORD", "value": secret}]}

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod)
        await fake.create_container(await fake.run_pod("a"), "app")
        for path in ("/node", "/status", "/audit"):
            code, body = await get(agent.endpoints.status_port, path, Host="localhost")
            assert (code, secret in body) == (200, False)
            assert ('"annotations":{"podslice.io/movable":"true"}' in body) is (path == "/node")

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")


def test_the_policy_decides_elsewhere_too(tmp_path: Path) -> None:
    """Decisions made elsewhere use the agent's PodslicePolicy and the pod's annotations: a resize is granted as on
    the node."""
    spec = {"resize": {"exclusive": True, "shrinkDelaySeconds": 2.5}}
    policy = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": spec}

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        pod = api_pod("a", "2")
        pod["metadata"]["annotations"] = {"podslice.io/resize": "below-baseline=allow"}
        await api.apply(pod)
        await fake.create_container(await fake.run_pod("a"), "app")
        found = remote_node(json.loads((await get(agent.endpoints.status_port, "/node", Host="localhost"))[1]), "test")
        assert found.node is not None
        assert found.node.rules.policy == agent.owner.admitting.policy
        assert found.node.resize(pod_from_dict(api_pod("a", "4"))).outcome == "Allocated"
        assert found.node.resize(pod_from_dict(api_pod("a", "1"))).outcome == "Allocated"

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0", policy=policy)


def test_in_safe_mode_the_document_says_so(tmp_path: Path) -> None:
    """Without a state that can be trusted there are no pods and no files, and the reason is told."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cpu_manager_state").write_text("{")

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        document = json.loads((await get(agent.endpoints.status_port, "/node", Host="localhost"))[1])
        found = remote_node(document, "test")
        assert (document["pods"], document["files"], found.node) == ([], {}, None)
        assert "cpu_manager_state" in found.problem

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")


def test_other_names_are_turned_away(tmp_path: Path) -> None:
    """Without a token only who asked for localhost is answered, so no site's script can read through a browser."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        for headers in ({}, {"Host": "evil.example"}, {"Host": "10.0.0.1:9096"}):
            assert (await get(agent.endpoints.status_port, "/status", **headers))[0] == 403

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    """With a token file only who knows the token is answered, under any name, and a replaced token counts at once."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        port = agent.endpoints.status_port
        assert (await get(port, "/status", Host="localhost"))[0] == 401
        assert (await get(port, "/status", X_Podslice_Token="x" * 32))[0] == 401
        assert (await get(port, "/status", X_Podslice_Token=TOKEN))[0] == 200
        file.write_text("f" * 32)
        assert (await get(port, "/status", X_Podslice_Token=TOKEN))[0] == 401
        file.write_text("short")
        assert (await get(port, "/status", X_Podslice_Token="short"))[0] == 503

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0", statusTokenFile=str(file))


@pytest.mark.parametrize("address", ["0.0.0.0:9096", "10.1.2.3:9096", "[::]:9096", "9096", "127.0.0.1:99999"])
def test_open_listener_is_refused(tmp_path: Path, address: str) -> None:
    """An address that others reach needs a token; one that is none is told."""
    with pytest.raises(InputError, match=r"statusAddress: .*127\.0\.0\.1:9096"):
        settings_from_dict(settings(tmp_path, statusAddress=address))


@pytest.mark.parametrize(
    "damage", [{"kind": "Node"}, {"machine": {}}, {"pods": [1]}, {"files": {"x": 1}}, {"node": None}]
)
def test_what_an_unknown_version_tells_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    """A document that this version does not understand is one line, never a traceback."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        document = json.loads((await get(agent.endpoints.status_port, "/node", Host="localhost"))[1])
        changed = {name: value for name, value in {**document, **damage}.items() if value is not None}
        with pytest.raises(InputError, match=r"\An7: [^\n]+\Z"):
            remote_node(changed, "n7")

    with_agent(tmp_path, test, statusAddress="127.0.0.1:0")
