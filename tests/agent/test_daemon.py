"""The whole process: configuration, start, what it serves, and how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.process.daemon import Agent
from podslice.agent.process.host_access import HostAccess
from podslice.agent.process.notify import notify, watchdog_interval
from podslice.agent.runtime.nri import Launch
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.settings import settings_from_dict
from podslice.agent.statefolder import make_private, state_problem
from podslice.agent.wiring import wire
from podslice.cli.main import cli
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.machine.readers.synthetic import from_synthetic
from podslice.status.agent_socket import read_status
from podslice.status.status import AgentStatus
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import MACHINE
from tests.clock import PATIENCE, until
from tests.read_documents import read_document
from tests.service.fake_runtime import FakeContainer, FakeRuntime
from tests.service.test_certificates import KEY, certificate, der

RESOURCES = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "restricted",
    "evictionHard": {},
}

POLICY = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy"}
CLAIMS = {"sources": {"apiServer": True}, "policy": {**POLICY, "spec": {"claims": {"cpus": "2-3"}}}}


def settings(folder: Path, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "AgentConfiguration",
        "resources": RESOURCES,
        "stateDirectory": str(folder / "state"),
        "containerFiles": str(folder / "files"),
        "statusSocket": str(folder / "agent.sock"),
        "podResourcesSocket": str(folder / "pr.sock"),
        "cgroupRoot": str(folder / "cgroup"),
        "metricsAddress": "127.0.0.1:0",
        "reconcileSeconds": 0.2,
        **fields,
    }


def with_agent(
    folder: Path,
    test: Callable[[Agent, FakeRuntime, FakeApiServer], Awaitable[None]],
    *,
    observe: bool = False,
    clock: Callable[[], float] = time.monotonic,
    objects: dict[str, dict[str, Any]] | None = None,
    api: ApiServer | None = None,
    writes: FileWrites | None = None,
    **fields: Any,
) -> None:
    async def main() -> None:
        fake, stored = FakeRuntime(request_timeout=PATIENCE), FakeApiServer()
        stored.objects.update(objects or {})
        loaded = settings_from_dict(settings(folder, **{"sources": {"apiServer": True}, **fields}))
        launch = Launch("podslice", "90", fake.connect, False)
        FakeTree(folder / "cgroup")
        agent = wire(
            loaded,
            from_synthetic(MACHINE),
            HostAccess(tree=CgroupTree(folder / "cgroup"), writes=writes),
            observe=observe,
            api=api or stored,
            launch=launch,
            clock=clock,
        )
        task = asyncio.ensure_future(agent.run())
        try:
            await asyncio.wait_for(fake.attached.wait(), PATIENCE)
            await test(agent, fake, stored)
        finally:
            agent.stopping.set()
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())


def api_pod(uid: str, cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": [container]}}


def pool(agent: Agent) -> str:
    return format_bits(agent.owner.placing.pool())


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), body


def test_pod_from_the_api_server(tmp_path: Path) -> None:
    """A pod of the API server is placed, shown, counted, and a refused one gets its event."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        await fake.create_container(await fake.run_pod("a"), "app")
        await api.apply(api_pod("b", "40"))
        refused = await fake.run_pod("b")
        with pytest.raises(RPCError, match="TopologyAffinityError"):
            await fake.create_container(refused, "app")
        await until(lambda: api.events)
        assert api.events[0]["reason"] == "TopologyAffinityError"
        code, text = await get(agent.endpoints.web_port, "/metrics")
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert code == 200
        assert values["kubelet_cpu_manager_exclusive_cpu_allocation_count"] == "4.0"
        assert values["kubelet_cpu_manager_shared_pool_size_millicores"] == "27000.0"
        assert values['kubelet_admission_rejections_total{reason="TopologyAffinityError"}'] == "1.0"
        assert values['podslice_hook_duration_seconds_count{hook="CreateContainer"}'] == "2.0"
        assert values['podslice_containers{isolation="container"}'] == "1.0"
        assert values["kubelet_topology_manager_admission_requests_total"] == "2.0"
        assert values["podslice_safe_mode"] == "0.0"
        assert {values[f'kubelet_cpu_manager_allocation_per_numa{{numa_node="{n}"}}'] for n in (0, 1)} == {"4.0", "0.0"}
        assert values['kubelet_pod_resources_endpoint_requests_list{server_api_version="v1"}'] == "0.0"
        assert (await get(agent.endpoints.web_port, "/healthz"))[0] == 200
        assert (await get(agent.endpoints.web_port, "/readyz"))[0] == 200
        assert (await get(agent.endpoints.web_port, "/nothing"))[0] == 404
        assert (await get(agent.endpoints.web_port, "/metrics", "POST"))[0] == 405

    with_agent(tmp_path, test)


