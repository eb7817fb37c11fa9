"""Pods from the API server: list, watch, bookmarks, 410, outages, and the real client against a small server."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.kubelet.knownpods import KnownPods
from podslice.service.answers import ApiError, GoneError
from podslice.service.apievents import ApiEvents
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from podslice.service.podlist import Change, read_known_pod
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.clock import until


def pod(uid: str, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    resources = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    spec = {"containers": [{"name": "app", "resources": resources}]}
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid, **metadata}, "spec": spec}


def who(uid: str) -> Identity:
    return Identity(uid, "default", uid, {})


def with_source(test: Callable[[FakeApiServer, ApiSource, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        api, troubles = FakeApiServer(), list[str]()
        source = ApiSource(api, "node", trouble=lambda what, message: troubles.append(message))
        task = asyncio.ensure_future(source.run(BackOff(0.01, 0.02)))
        try:
            await test(api, source, troubles)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


def test_pods_come_and_go() -> None:
    """ADDED, MODIFIED and DELETED arrive; a bookmark only moves the version."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await until(lambda: source.ready)
        await api.apply(pod("a"))
        await until(lambda: source.find(who("a")))
        await api.apply(pod("a", "2"))
        await until(lambda: str(source.find(who("a")).spec.containers[0].resources.limits["cpu"]) == "2")  # type: ignore[union-attr,index]
        await api.bookmark()
        await api.delete("a")
        await until(lambda: source.find(who("a")) is None)
        assert (source.relists, troubles) == (1, [])

    with_source(test)


def test_410_lists_again_and_finds_the_differences() -> None:
    """Changes in a part of the history that the server has lost are found by one more list."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await api.apply(pod("a"))
        await until(lambda: source.find(who("a")))
        del api.objects["a"]
        api.objects["b"] = pod("b")
        await api.expire()
        await until(lambda: source.find(who("b")))
        assert source.find(who("a")) is None
        assert source.relists >= 2

    with_source(test)


def test_outage_is_waited_out() -> None:
    """While the API server is away what is known stays known, and it is said; afterwards all is current."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await api.apply(pod("a"))
        await until(lambda: source.find(who("a")))
        api.down = True
        await until(lambda: troubles)
        assert source.find(who("a")) is not None
        api.objects["b"] = pod("b")
        api.down = False
        await until(lambda: source.find(who("b")))

    with_source(test)


@pytest.mark.parametrize("behaviour", ["gone", "refused", "ended"])
def test_useless_watch_does_not_hammer_the_server(behaviour: str) -> None:
    """A watch that is always too old, refused or ended at once is tried more and more slowly."""

    class Useless(FakeApiServer):
        watches = 0

        async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
            self.watches += 1
            if behaviour == "gone":
                raise GoneError
            if behaviour == "refused":
                raise ApiError("watch: 403 Forbidden")
            for nothing in ():
                yield nothing

    async def main() -> None:
        waits: list[float] = []
        enough = asyncio.Event()

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 8:
                enough.set()
                await asyncio.Event().wait()

        api = Useless()
        source = ApiSource(api, "node", trouble=lambda what, message: None, sleep=sleep)
        task = asyncio.ensure_future(source.run(BackOff(1.0, 1000.0)))
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert source.ready
        assert api.watches == 8
        assert all(later > earlier for earlier, later in itertools.pairwise(waits))

    clock.run(main())


