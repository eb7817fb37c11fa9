"""The agent's own client of the API server against a real one: what it lists, follows, writes and survives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.certificates import CA_EXTENSIONS
from e2e.controlplane import Api, ControlPlane, Settings
from e2e.programs import find_programs
from e2e.sharedplane import NODES, Cluster, cluster_of, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.records import ReportedRefusal
from podslice.config.annotations import REFUSED_CONDITION
from podslice.service.answers import ApiError, GoneError
from podslice.service.apievents import ApiEvents
from podslice.service.http.apiconnection import AnswerError
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from tests.clock import until
from tests.conformance.deployed import deploy_rights, token_of

PODS = "/api/v1/namespaces/{}/pods"


@contextlib.asynccontextmanager
async def client(cluster: Cluster, token: str) -> AsyncIterator[HTTPApiServer]:
    found = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
    try:
        yield found
    finally:
        await found.close()


@contextlib.asynccontextmanager
async def following(api: HTTPApiServer, node: str) -> AsyncIterator[tuple[ApiSource, list[str]]]:
    """A source of the pods of that node that runs, and what troubled it."""
    troubles: list[str] = []
    source = ApiSource(api, node, trouble=lambda where, what: troubles.append(f"{where}: {what}"))
    task = asyncio.ensure_future(source.run(BackOff(0.05, 0.2)))
    try:
        yield source, troubles
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Bench:
    """A namespace and a node of the test's own, and the pods in it."""

    def __init__(self, admin: Api) -> None:
        self.admin = admin
        self.name = f"t-{uuid.uuid4().hex[:12]}"
        prepare_namespace(admin, self.name)
        deploy_rights(admin)
        self.token = token_of(admin)

    def create(self, name: str, node: str = "", **container: Any) -> str:
        """The UID."""
        spec = {"nodeName": node or self.name, "containers": [{"name": "c", "image": "i", **container}]}
        made = self.admin.call("POST", PODS.format(self.name), {"metadata": {"name": name}, "spec": spec})
        return str(made["metadata"]["uid"])

    def delete(self, name: str) -> None:
        self.admin.call("DELETE", f"{PODS.format(self.name)}/{name}?gracePeriodSeconds=0")

    def end(self, name: str, phase: str) -> None:
        path = f"{PODS.format(self.name)}/{name}/status"
        self.admin.call("PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json")

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.admin.call("GET", f"{PODS.format(self.name)}/{name}")["status"])

    def identity(self, name: str, uid: str) -> Identity:
        return Identity(uid, self.name, name, {})


@pytest.fixture
def bench(admin: Api) -> Bench:
    return Bench(admin)


def run(test: Awaitable[None]) -> None:
    async def main() -> None:
        await test

    asyncio.run(main())


def known(source: ApiSource, bench: Bench, uids: dict[str, str]) -> set[str]:
    return {name for name, uid in uids.items() if source.find(bench.identity(name, uid)) is not None}


def test_list_in_pages(cluster: Cluster, bench: Bench) -> None:
    """All pods of the node come, over several pages, and neither those of other nodes nor those that have ended."""
    uids = {bench.create(f"p{number}") for number in range(230)}
    bench.create("elsewhere", "another")
    bench.create("done")
    bench.end("done", "Succeeded")

    async def test() -> None:
        async with client(cluster, bench.token) as api:
            listing = await api.list_pods(bench.name)
        assert {pod.uid for pod in listing.pods} == uids
        assert listing.problems == []
        assert listing.version.isdigit()

    run(test())


def test_watch(cluster: Cluster, bench: Bench) -> None:
    """Pods come, change, end and go; of one that ends the server says that it is deleted, for it is not listed."""
    uids = {"old": bench.create("old")}

    async def test() -> None:
        async with client(cluster, bench.token) as api, following(api, bench.name) as (source, troubles):
            await until(lambda: source.ready)
            assert known(source, bench, uids) == {"old"}
            amounts = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
            uids["new"] = bench.create("new", resources=amounts)
            uids["ends"] = bench.create("ends")
            bench.create("elsewhere", "another")
            await until(lambda: known(source, bench, uids) == {"old", "new", "ends"})
            found = source.find(bench.identity("new", uids["new"]))
            assert found is not None
            limits = found.spec.containers[0].resources.limits or {}
            assert {name: str(amount) for name, amount in limits.items()} == {"cpu": "2", "memory": "1Gi"}
            bench.end("ends", "Failed")
            bench.delete("old")
            await until(lambda: known(source, bench, uids) == {"new"})
            assert (source.relists, troubles) == (1, [])

    run(test())


