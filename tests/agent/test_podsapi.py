"""Pods from the kubelet's local Pods API: followed over a real socket, asked for by UID, and the next source's when the
kubelet does not serve them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.agent.kubelet.podsapi import RELIST_SECONDS, PodsApiSource
from podslice.agent.kubelet.podsclient import GRPCPodsApi
from podslice.agent.kubelet.sources import ManifestSource, PodSource, Sources
from podslice.agent.process.host_access import HostAccess
from podslice.agent.runtime.nri import Launch
from podslice.agent.runtime.protobuf_pods import known_from, pod_message
from podslice.agent.settings import settings_from_dict
from podslice.agent.wiring import wire
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.answers import ApiError
from podslice.service.identity import RESOURCES_ANNOTATION, Identity
from podslice.service.pacing import BackOff
from podslice.service.podlist import read_known_pod
from podslice.service.proto import podsapi_pb2 as api
from podslice.values.cpuset import parse_bits
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_pods_api import EVENT, FakePodsApi, message
from tests.agent.fake_source import FakeSource
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import MACHINE
from tests.agent.test_apiserver import static, who
from tests.agent.test_daemon import settings
from tests.agent.test_sources import MANIFEST, write
from tests.clock import PATIENCE, until
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeRuntime


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to answer than a sandbox waits."""
    monkeypatch.setattr("podslice.agent.kubelet.podsclient.LOOK_UP_SECONDS", PATIENCE)