def test_stream_that_ends_is_continued_without_a_list() -> None:
    """The server ends every watch now and then: the next goes on from the last version, a bookmark's for example."""

    class Short(FakeApiServer):
        def __init__(self) -> None:
            super().__init__()
            self.versions: list[str] = []

        async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
            self.versions.append(version)
            async for event in super().watch_pods(node, version):
                yield event
                return

    async def main() -> None:
        api = Short()
        source = ApiSource(api, "node", trouble=lambda what, message: None)
        task = asyncio.ensure_future(source.run(BackOff(0.01, 0.02)))
        await until(lambda: api.versions)
        await api.bookmark()
        await until(lambda: len(api.versions) == 2)
        await api.apply(pod("a"))
        await until(lambda: source.find(who("a")))
        await until(lambda: len(api.versions) == 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert api.versions == ["1", "2", "3"]
        assert source.relists == 1

    clock.run(main())


def mirror(uid: str, of: str, node: str = "node", **changes: Any) -> dict[str, Any]:
    """The mirror of a static pod as a kubelet writes it."""
    annotations = {"kubernetes.io/config.hash": of, "kubernetes.io/config.mirror": of}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": "node-uid", "controller": True}
    metadata = {"name": "dns-node", "namespace": "kube-system", "annotations": annotations, "ownerReferences": [owner]}
    return pod(uid, **metadata | changes)


def static(of: str) -> Identity:
    said = {"kubernetes.io/config.hash": of, "kubernetes.io/config.source": "file"}
    return Identity(of, "kube-system", "dns-node", said)


def test_mirror_pods_are_found_by_the_kubelets_uid() -> None:
    """A static pod's sandbox has the hash of its file as UID; its mirror says so in an annotation."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await api.apply(mirror("mirror", "hash"))
        await until(lambda: source.find(static("hash")))
        await api.delete("mirror")
        await until(lambda: source.find(static("hash")) is None)

    with_source(test)


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"kubernetes.io/config.hash": "hash"}},
        {"annotations": {"kubernetes.io/config.hash": "hash", "kubernetes.io/config.mirror": "other"}},
        {"namespace": "tenant"},
        {"name": "other-node"},
        {"ownerReferences": []},
        {"ownerReferences": [{"kind": "Node", "name": "node"}]},
        {"ownerReferences": [{"kind": "Node", "name": "node-2", "controller": True}]},
        {"ownerReferences": [{"kind": "ReplicaSet", "name": "node", "controller": True}]},
        {"ownerReferences": ["x"]},
    ],
)
def test_whoever_claims_to_be_a_mirror_speaks_for_nobody(changes: dict[str, Any]) -> None:
    """Only what a kubelet writes, in the static pod's own namespace and name, makes a mirror; the true one stays
    heard whoever claims its hash after it."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await api.apply(mirror("claim", "hash", **changes))
        await until(lambda: any(one.uid == "claim" for one in source.pods))
        assert source.find(static("hash")) is None
        await api.apply(mirror("mirror", "hash"))
        await until(lambda: source.find(static("hash")))
        await api.apply(mirror("claim", "hash", **changes) | {"spec": pod("x", "9")["spec"]})
        await until(lambda: any(one.uid == "claim" and b'"9"' in one.spec for one in source.pods))
        found = source.find(static("hash"))
        assert found is not None
        assert str(found.spec.containers[0].resources.limits["cpu"]) == "1"  # type: ignore[index]

    with_source(test)


def test_two_mirrors_are_none() -> None:
    """Of two pods that are the mirror of the same static pod nobody knows which is right."""
    pods = KnownPods()
    for uid in ("one", "two"):
        pods.put(read_known_pod(json.dumps(mirror(uid, "hash")).encode(), "node"))
    assert pods.find(static("hash")) is None
    pods.drop("one")
    assert pods.find(static("hash")) is not None


def test_unreadable_pod_is_an_error_of_that_pod() -> None:
    """A pod we cannot read refuses itself, nobody else."""

    async def test(api: FakeApiServer, source: ApiSource, troubles: list[str]) -> None:
        await api.apply(pod("bad", cpu="lots"))
        await api.apply(pod("good"))
        await until(lambda: source.find(who("good")))
        with pytest.raises(InputError, match="pod default/bad"):
            source.find(who("bad"))

    with_source(test)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, (False, "", False)),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, (False, "", True)),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}, {"state": {}}]},
         (False, "", False)),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}],
          "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, (False, "", False)),
        ({"containerStatuses": [{"state": {"running": {}}}]}, (False, "", False)),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": "none"}, (True, "Evicted", False)),
        ({"phase": "Failed", "reason": None, "containerStatuses": [{"state": {"waiting": None}}]}, (True, "", False)),
    ],
)  # fmt: skip
def test_what_a_kubelet_says_of_a_pod(status: dict[str, Any], told: tuple[bool, str, bool]) -> None:
    """Whether it has ended and why, and whether the kubelet still prepares it; a status that cannot be read in one
    part is read in the others."""
    data = {"metadata": {"uid": "a", "name": "a", "namespace": "default"}, "status": status}
    pod = read_known_pod(msgspec.json.encode(data), "")
    assert (pod.ended, pod.reason, pod.preparing) == told


