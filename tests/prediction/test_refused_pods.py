"""The agent beside a real kubelet that does nothing with CPUs: what becomes of pods that the agent refuses.

The kubelet's runtime has no processes. Its calls go on to a runtime on paper, which asks the agent over NRI.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from e2e.controlplane import STRATEGIC
from e2e.programs import Programs
from tools.prediction.machine import Shape
from tools.prediction.node import NODE, OneNode, one_node
from tools.prediction.runtime import FakeRuntime as CRIRuntime

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.process.daemon import Agent
from podslice.agent.records import ReportedRefusal
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import pod_from_dict
from tests.agent.test_daemon import RESOURCES, with_agent
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

NEVER = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%")
KUBELET = {"cgroupsPerQOS": False, "enforceNodeAllocatable": [], "evictionHard": NEVER}
SHAPE = Shape("two nodes", sockets=2, nodes=2, cores=4)
FEW = {**RESOURCES, "reservedSystemCPUs": "0-27"}
"""Four CPUs are left for pods; the kubelet counts sixteen."""


class Bridge:
    """Passes the kubelet's calls to its runtime on to the agent. While `may_stop` is clear no container stops."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.nri: FakeRuntime | None = None
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.refusals: list[str] = []
        self.sandbox_seconds = 0.0
        """How long a sandbox takes to be made."""
        for name, ours in (("_run_sandbox", self._run), ("_create", self._create), ("_stop_sandbox", self._end),
                           ("_stop", self._stop)):  # fmt: skip
            theirs = getattr(CRIRuntime, name)
            call = lambda runtime, request, ours=ours, theirs=theirs: ours(runtime, request, theirs)  # noqa: E731
            monkeypatch.setattr(CRIRuntime, name, call)

    def _ask(self, call: Callable[[FakeRuntime], Coroutine[Any, Any, Any]]) -> Any:
        if self.loop is None or self.nri is None:
            return None
        return asyncio.run_coroutine_threadsafe(call(self.nri), self.loop).result(PATIENCE)

    def _run(self, runtime: CRIRuntime, request: Any, theirs: Any) -> Any:
        time.sleep(self.sandbox_seconds)
        answer = theirs(runtime, request)
        pod = request.config.metadata
        self._ask(
            lambda nri: nri.run_pod(pod.uid, name=pod.name, namespace=pod.namespace, sandbox=answer.pod_sandbox_id)
        )
        return answer

    def _create(self, runtime: CRIRuntime, request: Any, theirs: Any) -> Any:
        answer = theirs(runtime, request)
        name, container_id = request.config.metadata.name, answer.container_id
        try:
            self._ask(lambda nri: nri.create_container(request.pod_sandbox_id, name, container_id=container_id))
        except RPCError as error:
            self.refusals.append(str(error))
            del runtime.containers[container_id]
            raise KeyError(str(error)) from None
        return answer

    def _end(self, runtime: CRIRuntime, request: Any, theirs: Any) -> Any:
        answer = theirs(runtime, request)
        sandbox = request.pod_sandbox_id
        if self.nri is not None and sandbox in self.nri.pods:
            self._ask(lambda nri: nri.stop_pod(sandbox))
        return answer

    def _stop(self, runtime: CRIRuntime, request: Any, theirs: Any) -> Any:
        self.may_stop.wait(PATIENCE)
        return theirs(runtime, request)


