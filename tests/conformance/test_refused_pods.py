"""A refused pod at a real API server: with the rights that are shipped, for its owner and for who looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import Api, ControlPlane, Settings
from e2e.programs import find_programs
from e2e.sharedplane import Cluster, cluster_of

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.process.daemon import Agent
from podslice.agent.records import ReportedRefusal
from tests.agent.test_daemon import with_agent
from tests.clock import until
from tests.conformance.deployed import FOLDER, RIGHTS, WORKER, apply, deploy_rights, token_of
from tests.service.fake_runtime import FakeRuntime

NODE = f"refused-{WORKER}"
Test = Callable[[Agent, FakeRuntime], Awaitable[None]]


@pytest.fixture
def namespace(cluster: Cluster, admin: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """One of the test's own, without pods afterwards."""
    name = request.node.name.replace("_", "-")[:60]
    cluster.prepare_namespace(name)
    yield name
    admin.call("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")


def account(admin: Api, *, without: str = "") -> str:
    """The token of the agent's service account, or of one that lacks a right."""
    if not without:
        deploy_rights(admin)
        return token_of(admin)
    for text in (FOLDER / "podslice.yaml").read_text().split("\n---\n"):
        document = yaml.safe_load(text.replace("podslice-agent", "podslice-less"))
        if document["kind"] == "ClusterRole":
            document["rules"] = [rule for rule in document["rules"] if rule["resources"] != [without]]
        if document["kind"] in RIGHTS:
            assert apply(admin, document).code in (200, 201)
    return token_of(admin, "podslice-less")


