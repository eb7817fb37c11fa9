"""A refused pod at a real API server: with the rights that are shipped, for its owner and for who looks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import Api, ControlPlane, Settings
from e2e.programs import find_programs
from e2e.sharedplane import Cluster, cluster_of

from podslice.agent.apiclient import HTTPApiServer
from podslice.agent.daemon import Agent
from tests.agent.test_daemon import with_agent
from tests.clock import until
from tests.wire.fake_runtime import FakeRuntime

NODE = "one"
MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "podslice.yaml"
_PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/podslice/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
Test = Callable[[Agent, FakeRuntime], Awaitable[None]]


@pytest.fixture
def namespace(cluster: Cluster, admin: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """One of the test's own, without pods afterwards."""
    name = request.node.name.replace("_", "-")[:60]
    cluster.prepare_namespace(name)
    yield name
    admin.call("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")


def account(admin: Api, *, without: str = "") -> str:
    """The token of the agent's service account with the rights of the manifest; or with those but one, then of another
    service account, for other tests use the first one meanwhile."""
    name = "podslice-limited" if without else "podslice-agent"
    for shipped in yaml.safe_load_all(MANIFEST.read_text().replace("podslice-agent", name)):
        place = _PLACES.get(shipped["kind"])
        if place is None:
            continue
        if shipped["kind"] == "ClusterRole":
            shipped["rules"] = [rule for rule in shipped["rules"] if rule["resources"] != [without]]
        if admin.ask("POST", place, shipped).code == 409 and shipped["kind"] == "ClusterRole":
            admin.call("PUT", f"{place}/{shipped['metadata']['name']}", shipped)
    path = f"{_PLACES['ServiceAccount']}/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(admin.call("POST", path, request)["status"]["token"])


def with_real_api(folder: Path, cluster: Cluster, token: str, test: Test, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent of the node `one` beside a runtime on paper, with a real API server."""
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


def shown(cluster: Cluster, path: str) -> dict[str, str]:
    """The column STATUS as `kubectl get pods` prints it, by pod."""
    with cluster.api() as api:
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        answer: http.client.HTTPResponse = api._answer("GET", path, None, headers | api_token(cluster))
        table = json.loads(answer.read())
    at = [column["name"] for column in table["columnDefinitions"]].index("Status")
    return {row["cells"][0]: row["cells"][at] for row in table["rows"]}


def api_token(cluster: Cluster) -> dict[str, str]:
    return {"Authorization": f"Bearer {cluster.tokens['admin']}"}


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
        assert shown(cluster, pods) == {"large": "TopologyAffinityError", "fits": "Pending"}
        found = lambda: admin.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]  # noqa: E731
        await until(found)
        (event,) = found()
        assert event["reason"] == "TopologyAffinityError"
        assert event["involvedObject"]["name"] == "large"
        assert "What would help: " in event["message"]
        await until(lambda: agent.status().rejected and agent.owner.placing.exclusive().bit_count() == 4)
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