def beside_the_kubelet(
    programs: Programs,
    folder: Path,
    test: Callable[[Agent, OneNode, Bridge], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bridge = Bridge(monkeypatch)
    with (
        tempfile.TemporaryDirectory(prefix="podslice-") as short,
        one_node(programs, Path(short), SHAPE) as node,
    ):
        node.kubelet.start(KUBELET)
        config = folder / "kubeconfig"
        config.write_text((Path(short) / NODE / "kubeconfig").read_text())
        monkeypatch.setenv("KUBECONFIG", str(config))

        async def check(agent: Agent, nri: FakeRuntime, _: Any) -> None:
            bridge.loop, bridge.nri = asyncio.get_running_loop(), nri
            try:
                await test(agent, node, bridge)
            finally:
                bridge.may_stop.set()
                await asyncio.to_thread(node.kubelet.stop)
                bridge.loop = None

        sources = {"apiServer": True, "nodeName": NODE}
        with_agent(folder, check, api=HTTPApiServer(), sources=sources, resources=FEW, events=False)


def pod(name: str, cpus: str) -> dict[str, Any]:
    limits = {"cpu": cpus, "memory": "64Mi"}
    container = {"name": "app", "image": "x", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def ended(node: OneNode, name: str) -> bool:
    """Failed for good: the kubelet has said so as well, and has ended its sandbox."""
    stored = node.get(name)
    status = stored["status"]
    sandboxes = [one for one in node.runtime.sandboxes.values() if one.config.metadata.uid == stored["metadata"]["uid"]]
    conditions = {one["type"]: one.get("reason") for one in status.get("conditions", [])}
    return (
        status["phase"] == "Failed"
        and conditions.get("Ready") == "PodFailed"
        and "startTime" in status
        and all("terminated" in one["state"] for one in status["containerStatuses"])
        and not any(one.state == 0 for one in sandboxes)
    )


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at once", "when it is quiet", "when a slow node is quiet"])
def test_a_refused_pod_ends(programs: Programs, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet takes the mark over, whenever it comes: the pod ends Failed with the agent's reason and message, and
    stays so over a restart of the kubelet. It is not Pending again in between if the mark waited until all is quiet,
    also where a sandbox takes longer than the agent waits for one that nobody makes."""
    if when == "at once":
        for name in ("QUIET_SECONDS", "SANDBOX_SECONDS"):
            monkeypatch.setattr(f"podslice.agent.api_server.refusals.{name}", 0.0)
    phases: list[str] = []

    async def test(agent: Agent, node: OneNode, bridge: Bridge) -> None:
        if when == "when a slow node is quiet":
            bridge.sandbox_seconds = 5.0
        stored = node.create(pod("large", "10"))

        def over() -> bool:
            phases.append(node.get("large")["status"]["phase"])
            return ended(node, "large")

        await until(over)
        status = node.get("large")["status"]
        assert status["reason"] == "TopologyAffinityError"
        assert status["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
        await until(lambda: stored["metadata"]["uid"] not in agent.owner.pods)
        await asyncio.to_thread(node.kubelet.stop)
        await asyncio.to_thread(node.kubelet.start, KUBELET)
        node.create(pod("small", "1"))
        await until(lambda: node.get("small")["status"]["phase"] == "Running")
        assert ended(node, "large")
        assert node.get("large")["status"]["reason"] == "TopologyAffinityError"

    beside_the_kubelet(programs, tmp_path, test, monkeypatch)
    if when != "at once":
        assert "Pending" not in phases[phases.index("Failed") :]


@pytest.mark.slow
def test_a_pod_that_waits_runs(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod for which there is room once another has ended is never Failed: the kubelet tries its container again, and
    it runs on the CPUs that became free."""

    async def test(agent: Agent, node: OneNode, bridge: Bridge) -> None:
        old = node.create(pod("old", "4"))["metadata"]["uid"]
        await until(lambda: node.get("old")["status"]["phase"] == "Running")
        cpus = agent.owner.placing.owned_by([old])
        bridge.may_stop.clear()
        node.api.call("DELETE", "/api/v1/namespaces/default/pods/old")
        new = node.create(pod("new", "4"))["metadata"]["uid"]
        await until(lambda: bridge.refusals)
        assert "it waits for default/old to end" in bridge.refusals[-1]
        assert node.get("new")["status"]["phase"] == "Pending"
        bridge.may_stop.set()
        await until(lambda: agent.owner.placing.owned_by([new]) == cpus)
        await until(lambda: node.get("new")["status"]["phase"] == "Running")

    beside_the_kubelet(programs, tmp_path, test, monkeypatch)


@pytest.mark.slow
def test_what_a_kubelet_takes_back(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of containers that never were a kubelet says ContainerStatusUnknown, also where it ended the pod itself, and
    kubectl shows that. What is written over it the kubelet takes back, a reason too where it has none; our condition
    stays."""
    monkeypatch.setattr(CRIRuntime, "_create", _never)
    refusal = ReportedRefusal("TopologyAffinityError", "no room", spec=pod_from_dict(pod("a", "1")))
    with tempfile.TemporaryDirectory(prefix="podslice-") as folder, one_node(programs, Path(folder), SHAPE) as node:
        node.kubelet.start(KUBELET)
        for name in ("deadline", "marked", "bare"):
            node.create(pod(name, "1"))
            node.until(name, _has_no_container)
        mark(node, "deadline", {"spec": {"activeDeadlineSeconds": 1}}, of="")
        mark(node, "bare", {"metadata": {"annotations": {"a": "b"}}, "status": {"phase": "Failed"}})
        mark(node, "marked", status_patch(_uid(node, "marked"), refusal, time.time()))
        kubelets = {"deadline": "DeadlineExceeded", "marked": "TopologyAffinityError", "bare": None}
        for name, reason in kubelets.items():
            _ends_as_a_kubelet_shows_it(node, name, reason)
        for name in ("marked", "bare"):
            written = mark(node, name, status_patch(_uid(node, name), refusal, time.time()))["status"]
            assert written["containerStatuses"][0]["state"]["terminated"]["reason"] == "TopologyAffinityError"
            assert written["reason"] == "TopologyAffinityError"
            _ends_as_a_kubelet_shows_it(node, name, kubelets[name])
            conditions = node.get(name)["status"]["conditions"]
            (ours,) = [one for one in conditions if one["type"] == "podslice.io/Refused"]
            assert (ours["status"], ours["reason"], ours["message"]) == ("True", "TopologyAffinityError", "no room")


def _ends_as_a_kubelet_shows_it(node: OneNode, name: str, reason: str | None) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    node.kubelet.wait(f"{name} is shown", lambda: node.api.column(path, "Status")[name] == "ContainerStatusUnknown")
    status = node.get(name)["status"]
    assert (status["phase"], status.get("reason")) == ("Failed", reason)


def _never(runtime: CRIRuntime, request: Any) -> Any:
    raise KeyError("no such thing")


def _has_no_container(found: dict[str, Any]) -> bool:
    states = [one["state"].get("waiting", {}) for one in found["status"].get("containerStatuses", [])]
    return [one.get("reason") for one in states] == ["CreateContainerError"]


def mark(node: OneNode, name: str, patch: dict[str, Any], of: str = "/status") -> dict[str, Any]:
    return node.api.call("PATCH", f"/api/v1/namespaces/default/pods/{name}{of}", patch, STRATEGIC)


def _uid(node: OneNode, name: str) -> str:
    return str(node.get(name)["metadata"]["uid"])
