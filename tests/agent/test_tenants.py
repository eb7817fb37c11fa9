"""A tenant's annotations harm only its own pods: static pods and other tenants keep their resources."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.kubelet.knownpods import MOST_BYTES
from podslice.agent.kubelet.sources import Sources
from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.report import AgentReporter
from podslice.cli.main import cli
from podslice.service.answers import ApiError
from podslice.service.apievents import ApiEvents
from podslice.service.identity import RESOURCES_ANNOTATION, SOURCE_ANNOTATION, Identity
from podslice.service.podlist import HASH_ANNOTATION, MIRROR_ANNOTATION, decode_change, decode_list
from podslice.values.errors import InputError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.helpers import MACHINE
from tests.agent.test_apiserver import mirror, pod, static, until, who
from tests.agent.test_daemon import api_pod, pool, with_agent
from tests.agent.test_daemon import settings as settings_of
from tests.service.fake_runtime import FakeRuntime

HASH = "0123456789abcdef"


@pytest.mark.parametrize("cpus", ["31", "40"])
def test_nobody_decides_about_a_static_pod(tmp_path: Path, cpus: str) -> None:
    """A pod that carries the hash of the API server's file gives or denies the API server nothing."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        own = mirror("mirror", HASH, agent.node_name, name="kube-apiserver-n1")
        own["spec"] = {"containers": [{"name": "kube-apiserver", "resources": {"requests": {"cpu": "250m"}}}]}
        await api.apply(own)
        claim = {"annotations": {HASH_ANNOTATION: HASH, MIRROR_ANNOTATION: HASH}, "namespace": "tenant"}
        await api.apply(pod("attacker", cpus, **claim, ownerReferences=own["metadata"]["ownerReferences"]))
        (source,) = [one for one in agent.configured.in_order() if one.name == "apiServer"]
        assert isinstance(source, ApiSource)
        await until(lambda: any(one.uid == "attacker" for one in source.pods))
        said = {HASH_ANNOTATION: HASH, SOURCE_ANNOTATION: "file"}
        sandbox = await fake.run_pod(HASH, name="kube-apiserver-n1", namespace="kube-system", annotations=said)
        container = await fake.create_container(sandbox, "kube-apiserver")
        assert container.cpus == pool(agent) == "0-31"

    with_agent(tmp_path, test)


