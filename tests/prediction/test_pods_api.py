"""The kubelet's local Pods API as a source: a real kubelet behaves as the fake one of `tests/agent` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.prediction.node import OneNode

from podslice.agent.kubelet.kubelet import HTTPKubelet
from podslice.agent.kubelet.podsapi import PodsApiSource
from podslice.agent.kubelet.podsclient import GRPCPodsApi
from podslice.agent.kubelet.sources import Sources
from podslice.agent.settings import KubeletSettings
from podslice.service.answers import ApiError
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from podslice.service.podlist import read_known_pod
from tests.clock import PATIENCE, until

STATIC: dict[str, Any] = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
GATE: dict[str, Any] = {**STATIC, "featureGates": {"PodsAPI": True}}
SOCKET = "pods-api/pods-api.sock"
POD = {
    "metadata": {"name": "a"},
    "spec": {
        "os": {"name": "linux"},
        "resources": {"limits": {"cpu": "3", "memory": "256Mi"}},
        "initContainers": [
            {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
        ],
        "containers": [
            {
                "name": "app",
                "image": "x",
                "env": [{"name": "NOT", "value": "kept"}],
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "1"}},
            }
        ],
    },
}
Test = Callable[[PodsApiSource, list[str]], Coroutine[Any, Any, None]]


def following(node: OneNode, test: Test) -> None:
    async def main() -> None:
        troubles: list[str] = []
        source = PodsApiSource(
            GRPCPodsApi(Path(node.kubelet.folder, SOCKET)),
            required=False,
            trouble=lambda what, why: troubles.append(why),
        )
        async with AsyncExitStack() as stack:
            for loop in (source.run(BackOff(0.05, 0.1)), source.answer()):
                stack.callback(asyncio.ensure_future(loop).cancel)
            await test(source, troubles)

    asyncio.run(main())


def names(source: PodsApiSource) -> set[str]:
    return {pod.name for pod in source.pods}


@pytest.mark.slow
def test_real_kubelet_tells_of_its_pods(node: OneNode) -> None:
    """Every pod arrives with the very specification that the API server has, a static one under the UID of its sandbox;
    one that the watch has not told is known by its UID, before the runtime has answered; ended pods go."""
    static = {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": static}
    Path(node.kubelet.folder.parent, "manifests", "static.json").write_text(json.dumps(manifest))
    node.kubelet.start(GATE)

    async def test(source: PodsApiSource, troubles: list[str]) -> None:
        await until(lambda: names(source) == {"static-n1"})
        (told,) = source.pods
        await until(lambda: told.uid in {box.config.metadata.uid for box in node.runtime.sandboxes.values()})
        with node.runtime._lock:
            made = await asyncio.to_thread(node.create, POD)
            identity = Identity(made["metadata"]["uid"], "default", "a", {})
            unwatched = PodsApiSource(GRPCPodsApi(Path(node.kubelet.folder, SOCKET)), required=True, trouble=print)
            answering = asyncio.ensure_future(unwatched.answer())
            while await Sources([unwatched], wait=PATIENCE).wait_for(identity) is None:
                unwatched._denied.clear()
            answering.cancel()
        await until(lambda: "a" in names(source))
        stored = read_known_pod(json.dumps(await asyncio.to_thread(node.get, "a")).encode(), "")
        assert source.find(identity) == stored.pod() == unwatched.find(identity)
        await asyncio.to_thread(node.delete, "a")
        await until(lambda: names(source) == {"static-n1"})
        assert await Sources([source], wait=PATIENCE).wait_for(identity) is None
        assert not source.expects(identity)
        assert troubles == []

    following(node, test)


@pytest.mark.slow
def test_real_kubelet_comes_and_goes(node: OneNode) -> None:
    """A restart, a crash and a start without the gate: the source follows, asks nothing of who is not there, and
    leaves the pods to the next source where the gate is off."""
    node.kubelet.start(GATE)
    uid = node.create(POD)["metadata"]["uid"]
    node.wait_for_decision("a")
    identity = Identity(uid, "default", "a", {})

    async def test(source: PodsApiSource, troubles: list[str]) -> None:
        sources = Sources([source], wait=PATIENCE)
        for kill in (False, True):
            await until(lambda: source._served and source.find(identity))
            await asyncio.to_thread(node.kubelet.stop, kill=kill)
            await until(lambda: not source._served)
            assert source.cause == ""
            await asyncio.to_thread(node.kubelet.start, GATE)
        await until(lambda: source._served and source.find(identity))
        await asyncio.to_thread(node.kubelet.stop)
        await asyncio.to_thread(node.kubelet.start, STATIC)
        other = identity._replace(uid="other")
        assert await sources.wait_for(other) is None
        assert not sources.must_know(other)
        assert (source.ready, source.cause) == (True, "")
        assert any("nothing listens on" in why for why in troubles)

    following(node, test)


@pytest.mark.slow
def test_list_of_a_real_kubelet(node: OneNode, tmp_path: Path) -> None:
    """`sources.kubelet` reads a real kubelet by its own certificate, which signs itself, and the node's name; by
    another name, and when it is down, the reason is told."""
    node.kubelet.start(STATIC)
    uid = node.create(POD)["metadata"]["uid"]
    node.wait_for_decision("a")
    token = tmp_path / "token"
    token.write_text("nobody asks for it")
    settings = KubeletSettings(
        port=node.kubelet.port,
        token_file=str(token),
        ca_file=str(node.kubelet.folder / "pki/kubelet.crt"),
        server_name="$(NODE_NAME)",
    )

    async def main() -> None:
        kubelet, other = (HTTPKubelet(settings, name, "127.0.0.1") for name in (node.kubelet.node, "other"))
        assert uid in {one.uid for one in (await kubelet.pods()).pods}
        with pytest.raises(ApiError, match="TLS: its certificate is not accepted: Hostname mismatch"):
            await other.pods()
        await asyncio.to_thread(node.kubelet.stop)
        with pytest.raises(ApiError, match="/pods: connection refused"):
            await kubelet.pods()
        for one in (kubelet, other):
            await one.close()

    asyncio.run(main())