def test_events_are_sent_once() -> None:
    """A refusal becomes a Warning on its pod; the same one is not repeated, and an outage only drops it."""

    async def main() -> None:
        api = FakeApiServer()
        events = ApiEvents(api, "node")
        task = asyncio.ensure_future(events.run())
        for _ in range(3):
            events.emit(who("a"), "Warning", "TopologyAffinityError", "no room")
        await until(lambda: api.events)
        await asyncio.sleep(0.02)
        assert len(api.events) == 1
        event = api.events[0]
        assert (event["type"], event["reason"], event["message"]) == ("Warning", "TopologyAffinityError", "no room")
        assert event["involvedObject"]["uid"] == "a"
        api.down = True
        events.emit(who("b"), "Warning", "x", "y")
        await until(lambda: events.dropped)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


def test_one_event_a_minute() -> None:
    """About one pod and for one reason: what is said within a minute of the last event is one event at its end. Other
    pods, other reasons and the node do not wait."""

    async def main() -> None:
        api = FakeApiServer()
        events = ApiEvents(api, "node")
        task = asyncio.ensure_future(events.run())
        for sets in ("2 -> 2-5", "2-5 -> 2-3", "2-3 -> 2"):
            events.emit(who("a"), "Normal", "PodsliceResizeApplied", sets)
            events.emit_node("Normal", "PodsliceMachineChanged", sets)
            await asyncio.sleep(1)
        events.emit(who("b"), "Normal", "PodsliceResizeApplied", "6 -> 6-7")
        events.emit(who("a"), "Warning", "PodsliceResizeDeferred", "no room")
        await asyncio.sleep(1)
        said = [(event["involvedObject"]["name"], event["message"]) for event in api.events]
        assert sorted(said) == [
            ("a", "2 -> 2-5"), ("a", "no room"), ("b", "6 -> 6-7"),
            ("node", "2 -> 2-5"), ("node", "2-3 -> 2"), ("node", "2-5 -> 2-3"),
        ]  # fmt: skip
        await asyncio.sleep(57)
        (held,) = api.events[len(said) :]
        assert (held["involvedObject"]["uid"], held["reason"]) == ("a", "PodsliceResizeApplied")
        assert held["message"] == "2-5 -> 2-3; 2-3 -> 2"
        events.emit(who("a"), "Normal", "PodsliceResizeApplied", "2 -> 2-3")
        await asyncio.sleep(58)
        assert len(api.events) == len(said) + 1
        await asyncio.sleep(3)
        assert api.events[-1]["message"] == "2 -> 2-3"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