def with_real_api(folder: Path, cluster: Cluster, token: str, test: Test, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent of the node beside a runtime on paper, with a real API server."""
    config = folder / "kubeconfig"
    config.write_text(json.dumps(cluster.kubeconfig(token=token)))
    monkeypatch.setenv("KUBECONFIG", str(config))
    sources = {"apiServer": True, "nodeName": NODE}

    async def check(agent: Agent, fake: FakeRuntime, _: Any) -> None:
        await test(agent, fake)

    with_agent(folder, check, api=HTTPApiServer(), sources=sources)


def pod(name: str, cpus: str) -> dict[str, Any]:
    limits = {"cpu": cpus, "memory": "64Mi"}
    container = {"name": "app", "image": "x", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"nodeName": NODE, "containers": [container]}}


def test_marked_with_the_shipped_rights(
    cluster: Cluster, admin: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own service account the agent marks a pod Failed and posts its event; `kubectl get pods` shows why."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    token = account(admin)

    async def test(agent: Agent, fake: FakeRuntime) -> None:
        admin.call("POST", pods, pod("fits", "4"))
        admin.call("POST", pods, pod("large", "40"))
        await until(lambda: admin.call("GET", f"{pods}/large")["status"]["phase"] == "Failed")
        status = admin.call("GET", f"{pods}/large")["status"]
        assert status["reason"] == "TopologyAffinityError"
        assert status["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
        assert admin.column(pods, "Status") == {"large": "TopologyAffinityError", "fits": "Pending"}
        found = lambda: admin.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]  # noqa: E731
        await until(found)
        (event,) = found()
        assert event["reason"] == "TopologyAffinityError"
        assert event["involvedObject"]["name"] == "large"
        assert "What would help: " in event["message"]
        await until(lambda: agent.endpoints.status.read().rejected and agent.owner.placing.exclusive().bit_count() == 4)
        admin.call("DELETE", f"{pods}/fits?gracePeriodSeconds=0")
        await until(lambda: agent.owner.placing.exclusive() == 0)

    with_real_api(tmp_path, cluster, token, test, monkeypatch)


def test_without_the_right(
    cluster: Cluster, admin: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `pods/status` the log says which right is missing, in one line, and the pod stays as it is."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    token = account(admin, without="pods/status")
    troubles: list[str] = []

    async def test(agent: Agent, fake: FakeRuntime) -> None:
        agent.refusals._rejecting._trouble = lambda what, text: troubles.append(text)  # type: ignore[union-attr]
        admin.call("POST", pods, pod("large", "40"))
        await until(lambda: troubles)
        (line,) = troubles
        assert "lacks the right to patch pods/status" in line
        assert "\n" not in line
        assert 'cannot patch resource \\"pods/status\\"' in line or 'cannot patch resource "pods/status"' in line
        assert admin.call("GET", f"{pods}/large")["status"]["phase"] == "Pending"

    with_real_api(tmp_path, cluster, token, test, monkeypatch)


def test_its_owner_replaces_it(programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ReplicaSet makes another pod for the refused one, and has its replica once there is room."""
    settings = Settings(nodes=(NODE,), controllers=("replicaset-controller",))
    with ControlPlane(find_programs(), tmp_path / "plane", settings) as plane, plane.api() as admin:
        cluster = cluster_of(plane, (NODE,))
        cluster.prepare_namespace("default")
        token = account(admin)
        pods, sets = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/replicasets"

        async def test(agent: Agent, fake: FakeRuntime) -> None:
            admin.call("POST", pods, pod("old", "20"))
            await until(lambda: agent.owner.placing.exclusive().bit_count() == 20)
            labels = {"app": "new"}
            template = {"metadata": {"labels": labels}, "spec": pod("", "14")["spec"]}
            spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
            admin.call("POST", sets, {"metadata": {"name": "new"}, "spec": spec})
            mine = lambda: admin.call("GET", f"{pods}?labelSelector=app%3Dnew")["items"]  # noqa: E731
            phases = lambda: [one["status"]["phase"] for one in mine()]  # noqa: E731
            await until(lambda: "Failed" in phases() and len(phases()) > 1)
            admin.call("DELETE", f"{pods}/old?gracePeriodSeconds=0")
            await until(lambda: agent.owner.placing.exclusive().bit_count() == 14)
            await until(lambda: phases().count("Pending") == 1)
            assert set(phases()) == {"Failed", "Pending"}
            admin.call("DELETE", f"{sets}/new?propagationPolicy=Background")

        with_real_api(tmp_path, cluster, token, test, monkeypatch)


def bound(admin: Api, node: str) -> str:
    """A token of the agent's account as its pod on that node has it."""
    admin.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    container = {"name": "agent", "image": "x"}
    spec = {"nodeName": node, "serviceAccountName": "podslice-agent", "automountServiceAccountToken": False}
    pods = "/api/v1/namespaces/podslice/pods"
    made = admin.call(
        "POST", pods, {"metadata": {"generateName": "agent-"}, "spec": {**spec, "containers": [container]}}
    )
    reference = {"apiVersion": "v1", "kind": "Pod", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    return token_of(admin, boundObjectRef=reference)


def test_own_node_only(plane: ControlPlane) -> None:
    """With the shipped admission policy an agent marks pods of its own node, as Failed, and changes nothing else."""
    cluster, pods = cluster_of(plane, ("one", "two")), "/api/v1/namespaces/default/pods"
    with plane.api() as admin:
        _try_policy(cluster, admin, pods)


def _try_policy(cluster: Cluster, admin: Api, pods: str) -> None:
    account(admin)
    uid = admin.call("POST", pods, pod("large", "40"))["metadata"]["uid"]
    refusal = ReportedRefusal("TopologyAffinityError", "no room", final=True)
    mark = status_patch(uid, refusal, 0.0)
    running = {"metadata": {"uid": uid}, "status": {"phase": "Running"}}
    labelled = {**mark, "metadata": {"uid": uid, "labels": {"app": "other"}}}

    def answers(token: str, patch: dict[str, Any]) -> str:
        with cluster.api(token=token) as api:
            path = f"{pods}/large/status?dryRun=All"
            return api.ask("PATCH", path, patch, "application/strategic-merge-patch+json").message

    own, other, free = bound(admin, NODE), bound(admin, "two"), account(admin)
    for document in yaml.safe_load_all((FOLDER / "own-node-only.yaml").read_text()):
        assert apply(admin, document).code in (200, 201)
    asyncio.run(until(lambda: "of its own node only" in answers(other, mark)))
    assert "of its own node only" in answers(free, mark)
    assert "mark pods Failed, and nothing else" in answers(own, running)
    assert "may not change labels" in answers(own, labelled)
    assert answers(own, mark) == ""

    def told(token: str, host: str, about: dict[str, str]) -> str:
        event = {
            "metadata": {"name": "e.1", "namespace": "default"}, "involvedObject": about, "reason": "R", "message": "m",
            "type": "Normal", "source": {"component": "podslice", "host": host}, "reportingComponent": "podslice",
            "reportingInstance": host,
        }  # fmt: skip
        with cluster.api(token=token) as api:
            answer = api.ask("POST", "/api/v1/namespaces/default/events?dryRun=All", event)
        return "" if answer.code == 201 else answer.message

    there = {"kind": "Pod", "namespace": "default", "name": "large", "uid": uid}
    assert told(own, NODE, there) == ""
    assert "events of its own node only" in told(other, NODE, there)
    assert "events of its own node only" in told(free, NODE, there)
    assert "about pods and its own node" in told(own, NODE, {"kind": "Node", "name": "two", "uid": "two"})
    assert "about pods and its own node" in told(own, NODE, {"kind": "Secret", "name": "s", "namespace": "default"})