class Following:
    """A source that follows a kubelet, with what it says of trouble."""

    def __init__(self, path: Path, required: bool) -> None:
        self.troubles: list[str] = []
        self.source = PodsApiSource(
            GRPCPodsApi(path), required=required, trouble=lambda what, why: self.troubles.append(why)
        )
        self._tasks = [
            asyncio.ensure_future(self.source.run(BackOff(0.01, 0.02))),
            asyncio.ensure_future(self.source.answer()),
        ]

    def cpu(self, identity: Identity) -> str:
        found = self.source.find(identity)
        return "" if found is None else str(found.spec.containers[0].resources.limits["cpu"])

    def also(self, *others: PodSource, annotation: bool = False) -> Sources:
        return Sources([self.source, *others], wait=PATIENCE, annotation=annotation)

    async def stop(self) -> None:
        assert not [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def following(
    folder: Path,
    test: Callable[[FakePodsApi, Following], Coroutine[Any, Any, None]],
    *,
    required: bool = False,
    service: str = "v1alpha1.Pods",
    started: bool = True,
) -> None:
    async def main() -> None:
        kubelet = FakePodsApi(folder / "pods-api" / "pods-api.sock", service, message("a"), message("hash", name="dns"))
        if started:
            await kubelet.start()
        watching = Following(kubelet.path, required)
        try:
            await until(lambda: watching.source.ready or not started)
            await test(kubelet, watching)
        finally:
            await watching.stop()
            if kubelet._server is not None:
                await kubelet.stop()

    asyncio.run(main())


@pytest.mark.parametrize("service", ["v1alpha1.Pods", "v1beta1.Pods"])
def test_pods_come_change_and_go(tmp_path: Path, service: str) -> None:
    """The list at the start, then news: what comes last counts, pods that have ended and unknown ones that go are no
    trouble, static pods are found under the UID of their sandbox; whatever version the service is called."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        assert watching.cpu(who("a")) == "1"
        assert watching.cpu(static("hash")._replace(namespace="default", name="dns")) == "1"
        kubelet.tell(EVENT.DELETED, message("never-seen"))
        kubelet.tell(EVENT.MODIFIED, message("late", "3"))
        kubelet.tell(EVENT.ADDED, message("a", "2"))
        kubelet.tell(EVENT.UNSPECIFIED, b"")
        kubelet.tell(EVENT.MODIFIED, message("hash", phase="Succeeded", name="dns"))
        await until(lambda: watching.cpu(who("late")) == "3" and watching.cpu(who("a")) == "2")
        await until(lambda: "hash" not in {pod.uid for pod in watching.source.pods})
        kubelet.tell(EVENT.DELETED, api.Pod(metadata=api.Metadata(uid="a", name="a", namespace="default")))
        await until(lambda: not watching.cpu(who("a")))
        assert watching.troubles == []

    following(tmp_path, test, service=service)


@pytest.mark.slow
def test_250_pods_and_a_reader_that_is_busy(tmp_path: Path) -> None:
    """A full node's pods change while nobody reads what the kubelet tells: nothing of it is lost, and of each pod the
    last word counts."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        for number in range(250):
            kubelet.add(message(f"p{number}"))
        await until(lambda: len(watching.source.pods) == 252)
        for cpus in range(2, 12):
            for number in range(250):
                kubelet.add(message(f"p{number}", str(cpus)))
        for number in range(0, 250, 2):
            kubelet.tell(EVENT.DELETED, kubelet.pods.pop(f"p{number}"))
        await until(lambda: len(watching.source.pods) == 127)
        await until(lambda: {watching.cpu(who(f"p{number}")) for number in range(1, 250, 2)} == {"11"})
        assert not watching.cpu(who("p0"))
        assert watching.troubles == []

    following(tmp_path, test)


def test_sandbox_asks_for_a_pod_that_was_not_told(tmp_path: Path) -> None:
    """The kubelet knows a pod before it calls the runtime: one question answers, also when it is asked too often."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        kubelet.silent = {f"new-{number}": message(f"new-{number}", "4").SerializeToString() for number in range(20)}
        kubelet.limited = 5
        sources = watching.also()
        found = await asyncio.gather(*(sources.wait_for(who(uid)) for uid in kubelet.silent))
        assert {pod is not None and str(pod.spec.containers[0].resources.limits["cpu"]) for pod in found} == {"4"}
        assert len(kubelet.questions) == 25
        assert watching.troubles == []

    following(tmp_path, test)


def test_pod_the_kubelet_does_not_have_is_the_next_sources(tmp_path: Path) -> None:
    """NOT_FOUND ends the wait: another source that expects the pod goes on, else the pod is nobody's."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        sources = watching.also(annotation=True)
        annotated = Identity("b", "default", "b", {RESOURCES_ANNOTATION: '{"limits": {"cpu": "9"}}'})
        assert sources.find(annotated) is None
        found = await sources.wait_for(annotated)
        assert found is not None
        assert str(found.spec.resources.limits["cpu"]) == "9"  # type: ignore[union-attr]
        assert watching.also().must_know(who("b")) is False
        other = FakeSource()
        other.name = "apiServer"
        waiting = asyncio.ensure_future(watching.also(other).wait_for(who("c")))
        await until(lambda: "c" in kubelet.questions)
        other.add(make_pod("c", ("app", "7")))
        assert await waiting is not None
        kubelet.add(message("b", "5"))
        await until(lambda: watching.cpu(who("b")) == "5")

    following(tmp_path, test)


def test_the_kubelets_word_counts_before_manifests_and_api_server(tmp_path: Path) -> None:
    """Of sources that disagree the one nearest to what runs is believed, whole."""
    write(tmp_path / "manifests", "dns.yaml", "dns", cpu="8")
    assert "cpu" in MANIFEST

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        kubelet.add(message("0123", "2", name="dns-node"))
        identity = static("0123")._replace(namespace="default", name="dns-node")
        await until(lambda: watching.cpu(identity))
        others = [ManifestSource(tmp_path / "manifests", "node"), FakeSource([make_pod("a", ("app", "6"))])]
        sources = watching.also(*others)
        for one, cpu in ((identity, "2"), (who("a"), "1")):
            found = sources.find(one)
            assert found is not None
            assert str(found.spec.containers[0].resources.limits["cpu"]) == cpu
        kubelet.tell(EVENT.DELETED, message("0123", name="dns-node"))
        await until(lambda: not watching.cpu(identity))
        assert str(sources.find(identity).spec.containers[0].resources.limits["cpu"]) == "8"  # type: ignore[union-attr]

    following(tmp_path, test)


@pytest.mark.slow
def test_restart_of_the_kubelet(tmp_path: Path) -> None:
    """A broken watch is begun again. A list that lacks a pod forgets it, but the pod is asked for when it matters."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        await kubelet.stop()
        await until(lambda: not watching.source._served)
        assert watching.cpu(who("a")) == "1"
        kubelet.silent["a"] = kubelet.pods.pop("a").SerializeToString()
        await kubelet.start()
        await until(lambda: watching.source._served)
        assert (watching.cpu(who("a")), watching.source.cause) == ("", "")
        assert await watching.also().wait_for(who("a")) is not None
        kubelet.drop_watchers()
        await until(lambda: kubelet.watches == 3)
        assert any("watch client channel closed" in why for why in watching.troubles)

    following(tmp_path, test)


def test_kubelet_that_comes_back_is_asked_at_once(tmp_path: Path) -> None:
    """A sandbox that comes before the next try of the watch does not wait for it, and makes it come."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        waits = asyncio.Event()

        async def long(event: asyncio.Event, seconds: float) -> None:
            waits.set()
            await event.wait()

        source = PodsApiSource(GRPCPodsApi(kubelet.path), required=False, trouble=lambda what, why: None, wait=long)
        tasks = [asyncio.ensure_future(loop) for loop in (source.run(), source.answer())]
        await waits.wait()
        assert source.ready
        assert not source.expects(who("a"))
        await kubelet.start()
        assert source.expects(who("a"))
        assert await Sources([source], wait=PATIENCE, annotation=False).wait_for(who("a")) is not None
        await until(lambda: kubelet.watches)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    following(tmp_path, test, started=False)


@pytest.mark.parametrize("left", ["none", "dead", "other"])
def test_without_the_gate_the_next_source_decides(tmp_path: Path, left: str) -> None:
    """No socket, one that a kubelet left, or a service that knows no pods: `auto` says nothing and expects nothing once
    it has asked; `on` says what is missing, keeps pods waiting, and static ones not."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        if left == "other":
            kubelet.service = "v1.Other"
            await kubelet.start()
        if left == "dead":
            kubelet.path.parent.mkdir()
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(kubelet.path))
        await until(lambda: watching.source.ready)
        assert await watching.also().wait_for(who("a")) is None
        assert not watching.also().must_know(who("a"))
        assert (watching.source.cause, watching.troubles) == ("", [])
        strict = Following(kubelet.path, required=True)
        await until(lambda: strict.source.cause)
        part = {"none": "there is no /", "dead": "nothing listens on /", "other": "does not serve the Pods API"}[left]
        assert part in strict.source.explain_unknown()
        assert strict.source.explain_unknown().startswith("no pods from the kubelet's Pods API: ")
        assert not strict.source.ready
        assert (strict.source.expects(who("a")), strict.source.expects(static("h"))) == (True, False)
        await strict.stop()

    following(tmp_path, test, started=False)


def test_pod_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    """Bytes that are no pod, and amounts that are none, end nothing and hide no other pod."""

    async def test(kubelet: FakePodsApi, watching: Following) -> None:
        kubelet.silent = {"torn": b"\x0a\xff", "other": message("another").SerializeToString()}
        kubelet.tell(EVENT.ADDED, kubelet.silent["torn"])
        kubelet.add(message("bad", "lots"))
        kubelet.add(message("good", "2"))
        await until(lambda: watching.cpu(who("good")))
        with pytest.raises(InputError, match="pod default/bad"):
            watching.source.find(who("bad"))
        with pytest.raises(InputError, match="cannot be decoded"):
            await watching.also().wait_for(who("torn"))
        with pytest.raises(InputError, match="asked for the pod other, the kubelet sent another"):
            await watching.also().wait_for(who("other"))
        assert watching.source.cause == ""

    following(tmp_path, test)


class OnPaper:
    """A kubelet without a socket: `syncs` False never ends its list."""

    def __init__(self) -> None:
        self.pods = [message("a")]
        self.syncs = True
        self.began: list[float] = []

    def there(self) -> bool:
        return True

    async def watch(self) -> AsyncIterator[api.WatchPodsEvent]:
        self.began.append(asyncio.get_running_loop().time())
        for pod in self.pods:
            yield EVENT(type=EVENT.ADDED, pod=pod.SerializeToString())
        if self.syncs:
            yield EVENT(type=EVENT.INITIAL_SYNC_COMPLETE)
        await asyncio.Event().wait()

    async def pod(self, uid: str) -> bytes | None:
        raise RecursionError("deep")


def copy_for_trial(kubelet: OnPaper, test: Callable[[PodsApiSource, list[str]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        troubles: list[str] = []
        source = PodsApiSource(kubelet, required=True, trouble=lambda what, why: troubles.append(why))
        tasks = [asyncio.ensure_future(loop) for loop in (source.run(), source.answer())]
        await test(source, troubles)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(main())


def test_list_is_fresh_every_few_minutes() -> None:
    """The kubelet loses news silently, so every watch ends, and the next begins with all pods."""
    kubelet = OnPaper()

    async def test(source: PodsApiSource, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        kubelet.pods = [message("b")]
        await asyncio.sleep(2 * RELIST_SECONDS + 1)
        assert kubelet.began == [0.0, RELIST_SECONDS, 2 * RELIST_SECONDS]
        assert [pod.uid for pod in source.pods] == ["b"]
        assert troubles == []

    copy_for_trial(kubelet, test)


def test_list_that_does_not_end_is_begun_again() -> None:
    """A kubelet that hangs is said to; what it told so far counts. Nor does an unforeseen failure end anything."""
    kubelet = OnPaper()
    kubelet.syncs = False

    async def test(source: PodsApiSource, troubles: list[str]) -> None:
        await until(lambda: len(kubelet.began) == 2)
        assert troubles == ["the list of pods was not complete after 10 s"]
        assert not source.ready
        assert source.find(who("a")) is not None
        assert await Sources([source], wait=1.0, annotation=False).wait_for(who("b")) is None
        assert source.explain_unknown() == "no pods from the kubelet's Pods API: RecursionError: deep"
        assert 5 < len(troubles) < 15

    copy_for_trial(kubelet, test)


FULL = {
    "containers": [
        {
            "name": "app",
            "resources": {
                "limits": {"cpu": "2"},
                "requests": {"cpu": "1500m"},
                "claims": [{"name": "c", "request": "r"}],
            },
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        },
        {"name": "bare"},
    ],
    "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    "ephemeralContainers": [{"name": "debug"}],
    "resources": {"limits": {"cpu": "4"}},
    "overhead": {"cpu": "250m"},
    "priority": 0,
    "priorityClassName": "high",
    "os": {"name": "linux"},
    "resourceClaims": [{"name": "c", "resourceClaimName": "x"}, {"name": "d", "resourceClaimTemplateName": "y"}],
}  # fmt: skip


def test_protobuf_and_json_tell_the_same_pod() -> None:
    """All that decides about resources arrives, and the specification is that of the API server's JSON."""
    amount = api.Quantity
    spec = api.Spec(
        priority=0, priority_class_name="high", os=api.OS(name="linux"), overhead={"cpu": amount(string="250m")}
    )
    app = spec.containers.add(name="app")
    app.resources.CopyFrom(
        api.Resources(
            limits={"cpu": amount(string="2")},
            requests={"cpu": amount(string="1500m")},
            claims=[api.Claim(name="c", request="r")],
        )
    )
    app.resize_policy.add(resource_name="cpu", restart_policy="NotRequired")
    spec.containers.add(name="bare")
    spec.init_containers.add(name="side", restart_policy="Always").resources.requests["cpu"].string = "1"
    spec.ephemeral_containers.add().common.name = "debug"
    spec.resources.limits["cpu"].string = "4"
    spec.resource_claims.add(name="c", resource_claim_name="x")
    spec.resource_claims.add(name="d", resource_claim_template_name="y")
    pod = api.Pod(metadata=api.Metadata(name="p", namespace="n", uid="u"), spec=spec)
    told = known_from(pod_message(pod.SerializeToString()))
    written = read_known_pod(
        json.dumps({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": FULL}).encode(), ""
    )
    assert told.problem is None
    assert told.pod() == written.pod()
    assert json.loads(told.spec) == json.loads(written.spec)


def test_agent_without_an_api_server(tmp_path: Path) -> None:
    """With the kubelet's word alone the agent places pods, also one that it was not told of; probes and `status` say
    when the kubelet is gone, and why."""

    async def main() -> None:
        kubelet, fake = FakePodsApi(tmp_path / "pods-api.sock"), FakeRuntime(request_timeout=PATIENCE)
        kubelet.silent["a"] = message("a", "4").SerializeToString()
        await kubelet.start()
        FakeTree(tmp_path / "cgroup")
        sources = {"podsAPI": "on", "podsAPISocket": str(kubelet.path)}
        loaded = settings_from_dict(settings(tmp_path, sources=sources))
        patient = replace(loaded.agent, sources=replace(loaded.agent.sources, wait_seconds=PATIENCE))
        agent = wire(
            replace(loaded, agent=patient),
            from_synthetic(MACHINE),
            HostAccess(tree=CgroupTree(tmp_path / "cgroup")),
            launch=Launch("podslice", "90", fake.connect, False),
        )
        running = asyncio.ensure_future(agent.run())
        await asyncio.wait_for(fake.attached.wait(), PATIENCE)
        container = await fake.create_container(await fake.run_pod("a"), "app")
        assert parse_bits(container.cpus).bit_count() == 4
        assert agent.endpoints.status.read().ready == ""
        await kubelet.stop()
        kubelet.path.unlink(missing_ok=True)
        await until(lambda: agent.endpoints.health.ready().text.startswith("podsAPI: there is no /"))
        assert agent.endpoints.status.read().ready.startswith("podsAPI: there is no /")
        agent.stopping.set()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(main())


def test_pod_without_a_name_is_none() -> None:
    """An item without a usable UID is not a pod."""
    with pytest.raises(ApiError, match=r"metadata\.uid"):
        known_from(api.Pod())


@pytest.mark.parametrize(
    ("written", "required", "off"),
    [("auto", False, False), ("on", True, False), (True, True, False), ("off", False, True), (False, False, True)],
)
def test_switch(written: Any, required: bool, off: bool) -> None:
    """`sources.podsAPI` is auto, on or off, also as YAML 1.1 writes these; where it must be there, an annotation alone
    gives nothing."""
    kind = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}
    sources = settings_from_dict(kind | {"sources": {"podsAPI": written}}).agent.sources
    assert (sources.pods_api_required, sources.pods_api_off) == (required, off)
    assert sources.annotation_counts is not required
    with pytest.raises(InputError, match=r"sources\.podsAPI: 'maybe' is unknown.*auto, on or off"):
        settings_from_dict(kind | {"sources": {"podsAPI": "maybe"}})