def test_status_command(tmp_path: Path) -> None:
    """`podslice status` reads the private socket: pods, sets, pools and the map."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        container = await fake.create_container(await fake.run_pod("a"), "app")
        path = tmp_path / "agent.sock"
        assert path.stat().st_mode & 0o777 == 0o600
        run = lambda *more: CliRunner().invoke(cli, ["status", "--socket", str(path), *more])  # noqa: E731
        table = (await asyncio.to_thread(run)).output
        assert "default/a" in table
        assert container.cpus in table
        data = read_document((await asyncio.to_thread(run, "-o", "json")).output, "AgentStatus")
        assert (data["connected"], data["ready"], data["pools"]["reserved"]) == (True, "", "0")
        assert data["pods"][0]["containers"][0]["isolation"] == "container"

    with_agent(tmp_path, test)


def test_strangers_become_events(tmp_path: Path) -> None:
    """A container that started without the agent is named in an event on its pod."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("s", "100m"))
        fake.stop()
        await fake.create_container(await fake.run_pod("s"), "app")
        fake.start()
        await until(lambda: api.events)
        assert (api.events[0]["reason"], api.events[0]["involvedObject"]["name"]) == ("PodsliceStranger", "s")
        assert api.events[0]["message"] == "Container app: it was created without the agent"

    with_agent(tmp_path, test)


def cgroup_of(folder: Path, container: FakeContainer) -> str:
    """Make the container's cgroup, as the runtime would have."""
    path = container.message.linux.cgroups_path.strip("/")
    FakeTree(folder / "cgroup").add(path, cpuset_cpus=container.cpus)
    return path


def test_others_get_their_sets_without_the_runtime(tmp_path: Path) -> None:
    """When the shared pool changes between two answers, the cgroups are written at once and nothing is drift; the
    runtime hears of it with later answers, a few containers each."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        tree = FakeTree(tmp_path / "cgroup")
        shared = {}
        for number in range(6):
            await api.apply(api_pod(f"s{number}", "100m"))
            container = await fake.create_container(await fake.run_pod(f"s{number}"), "app")
            shared[cgroup_of(tmp_path, container)] = container

        async def all_have(cpus: str) -> None:
            await until(lambda: {tree.text(path, "cpuset.cpus") for path in shared} == {cpus})

        await api.apply(api_pod("a", "4"))
        sandbox = await fake.run_pod("a")
        await all_have(pool(agent))
        assert {container.cpus for container in shared.values()} == {"0-31"}
        await fake.create_container(sandbox, "app")
        told = [container for container in shared.values() if container.cpus == pool(agent)]
        assert len(told) == 4
        await fake.stop_pod(sandbox)
        await all_have("0-31")
        for name in ("x", "y"):
            await api.apply(api_pod(name, "100m"))
            await fake.create_container(await fake.run_pod(name), "app")
        assert {container.cpus for container in shared.values()} == {"0-31"}
        assert not await agent.upkeep.look()

    with_agent(tmp_path, test, reconcileSeconds=60)


def test_containers_on_their_way(tmp_path: Path) -> None:
    """A container that the runtime is still creating is neither drift nor written; when it starts it gets its set
    as it is by then."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        for uid, cpu in (("a", "4"), ("s", "100m")):
            await api.apply(api_pod(uid, cpu))
        shared = await fake.create_container(await fake.run_pod("s"), "app", start=False)
        path, tree = cgroup_of(tmp_path, shared), FakeTree(tmp_path / "cgroup")
        tree.add(path)
        await fake.run_pod("a")
        assert not await agent.upkeep.look()
        assert tree.text(path, "cpuset.cpus") == ""
        tree.add(path, cpuset_cpus=shared.cpus)
        await fake.start_container(shared.message.id)
        assert tree.text(path, "cpuset.cpus") == pool(agent) != shared.cpus
        assert not await agent.upkeep.look()

    with_agent(tmp_path, test, reconcileSeconds=60)