class HTTPServer:
    """Plays back an API server's answers over HTTP and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.token = "secret"

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line = head.split("\r\n")[0]
        length = next((int(h.split(":")[1]) for h in head.split("\r\n") if h.lower().startswith("content-length")), 0)
        self.requests.append((line, await reader.readexactly(length)))
        code, lines = self._answer(line) if f"Bearer {self.token}\r\n" in head else (401, [{}])
        body = "".join(json.dumps(one) + "\n" for one in lines).encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(f"{head}\r\n".encode() + body)
        await writer.drain()
        writer.close()

    def _answer(self, line: str) -> tuple[int, list[dict[str, Any]]]:
        if line.startswith("POST"):
            return 201, [{}]
        if "watch=1" not in line:
            if "continue=more" in line:
                return 200, [{"metadata": {"resourceVersion": "7"}, "items": [pod("b")]}]
            return 200, [{"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [pod("a")]}]
        if "resourceVersion=old" in line:
            return 200, [{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]
        if "resourceVersion=gone" in line:
            return 410, [{}]
        if "resourceVersion=broken" in line:
            return 500, [{}]
        return 200, [{"type": "ADDED", "object": pod("c")}, {"type": "BOOKMARK", "object": {"metadata": {}}}]


def access(port: int, **user: str) -> Any:
    """Return the connection settings of a kubeconfig for a server on this port."""
    return KubeConfig.from_dict(
        {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    ).get()


def test_real_client() -> None:
    """Pages of a list, a watch with bookmarks, 410 in both places, errors and events, over HTTP."""

    async def main() -> None:
        server = HTTPServer()
        port = await server.start()
        api = HTTPApiServer(access(port))
        pods, problems, version = await api.list_pods("n1")
        assert ([pod.uid for pod in pods], problems, version) == (["a", "b"], [], "7")
        assert "fieldSelector=spec.nodeName%3Dn1" in server.requests[0][0]
        events = [event async for event in api.watch_pods("n1", "7")]
        assert [change.kind for change in events] == ["ADDED", "BOOKMARK"]
        assert "allowWatchBookmarks=true" in server.requests[-1][0]
        for version in ("old", "gone"):
            with pytest.raises(GoneError):
                _ = [event async for event in api.watch_pods("n1", version)]
        with pytest.raises(ApiError, match="500"):
            _ = [event async for event in api.watch_pods("n1", "broken")]
        await api.create_event({"metadata": {"namespace": "default", "name": "x"}})
        assert server.requests[-1][0].startswith("POST /api/v1/namespaces/default/events")
        await api.close()
        server._server.close()
        dead = HTTPApiServer(access(1))
        with pytest.raises(ApiError):
            await dead.list_pods("n1")
        await dead.close()

    asyncio.run(main())


def test_rotated_token_is_read_again(tmp_path: Path) -> None:
    """A service account's token is replaced every hour or so; a token that is missing is an outage, not an end."""

    async def main() -> None:
        server, file = HTTPServer(), tmp_path / "token"
        file.write_text("secret")
        api = HTTPApiServer(access(await server.start(), tokenFile=str(file)))
        assert len((await api.list_pods("n1")).pods) == 2
        server.token = "rotated"
        with pytest.raises(ApiError, match="401"):
            await api.list_pods("n1")
        file.write_text("rotated")
        assert len((await api.list_pods("n1")).pods) == 2
        server.token = "again"
        file.unlink()
        with pytest.raises(ApiError):
            await api.list_pods("n1")
        with pytest.raises(ApiError):
            _ = [event async for event in api.watch_pods("n1", "7")]
        await api.close()
        server._server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("context", "said"),
    [("{cluster: c}", "Missing user"), ("{cluster: c, user: me}", "there is no entry 'me'")],
)
def test_a_kubeconfig_that_names_nobody(
    context: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A context without user, or with one that the file does not have, is bad input like any other."""
    clusters = "[{name: c, cluster: {server: 'http://localhost'}}]"
    contexts = f"[{{name: x, context: {context}}}]"
    path = tmp_path / "config"
    path.write_text(f"{{kind: Config, current-context: x, users: [], clusters: {clusters}, contexts: {contexts}}}")
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(InputError, match=f"no access to an API server: {said} .*set KUBECONFIG"):
        HTTPApiServer()


def test_no_access_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without service account and kubeconfig the start says what to do."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"sources\.apiServer: no access to an API server.*set KUBECONFIG") as caught:
        HTTPApiServer()
    assert "\n" not in str(caught.value)