def test_server_restarts(plane: ControlPlane) -> None:
    """While the server is away the source keeps what it knew and says why it knows no more; afterwards it lists again,
    for the version to go on from is too old then (410), and follows."""
    with plane.api() as admin:
        bench, cluster = Bench(admin), cluster_of(plane, NODES)
        uids = {"before": bench.create("before")}

        async def test() -> None:
            async with client(cluster, bench.token) as api, following(api, bench.name) as (source, troubles):
                await until(lambda: source.ready)
                plane.stop("kube-apiserver")
                await until(lambda: "refused" in source.cause.lower())
                assert known(source, bench, uids) == {"before"}
                assert source.explain_unknown().startswith(
                    f"no pods from the API server: https://127.0.0.1:{plane.port}/"
                )
                await asyncio.to_thread(plane.start_server)
                uids["after"] = bench.create("after")
                bench.delete("before")
                await until(lambda: known(source, bench, uids) == {"after"})
                assert source.cause == ""
                assert source.relists >= 2
                assert troubles

        run(test())


def test_too_old(plane: ControlPlane) -> None:
    """A version and a page that the server has compacted away are told as what they are, not as an error."""
    with plane.api() as admin:
        bench, cluster = Bench(admin), cluster_of(plane, NODES)
        for number in range(101):
            bench.create(f"p{number}")

        async def test() -> None:
            async with client(cluster, bench.token) as api:
                more = (await api._page(bench.name, "")).more
                assert more
                plane.stop("kube-apiserver")
                await asyncio.to_thread(plane.start_server)

                async def gone() -> bool:
                    bench.delete(bench_pods.pop())
                    try:
                        await api._page(bench.name, more)
                    except GoneError:
                        return True
                    return False

                bench_pods = [f"p{number}" for number in range(101)]
                while not await gone():
                    await asyncio.sleep(0.2)
                with pytest.raises(GoneError):
                    async for _ in api.watch_pods(bench.name, "5"):
                        pass
                assert len((await api.list_pods(bench.name)).pods) == len(bench_pods)

        run(test())


