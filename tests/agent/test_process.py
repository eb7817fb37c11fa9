"""The agent as a process of its own, started by the runtime, killed with SIGKILL and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podslice.status.agent_socket import read_status
from podslice.values.cpuset import parse_bits
from podslice.version import running_version
from tests.agent.helpers import MACHINE
from tests.agent.test_daemon import RESOURCES, settings
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

pytestmark = pytest.mark.process

POD_LEVEL = {**RESOURCES, "topologyManagerScope": "pod", "featureGates": {"PodLevelResourceManagers": True}}


class Process:
    """`podslice agent` with a connected socket, as a runtime starts its plugins."""

    def __init__(self, folder: Path, fake: FakeRuntime) -> None:
        self.folder = folder
        self.fake = fake
        self.config = folder / "agent.yaml"
        fields = {"resources": POD_LEVEL, "podResourcesSocket": "", "metricsAddress": ""}
        self.config.write_text(json.dumps(settings(folder, **fields)))

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        await self.fake.adopt(ours)
        environment = {
            **os.environ,
            "NRI_PLUGIN_NAME": "podslice",
            "NRI_PLUGIN_IDX": "90",
            "NRI_PLUGIN_SOCKET": str(theirs.fileno()),
        }
        command = [sys.executable, "-m", "podslice", "agent", "--config", str(self.config), "--from", MACHINE]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stderr=log, stdout=log
            )
        theirs.close()
        await asyncio.wait_for(self.fake.attached.wait(), PATIENCE)

    async def signal(self, number: int) -> int:
        self.process.send_signal(number)
        code = await asyncio.to_thread(self.process.wait, PATIENCE)
        await until(lambda: not self.fake.attached.is_set())
        return code


class Listening:
    """The fake runtime behind a socket in the file system, as containerd and CRI-O have it."""

    def __init__(self, path: Path, fake: FakeRuntime) -> None:
        self.path = path
        self.fake = fake
        self.accepted = 0

    async def __aenter__(self) -> Listening:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.listener.setblocking(False)
        self.task = asyncio.ensure_future(self._accept())
        return self

    async def _accept(self) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)
            self.accepted += 1
            await self.fake.adopt(connection)

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.listener.close()
        self.path.unlink()
        self.fake.drop_plugin()


def start(
    folder: Path, environment: dict[str, str] | None = None, *arguments: str, **fields: Any
) -> subprocess.Popen[bytes]:
    """`podslice agent` as a service manager starts it."""
    config = folder / "agent.yaml"
    config.write_text(json.dumps(settings(folder, nriSocket=str(folder / "nri.sock"), **fields)))
    command = [sys.executable, "-m", "podslice", "agent", "--config", str(config), "--from", MACHINE]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, *arguments], env={**os.environ, **(environment or {})}, stderr=log, stdout=log
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def opened(pid: int) -> list[str]:
    """Return the open files of a process; it may open and close files meanwhile."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(link))
    return links


def listening(pid: int) -> set[str]:
    """Addresses on which a process listens for network connections, as the kernel writes them."""
    mine = {link[8:-1] for link in opened(pid) if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in mine and (not table.startswith("tcp") or fields[3] == "0A"):
                found.add(f"{table} {fields[1]}")
    return found


@pytest.mark.slow
def test_waits_for_the_runtime_and_comes_back(tmp_path: Path) -> None:
    """Started before there is a runtime, it connects when one comes, and again after every loss of it. It listens only
    on loopback, its sockets are its owner's, its log is JSON."""
    port = free_port()

    def log() -> list[dict[str, Any]]:
        lines, _, _ = (tmp_path / "log").read_text().rpartition("\n")
        return [json.loads(line) for line in lines.splitlines()]

    async def logged(event: str, times: int = 1) -> None:
        await until(lambda: [line["event"] for line in log()].count(event) >= times)

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        agent = start(
            tmp_path, metricsAddress=f"127.0.0.1:{port}", devicePlugins=str(tmp_path / "plugins"), reconcileSeconds=3600
        )
        try:
            await logged("disconnected")
            for times in (1, 3, 5):
                async with Listening(tmp_path / "nri.sock", fake):
                    await logged("connected", times)
                    fake.drop_plugin()
                    await logged("connected", times + 1)
                    assert listening(agent.pid) == {f"tcp 0100007F:{port:04X}"}
            sockets = {path for path in tmp_path.rglob("*") if path.is_socket()}
            assert {path.name for path in sockets} == {"agent.sock", "pr.sock", "kubelet.sock"}
            assert {path.stat().st_mode & 0o777 for path in sockets} == {0o600}
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(agent.wait, PATIENCE) == 0
        finally:
            agent.kill()
            agent.wait()
        assert all({"event", "level", "timestamp"} <= set(line) for line in log())
        (serving,) = (line for line in log() if line["event"] == "serving")
        assert (serving["version"], serving["observe"]) == (running_version(), False)
        (stopping,) = (line for line in log() if line["event"] == "stopping")
        assert stopping["signal"] == "SIGTERM"

    asyncio.run(main())


@pytest.mark.slow
def test_service_manager_is_told(tmp_path: Path) -> None:
    """systemd hears that it is ready, that it lives, what it does and that it stops."""

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(tmp_path / "notify"))
            manager.settimeout(PATIENCE)
            environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
            agent = start(tmp_path, environment, podResourcesSocket="", metricsAddress="")
            try:
                async with Listening(tmp_path / "nri.sock", fake):
                    await asyncio.wait_for(fake.attached.wait(), PATIENCE)
                    heard = [(await asyncio.to_thread(manager.recv, 200)).decode() for _ in range(8)]
                    agent.send_signal(signal.SIGTERM)
                    while heard[-1] != "STOPPING=1":
                        heard.append((await asyncio.to_thread(manager.recv, 200)).decode())
                assert "READY=1" in heard
                assert heard.count("WATCHDOG=1") >= 3
                assert "STATUS=serving fake 1" in heard
            finally:
                agent.kill()
                agent.wait()

    asyncio.run(main())