def test_containers_without_a_cgroup_wait_for_an_answer(tmp_path: Path) -> None:
    """Where a container's cgroup cannot be seen the next answer changes it, or the next pass once there is one."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        for uid, cpu in (("a", "4"), ("s", "100m"), ("late", "100m")):
            await api.apply(api_pod(uid, cpu))
        shared = await fake.create_container(await fake.run_pod("s"), "app")
        await fake.create_container(await fake.run_pod("a"), "app")
        assert shared.cpus == pool(agent) != "0-31"
        await fake.stop_pod("sandbox-a")
        assert shared.cpus != "0-31"
        path = cgroup_of(tmp_path, shared)
        assert not await agent.upkeep.look()
        assert FakeTree(tmp_path / "cgroup").text(path, "cpuset.cpus") == "0-31"
        await fake.create_container(await fake.run_pod("late"), "app")
        assert shared.cpus == "0-31"

    with_agent(tmp_path, test, reconcileSeconds=60)


@pytest.mark.slow
def test_drift_is_repaired_in_the_background(tmp_path: Path) -> None:
    """The reconcile loop runs on its own, and counts."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        container = await fake.create_container(await fake.run_pod("a"), "app")
        tree = FakeTree(tmp_path / "cgroup")
        path = container.message.linux.cgroups_path.strip("/")
        tree.add(path, cpuset_cpus="0-31")
        await until(lambda: agent.endpoints.status.read().drift)
        assert tree.text(path, "cpuset.cpus") == container.cpus
        assert 'podslice_drift_repaired_total{kind="cpus"} 1.0' in agent.endpoints.page.text().decode()
        assert agent.endpoints.status.read().drift[0].found == "0-31"

    with_agent(tmp_path, test)


def test_not_ready_without_runtime_or_state(tmp_path: Path) -> None:
    """`/readyz` says what is missing; `/healthz` says it too, but stays good where a restart would not help."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        assert (await get(agent.endpoints.web_port, "/readyz")) == (200, "ok\n")
        agent.owner.admitting.safe_mode = "damaged"
        assert await get(agent.endpoints.web_port, "/readyz") == (503, "safe mode: damaged\n")
        agent.owner.admitting.safe_mode = ""
        fake.stop()
        async with asyncio.timeout(PATIENCE):
            while not (await get(agent.endpoints.web_port, "/readyz"))[1].startswith(
                "runtime: not registered with the runtime"
            ):
                await asyncio.sleep(0.02)
        code, text = await get(agent.endpoints.web_port, "/healthz")
        assert code == 200
        assert "runtime: not registered with the runtime" in text
        assert "apiServer: ok\n" in text
        fake.start()

    with_agent(tmp_path, test)


def test_not_ready_while_the_api_server_is_away(tmp_path: Path) -> None:
    """A source that can learn nothing new is named with its cause."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        api.down = True
        async with asyncio.timeout(PATIENCE):
            while "apiServer: connection" not in (await get(agent.endpoints.web_port, "/readyz"))[1]:
                await asyncio.sleep(0.02)
        assert (await get(agent.endpoints.web_port, "/healthz"))[0] == 200

    with_agent(tmp_path, test)


def test_unhealthy_when_a_loop_stands_still(tmp_path: Path) -> None:
    """A loop that has not turned for far too long is what a restart helps with, so `/healthz` is bad."""
    now = [0.0]

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        assert (await get(agent.endpoints.web_port, "/healthz"))[0] == 200
        now[0] += 11_000
        code, text = await get(agent.endpoints.web_port, "/healthz")
        assert (code, "loops: reconcile has not turned for 11000 s" in text) == (503, True)

    with_agent(tmp_path, test, clock=lambda: now[0], reconcileSeconds=3600)