def test_token_is_rotated(cluster: Cluster, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod the client reads its token again once the server does not take it any more."""
    secrets = "/api/v1/namespaces/podslice/secrets"
    secret = bench.admin.call("POST", secrets, {"metadata": {"name": bench.name}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": bench.name, "uid": secret["metadata"]["uid"]}
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_text(Path(cluster.authority).read_text())
    (account / "namespace").write_text("podslice")
    (account / "token").write_text(token_of(bench.admin, boundObjectRef=bound))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    uid = bench.create("p")

    async def test() -> None:
        api = HTTPApiServer(KubeConfig.from_service_account(account).get())
        assert [pod.uid for pod in (await api.list_pods(bench.name)).pods] == [uid]
        bench.admin.call("DELETE", f"{secrets}/{bench.name}")

        async def refused() -> str:
            try:
                await api.list_pods(bench.name)
            except ApiError as error:
                return str(error)
            return ""

        while not (said := await refused()):  # the server remembers for ten seconds that a token was good
            await asyncio.sleep(0.2)
        assert "401 Unauthorized" in said
        (account / "token").write_text(token_of(bench.admin))
        assert [pod.uid for pod in (await api.list_pods(bench.name)).pods] == [uid]
        await api.close()

    run(test())


def test_events(cluster: Cluster, bench: Bench) -> None:
    """The agent's events of pods and the node are stored as meant, and have no field that the server does not know."""
    uid = bench.create("p")

    async def test() -> None:
        async with client(cluster, bench.token) as api:
            events = ApiEvents(api, "n1")
            sending = asyncio.ensure_future(events.run())
            events.emit(bench.identity("p", uid), "Warning", "TopologyAffinityError", "no room: x" * 300)
            path = f"/api/v1/namespaces/{bench.name}/events?fieldSelector=involvedObject.uid%3D{uid}"
            await until(lambda: bench.admin.call("GET", path)["items"] or events.dropped)
            sending.cancel()
            (stored,) = bench.admin.call("GET", path)["items"]
            assert (stored["type"], stored["reason"], stored["count"]) == ("Warning", "TopologyAffinityError", 1)
            assert stored["source"] == {"component": "podslice", "host": "n1"}
            assert stored["message"].startswith("no room: x")
            for namespace, about in (
                (bench.name, ("Pod", bench.name, "p", uid)),
                ("default", ("Node", "", "n1", "n1")),
            ):
                strict = f"/api/v1/namespaces/{namespace}/events?fieldValidation=Strict"
                answer = bench.admin.ask("POST", strict, events._event(about, "Normal", "r", "m"))
                assert (answer.code, answer.warnings) == (201, [])

    run(test())


def test_pods_are_failed(cluster: Cluster, bench: Bench) -> None:
    """A refused pod is Failed with reason and message; one that is gone, or another of its name, is an answer."""
    uid = bench.create("p")
    refusal = ReportedRefusal("TopologyAffinityError", "Resources cannot be allocated with Topology locality")

    async def test() -> None:
        async with client(cluster, bench.token) as api:
            with pytest.raises(AnswerError) as other:
                await api.patch_pod_status(bench.name, "p", status_patch("not-its-uid", refusal, time.time()))
            assert other.value.code == 422
            assert "metadata.uid: " in str(other.value)
            await api.patch_pod_status(bench.name, "p", status_patch(uid, refusal, time.time()))
            with pytest.raises(AnswerError) as gone:
                await api.patch_pod_status(bench.name, "q", status_patch(uid, refusal, time.time()))
            assert gone.value.code == 404
        found = bench.status("p")
        assert (found["phase"], found["reason"]) == ("Failed", "TopologyAffinityError")
        assert found["message"] == f"Pod was rejected: {refusal.message}"
        said = [one["reason"] for one in found["conditions"] if one["type"] == REFUSED_CONDITION]
        assert said == ["TopologyAffinityError"]

    run(test())


def test_a_job_can_tell_refused_pods(bench: Bench) -> None:
    """The API server takes a Job that makes pods again which ended with our condition, as
    docs/development/agent-behaviour.md has it."""
    rule = {"action": "Ignore", "onPodConditions": [{"type": REFUSED_CONDITION, "status": "True"}]}
    container = {"name": "c", "image": "x"}
    job = {
        "metadata": {"name": "j"},
        "spec": {
            "podFailurePolicy": {"rules": [rule]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    answer = bench.admin.ask("POST", f"/apis/batch/v1/namespaces/{bench.name}/jobs?dryRun=All", job)
    assert answer.code == 201, answer.message
    text = (Path(__file__).parents[2] / "docs/development/agent-behaviour.md").read_text()
    (written,) = re.findall(r"`podFailurePolicy: (.+)`", text)
    assert yaml.safe_load(written) == job["spec"]["podFailurePolicy"]


def test_one_pod_by_name(cluster: Cluster, bench: Bench) -> None:
    """A pod that has ended is found by its name with its reason, and one that is not there is not."""
    uid = bench.create("p")
    bench.create("pp")

    async def test() -> None:
        async with client(cluster, bench.token) as api:
            found = await api.find_pod(bench.name, "p")
            assert found is not None
            assert (found.uid, found.ended, found.reason) == (uid, False, "")
            refusal = ReportedRefusal("TopologyAffinityError", "no room", final=True)
            await api.patch_pod_status(bench.name, "p", status_patch(uid, refusal, time.time()))
            found = await api.find_pod(bench.name, "p")
            assert found is not None
            assert (found.uid, found.ended, found.reason) == (uid, True, "TopologyAffinityError")
            assert await api.find_pod(bench.name, "q") is None

    run(test())


def test_rights_are_missing(cluster: Cluster, bench: Bench) -> None:
    """Without its rights the agent is told so by the server, in one line that names what is missing."""
    uid = bench.create("p")
    refusal = ReportedRefusal("r", "m")

    async def test() -> None:
        async with client(cluster, token_of(bench.admin, "default", bench.name)) as api:
            with pytest.raises(ApiError, match=r'403 Forbidden.*cannot list resource "pods"'):
                await api.list_pods(bench.name)
            with pytest.raises(AnswerError, match=r'403 Forbidden.*cannot patch resource "pods/status"'):
                await api.patch_pod_status(bench.name, "p", status_patch(uid, refusal, time.time()))
            with pytest.raises(ApiError, match=r'403 Forbidden.*cannot create resource "events"'):
                await api.create_event({"metadata": {"name": "e", "namespace": bench.name}})

    run(test())


@pytest.mark.parametrize("kind", [kind for kind in CA_EXTENSIONS if kind != "complete"])
def test_authorities(programs: None, tmp_path: Path, kind: str) -> None:
    """A server whose authority lacks the extensions that strict verification asks for is read like any other, and one
    of another authority is refused."""
    settings = Settings(nodes=NODES, authority=kind)
    with ControlPlane(find_programs(), tmp_path / "plane", settings) as plane, plane.api() as admin:
        bench, cluster = Bench(admin), cluster_of(plane, NODES)
        uid = bench.create("p")

        async def test() -> None:
            async with client(cluster, bench.token) as api:
                assert [pod.uid for pod in (await api.list_pods(bench.name)).pods] == [uid]

        run(test())