@pytest.mark.parametrize("said", [
    {}, {HASH_ANNOTATION: "a"}, {HASH_ANNOTATION: "other", SOURCE_ANNOTATION: "file"},
    {HASH_ANNOTATION: "a", SOURCE_ANNOTATION: "api"},
])  # fmt: skip
@pytest.mark.parametrize("annotation", [None, True, False])
def test_annotation_never_stands_for_a_pod_the_api_server_will_tell(
    tmp_path: Path, said: dict[str, str], annotation: bool | None
) -> None:
    """Whatever else it claims to be, an annotated pod nobody has told about is waited for and then refused."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        amounts = {"cpu": "31", "memory": "1Gi"}
        wants = json.dumps({"limits": amounts, "requests": amounts, "containers": {"app": {"limits": amounts}}})
        sandbox = await fake.run_pod("a", annotations={RESOURCES_ANNOTATION: wants, **said})
        with pytest.raises(RPCError, match="has not reported this pod yet"):
            await fake.create_container(sandbox, "app")
        assert pool(agent) == "0-31"

    sources = {"apiServer": True, "annotation": annotation, "waitSeconds": 0.0}
    with_agent(tmp_path, test, sources=sources)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["9" * 5000, "1e4096", "31", "-4", "victim", HASH, "node", "kube-system", "dns-node"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["limits", "requests", "cpu", "memory", "hugepages-2Mi", "hugepages-" + "1" * 5000,
                         "containers", "initContainers", "name", "restartPolicy", "resources", "overhead", "claims"]),
        inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
hostile_metadata = st.fixed_dictionaries({}, optional={
    "uid": st.sampled_from(["tenant-1", "tenant-2", "../x", "", HASH]),
    "name": st.sampled_from(["t", "dns-node", "a\nb"]), "namespace": st.sampled_from(["tenant", "x" * 300]),
    "annotations": st.dictionaries(
        st.sampled_from([HASH_ANNOTATION, MIRROR_ANNOTATION, RESOURCES_ANNOTATION]),
        st.sampled_from([HASH, "victim", "x" * 9000])) | json_values,
    "ownerReferences": st.lists(st.just({"kind": "Node", "name": "node", "controller": True})) | json_values,
})  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(hostile_metadata, json_values, st.booleans()), max_size=6))
def test_hostile_pods_change_no_answer_about_others(pods: list[tuple[dict[str, Any], Any, bool]]) -> None:
    """Random hostile pods, listed and watched in any order: nothing but typed errors comes out, what is kept is
    bounded, and the victim's and the static pod's answers stay what they are without them."""
    api = FakeApiServer()
    source = ApiSource(api, "node", trouble=lambda what, why: None)
    sources = Sources([source], annotation=True)
    good = [pod("victim", "3"), mirror("mirror", HASH)]
    listed = [{"metadata": metadata, "spec": spec} for metadata, spec, watched in pods if not watched]
    source.pods.replace(decode_list([json.dumps({"items": [*listed[:2], *good, *listed[2:]]}).encode()], "node").pods)
    expected = [str(sources.find(who("victim"))), str(sources.find(static(HASH)))]
    for metadata, spec, watched in pods:
        if watched:
            try:
                event = {"type": "MODIFIED", "object": {"metadata": metadata, "spec": spec}}
                source.pods.put(decode_change(json.dumps(event).encode(), "node").pod)  # type: ignore[arg-type]
            except ApiError:
                continue
    text = json.dumps(pods[0][1]) if pods else "{}"
    for uid in ("tenant-1", "tenant-2", "unknown"):
        try:
            sources.find(Identity(uid, "tenant", "t", {RESOURCES_ANNOTATION: text, HASH_ANNOTATION: HASH}))
        except InputError as error:
            assert len(str(error)) < 20_000  # noqa: PT017
    assert [str(sources.find(who("victim"))), str(sources.find(static(HASH)))] == expected
    assert "cpu" in expected[0]
    assert "dns-node" in expected[1]
    assert source.pods.size < MOST_BYTES


def test_the_same_trouble_is_logged_once_and_counted_each_time() -> None:
    """A repeated trouble does not fill the log, and is logged again after five minutes."""
    now = [0.0]
    with structlog.testing.capture_logs() as logs:
        reporter = AgentReporter(clock=lambda: now[0])
        for _ in range(50):
            reporter.trouble("apiServer", "no route to host")
        reporter.trouble("apiServer", "403")
        now[0] = 301.0
        reporter.trouble("apiServer", "no route to host")
        for number in range(5000):
            reporter.trouble("apiPod", f"{number}" + "x" * 5000)
    assert [one["message"] for one in logs[:3]] == ["no route to host", "403", "no route to host"]
    assert len(logs) == 5003
    assert max(len(one["message"]) for one in logs) <= 1000


def test_no_event_ends_the_sender() -> None:
    """An event that cannot be sent for whatever reason is dropped, and the next one is sent."""

    class Odd(FakeApiServer):
        async def create_event(self, event: dict[str, Any]) -> None:
            if event["reason"] == "odd":
                raise ValueError("surrogates not allowed")
            await super().create_event(event)

    async def main() -> None:
        api = Odd()
        events = ApiEvents(api, "node")
        task = asyncio.ensure_future(events.run())
        events.emit(who("a"), "Warning", "odd", "x")
        events.emit(who("a"), "Warning", "even", "x")
        await until(lambda: api.events)
        assert events.dropped == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_one_bad_pod_of_the_api_server_is_that_pods_failure(tmp_path: Path) -> None:
    """Beside a pod that cannot be read another one gets its CPUs, and the bad one is named and counted."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("bad", "1" * 5000))
        await api.apply(api_pod("good", "4"))
        container = await fake.create_container(await fake.run_pod("good"), "app")
        assert container.cpus
        with pytest.raises(RPCError, match="pod default/bad"):
            await fake.create_container(await fake.run_pod("bad"), "app")
        assert 'podslice_troubles_total{kind="apiPod"} 1.0' in agent.endpoints.page.text().decode()

    with_agent(tmp_path, test)


def test_refusal_says_that_the_api_server_cannot_be_reached(tmp_path: Path) -> None:
    """A pod nobody knows is refused with the cause of that, not as one the API server has not told about."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        api.down = True
        (source,) = [one for one in agent.configured.in_order() if one.name == "apiServer"]
        await until(lambda: source.cause)
        sandbox = await fake.run_pod("a")
        with pytest.raises(RPCError, match="PodUnknown: no pods from the API server: connection re"):
            await fake.create_container(sandbox, "app")

    with_agent(tmp_path, test, sources={"apiServer": True, "waitSeconds": 0.0})


@pytest.mark.parametrize(("sources", "remark"), [
    ({}, "none but the annotation"), ({"apiServer": True, "annotation": True}, "up to what the pod requests"),
    ({"kubelet": {"insecureSkipTLSVerify": True}}, "gets the token"), ({"apiServer": True}, ""),
])  # fmt: skip
def test_check_config_warns_of_open_doors(tmp_path: Path, sources: dict[str, Any], remark: str) -> None:
    """Settings that trust those who write pods, or whoever answers, are named before the agent runs."""
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps(settings_of(tmp_path, sources=sources)))
    result = CliRunner().invoke(cli, ["agent", "--config", str(file), "--check-config", "--from", MACHINE])
    assert result.exit_code == 0
    assert ("sources" in result.output) == bool(remark)
    assert remark in result.output