@pytest.mark.slow
def test_observe_as_a_process(tmp_path: Path) -> None:
    """`--observe` beside a running kubelet: everything is decided and shown, nothing is written, refused or changed."""

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        agent = start(tmp_path, {}, "--observe", resources=POD_LEVEL, podResourcesSocket="", metricsAddress="")
        try:
            async with Listening(tmp_path / "nri.sock", fake):
                await asyncio.wait_for(fake.attached.wait(), PATIENCE)
                sandbox = await fake.run_pod("a", annotations=ANNOTATION)
                container = await fake.create_container(sandbox, "app")
                too_much = {"podslice.io/resources": ANNOTATION["podslice.io/resources"].replace('"4"', '"400"')}
                await fake.run_pod("b", annotations=too_much)
                shown = await asyncio.to_thread(read_status, str(tmp_path / "agent.sock"))
        finally:
            agent.kill()
            agent.wait()
        assert (container.cpus, container.env, container.mounts) == ("", {}, [])
        assert shown.observe is True
        assert [(pod.name, pod.refused) for pod in shown.pods] == [("a", False), ("b", True)]
        assert not (tmp_path / "state").exists()
        assert not (tmp_path / "files").exists()
        events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
        assert "refused" in events

    asyncio.run(main())


ANNOTATION = {
    "podslice.io/resources": json.dumps(
        {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}
    )
}


def test_told_to_end(tmp_path: Path) -> None:
    """The process has the kernel tell it who writes into cgroups, and SIGTERM ends it with exit code 0."""

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        process = Process(tmp_path, fake)
        await process.start()
        await until(lambda: "anon_inode:inotify" in opened(process.process.pid))
        assert await process.signal(signal.SIGTERM) == 0

    asyncio.run(main())


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    """SIGKILL: what was given stays given, what was created meanwhile is moved; SIGTERM ends it in order."""

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        agent = Process(tmp_path, fake)
        try:
            await live(fake, agent)
        finally:
            agent.process.kill()
            agent.process.wait()

    async def live(fake: FakeRuntime, agent: Process) -> None:
        await agent.start()
        owned = await fake.create_container(await fake.run_pod("a", annotations=ANNOTATION), "app")
        before = owned.cpus
        assert parse_bits(before).bit_count() == 4
        assert await agent.signal(signal.SIGKILL) == -signal.SIGKILL
        stranger = await fake.create_container(await fake.run_pod("s"), "app")
        assert stranger.cpus == ""
        await agent.start()
        assert owned.cpus == before
        assert not parse_bits(stranger.cpus) & parse_bits(before)
        assert await agent.signal(signal.SIGTERM) == 0
        for line in (tmp_path / "log").read_text().splitlines():
            assert json.loads(line)["level"] in ("info", "warning", "error")

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["grpc", "lightkube", "google.protobuf", "structlog", "prometheus_client"])
def test_other_commands_do_not_load_the_agents_libraries(module: str) -> None:
    """`podslice admit` stays fast: nothing of the agent is imported."""
    code = f"import sys, podslice.admit.command, podslice.cli.main; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_shipped_plugin_script(tmp_path: Path) -> None:
    """The script for the runtime's plugin folder hands the runtime's socket on, and ends with it."""
    shipped = Path(__file__).parents[2] / "deploy" / "nri" / "90-podslice"
    assert os.access(shipped, os.X_OK)
    config = tmp_path / "agent.yaml"
    config.write_text(json.dumps(settings(tmp_path, podResourcesSocket="", metricsAddress="")))
    script = tmp_path / "90-podslice"
    command = f"{sys.executable} -m podslice"
    text = shipped.read_text().replace("/opt/podslice/bin/podslice", command)
    script.write_text(text.replace("/etc/podslice/agent.yaml", f"{config} --from '{MACHINE}'"))
    script.chmod(0o755)

    async def main() -> None:
        fake = FakeRuntime(request_timeout=PATIENCE)
        ours, theirs = socket.socketpair()
        await fake.adopt(ours)
        descriptor = theirs.fileno()
        environment = {"NRI_PLUGIN_NAME": "podslice", "NRI_PLUGIN_IDX": "90", "NRI_PLUGIN_SOCKET": str(descriptor)}
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(script)], env={**os.environ, **environment}, pass_fds=[descriptor], stderr=log, stdout=log
            )
        theirs.close()
        try:
            await asyncio.wait_for(fake.attached.wait(), PATIENCE)
            assert fake.registered == [("podslice", "90")]
            fake.drop_plugin()
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        finally:
            process.kill()
            process.wait()

    asyncio.run(main())