def test_state_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory on a disk that is read-only or full, or that is gone wrong, is named."""
    assert state_problem(tmp_path / "none") == ""
    assert state_problem(tmp_path) == ""
    assert "cannot be used" in state_problem(tmp_path / ("x" * 300))
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 10, 5, 5, 0, 255))
    monkeypatch.setattr("podslice.agent.statefolder.os.statvfs", lambda path: full)
    assert "no space left" in state_problem(tmp_path)
    monkeypatch.setattr("podslice.agent.statefolder.os.access", lambda path, mode: False)
    assert "cannot be written" in state_problem(tmp_path)


@pytest.mark.parametrize(("mode", "inside", "after"), [
    (0o755, ["cpu_manager_state", "pods"], 0o700), (0o777, [], 0o700), (0o700, ["anything"], 0o700),
    (0o755, ["cpu_manager_state", "config.yaml"], 0o755), (None, [], 0o700),
])  # fmt: skip
def test_state_directory_is_private(tmp_path: Path, mode: int | None, inside: list[str], after: int) -> None:
    """It is made 0700, also where it is open, unless it holds what is not ours: then that is said."""
    folder = tmp_path / "state"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
        for name in inside:
            (folder / name).write_text("")
    remark = make_private(folder)
    assert folder.stat().st_mode & 0o777 == after
    assert bool(remark) == (after != 0o700)


def test_agent_makes_its_state_directory_private(tmp_path: Path) -> None:
    """The running agent has done so."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700

    (tmp_path / "state").mkdir(mode=0o755)
    with_agent(tmp_path, test)


