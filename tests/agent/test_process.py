"""The agent as a process of its own, started by the runtime, killed with SIGKILL and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from podslice.core.values.cpuset import parse_bits
from podslice.wire.fake_runtime import FakeRuntime
from tests.agent.helpers import MACHINE
from tests.agent.test_daemon import RESOURCES, settings


class Process:
    """`podslice agent` with a connected socket, as a runtime starts its plugins."""

    def __init__(self, folder: Path, fake: FakeRuntime) -> None:
        self.folder = folder
        self.fake = fake
        self.config = folder / "agent.yaml"
        gate = {**RESOURCES, "topologyManagerScope": "pod", "featureGates": {"PodLevelResourceManagers": True}}
        self.config.write_text(json.dumps(settings(folder, resources=gate, podResourcesSocket="", metricsAddress="")))

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        await self.fake.adopt(ours)
        environment = {
            **os.environ,
            "NRI_PLUGIN_NAME": "podslice",
            "NRI_PLUGIN_IDX": "90",
            "NRI_PLUGIN_SOCKET": str(theirs.fileno()),
        }
        command = [sys.executable, "-m", "podslice.cli.main", "agent", "--config", str(self.config), "--from", MACHINE]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stderr=log, stdout=log
            )
        theirs.close()
        await asyncio.wait_for(self.fake.attached.wait(), 20)

    async def signal(self, number: int) -> int:
        self.process.send_signal(number)
        code = await asyncio.to_thread(self.process.wait, 20)
        async with asyncio.timeout(5):
            while self.fake.attached.is_set():
                await asyncio.sleep(0.01)
        return code


ANNOTATION = {
    "podslice.io/resources": json.dumps(
        {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}
    )
}


def test_killed_and_started_again(tmp_path: Path) -> None:
    """SIGKILL: what was given stays given, what was created meanwhile is moved; SIGTERM ends it in order."""

    async def main() -> None:
        fake = FakeRuntime(request_timeout=10)
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


@pytest.mark.parametrize("module", ["grpc", "lightkube", "google.protobuf", "structlog", "prometheus_client"])
def test_other_commands_do_not_load_the_agents_libraries(module: str) -> None:
    """`podslice admit` stays fast: nothing of the agent is imported."""
    code = f"import sys, podslice.cli.admit, podslice.cli.main; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