def test_observe_leaves_no_trace(tmp_path: Path) -> None:
    """A dry run writes no state, no files, no events."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        container = await fake.create_container(await fake.run_pod("a"), "app")
        assert container.cpus == ""
        assert agent.endpoints.status.read().observe is True

    with_agent(tmp_path, test, observe=True)
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "files").exists()


def test_address_in_use_is_one_line(tmp_path: Path) -> None:
    """A listener that cannot be had says which field names it."""

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            loaded = settings_from_dict(settings(tmp_path, metricsAddress=address))
            with pytest.raises(InputError, match=r"metricsAddress: 127\.0\.0\.1:.* cannot be used"):
                await wire(loaded, from_synthetic(MACHINE), HostAccess()).run()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "Config"}, "is not AgentConfiguration"),
        ({"stateDirectroy": "x"}, "stateDirectroy: unknown field .did you mean stateDirectory"),
        ({"profile": "x"}, "profile: 'x' is unknown"),
        ({"strangers": "x"}, "strangers: 'x' is unknown"),
        ({"limits": "x"}, "limits: 'x' is unknown"),
        ({"pluginIndex": "9"}, "pluginIndex: '9' is not an index"),
        ({"pluginName": ""}, "pluginName: is empty"),
        ({"reconcileSeconds": 0}, "reconcileSeconds: 0.0 is out of range"),
        ({"sources": {"waitSeconds": 3}}, "sources.waitSeconds: 3.0 is out of range"),
        ({"sources": {"manifest": "x"}}, "sources.manifest: unknown field .did you mean manifests"),
        ({"sources": {"kubelet": {"port": "x"}}}, "sources.kubelet.port: expected a whole number, got text"),
        ({"cluster": {"services": "x"}}, "cluster.services: expected a list, got text"),
        ({"pluginIndex": 90}, "pluginIndex: expected text, got a whole number: 90 .put it in quotes"),
        ({"metricsAddress": "x"}, "metricsAddress: 'x' is not an address"),
        ({"policy": {**POLICY, "spec": {"resice": {}}}}, "policy.spec.resice: unknown field .did you mean resize"),
        ({"policy": {**POLICY, "spec": {"resize": {"shrinkDelaySeconds": 11}}}}, "policy.spec.resize.shrinkDelaySec"),
        ({"policy": {"kind": "Policy"}}, "policy.kind: 'Policy' is not PodslicePolicy"),
        ({"policy": "/none/policy.yaml"}, "/none/policy.yaml"),
        (
            {"profile": "kubelet-1.36", "policy": {**POLICY, "spec": {"resize": {"exclusive": True}}}},
            "policy.spec.resize: a kubelet has no such policy",
        ),
        ({"resources": {"topologyManagerPolicy": "x"}}, "resources: invalid configuration: topologyManagerPolicy"),
    ],
)
def test_bad_configuration_is_one_line(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    """Every mistake names its field and what would be right."""
    with pytest.raises(InputError, match=message) as caught:
        settings_from_dict(settings(tmp_path) | fields)
    assert "\n" not in str(caught.value)


def test_check_config(tmp_path: Path) -> None:
    """`--check-config` says whether the agent would start on this machine."""
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps(settings(tmp_path)))
    arguments = ["agent", "--config", str(file), "--check-config", "--from", MACHINE]
    result = CliRunner().invoke(cli, arguments)
    assert "good; 32 CPUs, CPU manager static" in result.output
    assert "metricsAddress" not in result.output
    file.write_text(json.dumps(settings(tmp_path, resources={**RESOURCES, "reservedSystemCPUs": "99"})))
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "state").exists()
    wrong = tmp_path / "policy.yaml"
    wrong.write_text(json.dumps({**POLICY, "spec": {"resize": {"exclusive": "yes"}}}))
    file.write_text(json.dumps(settings(tmp_path, policy=str(wrong))))
    result = CliRunner().invoke(cli, arguments)
    assert str(result.exception).startswith(f"{wrong}: spec.resize.exclusive: expected true or false")
    file.write_text(json.dumps(settings(tmp_path, metricsAddress="0.0.0.0:9095")))
    assert "not loopback" in CliRunner().invoke(cli, arguments).output


def test_check_config_reads_the_authority(tmp_path: Path) -> None:
    """A file that is not there yet is a warning, as the token's is, and so is an authority that has expired; one that
    can never be used, such as a key, is an error."""
    file, authority = tmp_path / "agent.yaml", tmp_path / "ca.crt"
    cluster = {"services": ["c.podslice.svc:9097"], "caFile": str(authority), "tokenFile": str(tmp_path / "token")}
    file.write_text(json.dumps(settings(tmp_path, cluster=cluster)))
    arguments = ["agent", "--config", str(file), "--check-config", "--from", MACHINE]

    def check() -> str:
        return str((result := CliRunner().invoke(cli, arguments)).exception or "") + " ".join(result.output.split())

    assert f"cluster.caFile {authority}: there is no authority yet" in check()
    assert "there is no token yet" in check()
    authority.write_bytes(certificate(der(0x17, b"200101000000Z")))
    assert "has expired, so no service will be trusted" in check()
    authority.write_bytes(certificate(der(0x18, b"99990101000000Z")))
    assert "cluster.caFile" not in check()
    authority.write_bytes(KEY)
    assert check().startswith(f"{authority}: cluster.caFile: has a private key and no certificate")


def test_check_config_with_a_static_kubelet(tmp_path: Path) -> None:
    """A kubelet whose CPU Manager is static owns CPUs as well: that is refused, unless it is only watched."""
    file, state = tmp_path / "agent.yaml", tmp_path / "cpu_manager_state"
    file.write_text(json.dumps(settings(tmp_path, dra={"kubeletState": str(tmp_path / "dra_manager_state")}, **CLAIMS)))
    arguments = ["agent", "--config", str(file), "--check-config", "--from", MACHINE]
    for policy, words in (("static", "the kubelet's CPU Manager is static too"), ("none", ""), ("{", "")):
        state.write_text(json.dumps({"policyName": policy}) if policy != "{" else policy)
        result = CliRunner().invoke(cli, arguments)
        assert (words in str(result.exception)) if words else "good; 32 CPUs" in result.output, result.output
    state.write_text(json.dumps({"policyName": "static"}))
    assert "good; 32 CPUs" in CliRunner().invoke(cli, [*arguments, "--observe"]).output


def test_status_is_watched_while_agents_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--watch` shows it again and again; an agent that is away is said and waited for."""
    status = AgentStatus(
        node="n1", machine="", runtime="", connected=True, observe=False, started_at=0.0, ready="", safe_mode="",
        pools=None, pods=(), drift=(), map="",
    )  # fmt: skip
    gone = msgspec.structs.replace(status, node="n2", connected=False)
    answers = iter([status, InputError("no agent answers"), gone])

    def answer(path: str) -> AgentStatus:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("podslice.status.command.read_status", answer)
    monkeypatch.setattr("podslice.status.command.time.sleep", wait)
    output = CliRunner().invoke(cli, ["status", "--watch"]).output
    assert output.index("n1 · connected") < output.index("no agent answers") < output.index("n2 · not connected")
    assert waits == [2, 2, 2]


def test_status_without_agent(tmp_path: Path) -> None:
    """Nobody there is one line with what to do."""
    with pytest.raises(InputError, match="no agent answers"):
        read_status(str(tmp_path / "none.sock"))


def test_systemd_is_told(tmp_path: Path) -> None:
    """Readiness and watchdog follow systemd's protocol."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        notify("READY=1", {"NOTIFY_SOCKET": str(path)})
        assert listener.recv(100) == b"READY=1"
    notify("READY=1", {"NOTIFY_SOCKET": str(path)})
    assert watchdog_interval({"WATCHDOG_USEC": "30000000"}) == 15.0
    assert watchdog_interval({}) is None
    assert os.environ.get("NOTIFY_SOCKET") is None
