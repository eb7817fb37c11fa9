"""Little memory and few descriptors: one line for a command, an answer for whoever asks an agent or the service."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.runtime.ttrpc import RPCError
from podslice.service.http.connections import RESERVED_DESCRIPTORS
from podslice.service.identity import RESOURCES_ANNOTATION
from podslice.values.cpuset import parse_bits
from tests.agent.test_daemon import settings
from tests.agent.test_process import POD_LEVEL, Process
from tests.bounded import podslice, refused
from tests.clock import PATIENCE
from tests.service.fake_runtime import FakeRuntime

pytestmark = pytest.mark.process

MIB = 1 << 20
MACHINE = ("--from", "pack:2 numa:1(memory=64GB) core:8 pu:2")

# Memory


def _pods(folder: Path) -> Path:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": {"containers": [container]}}
        for n in range(20_000)
    ]
    path = folder / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("growth", [MIB, 4 * MIB, 12 * MIB, 24 * MIB])
@pytest.mark.parametrize("command", ["admit", "inspect", "whatif"])
def test_a_command_without_memory(tmp_path: Path, command: str, growth: int) -> None:
    """A list that does not fit ends in one line that says so, and the file is as it was."""
    path = _pods(tmp_path)
    before = path.read_bytes()
    options = () if command == "inspect" else MACHINE
    line = refused(podslice(command, path, *options, growth=growth))
    assert "memory" in line
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["pods.json"]


# Descriptors


def _limit(process: Any, soft: int) -> int:
    """Let a process have no more descriptors; returns what it could have before."""
    before, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    return before


def _opened(process: Any) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def _holds(condition: Callable[[], bool]) -> bool:
    """Whether something holds in the end; whoever is hung up on meanwhile asks again."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return True
        time.sleep(0.02)
    return False


def _has_reserve(process: Any) -> bool:
    return _opened(process) <= resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] - RESERVED_DESCRIPTORS + 1


@contextlib.contextmanager
def _flood(port: int, count: int) -> Iterator[None]:
    """So many connections that ask nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", port))
        yield


class Limited(Process):
    """An agent with metrics on a port of its own."""

    def __init__(self, folder: Path, fake: FakeRuntime) -> None:
        super().__init__(folder, fake)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = int(one.getsockname()[1])
        fields = {"podResourcesSocket": "", "metricsAddress": f"127.0.0.1:{self.port}"}
        self.config.write_text(json.dumps(settings(folder, resources=POD_LEVEL, **fields)))

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def metrics(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE) as answer:
            return int(answer.status)

    async def pod(self, uid: str, cpus: int) -> str:
        """The CPUs of a new pod's container, which has an annotation that says what it wants."""
        amounts = {"cpu": str(cpus), "memory": "1Gi"}
        told = json.dumps({"containers": {"app": {"requests": amounts, "limits": amounts}}})
        sandbox = await self.fake.run_pod(uid, annotations={RESOURCES_ANNOTATION: told})
        return (await self.fake.create_container(sandbox, "app")).cpus


def with_limited(folder: Path, test: Callable[[Limited], Awaitable[None]]) -> None:
    async def main() -> None:
        agent = Limited(folder, FakeRuntime(request_timeout=PATIENCE))
        await agent.start()
        try:
            await test(agent)
        finally:
            agent.process.kill()
            await asyncio.to_thread(agent.process.wait, PATIENCE)
            agent.fake.drop_plugin()

    asyncio.run(main())


@pytest.mark.slow
def test_a_flood_leaves_descriptors_for_hooks(tmp_path: Path) -> None:
    """Connections that ask nothing take all descriptors but the last ones. Pods are placed and kept meanwhile, and
    metrics are served when the others have gone."""

    async def test(agent: Limited) -> None:
        await agent.pod("a", 2)
        assert await asyncio.to_thread(agent.metrics) == 200
        _limit(agent.process, _opened(agent.process) + RESERVED_DESCRIPTORS + 8)
        with _flood(agent.port, 200):
            assert await asyncio.to_thread(_holds, lambda: _has_reserve(agent.process))
            for uid in "bcd":
                assert parse_bits(await agent.pod(uid, 2)).bit_count() == 2
            assert {path.stem for path in (tmp_path / "state" / "pods").glob("*.json")} == set("abcd")
        assert await asyncio.to_thread(_holds, lambda: agent.metrics() == 200)
        assert '"event": "refused"' not in agent.log()

    with_limited(tmp_path, test)


@pytest.mark.slow
def test_no_descriptor_at_all(tmp_path: Path) -> None:
    """Where nothing can be opened the agent refuses what it cannot keep, stays connected, and goes on afterwards."""

    async def test(agent: Limited) -> None:
        had = await agent.pod("a", 2)
        before = _limit(agent.process, 3)
        with pytest.raises(RPCError, match="Too many open files"):
            await agent.pod("b", 2)
        assert agent.fake.attached.is_set()
        await asyncio.sleep(0.5)
        assert agent.process.poll() is None
        _limit(agent.process, before)
        assert parse_bits(await agent.pod("c", 2)).bit_count() == 2
        assert agent.fake.containers["sandbox-a-app"].cpus == had
        assert await asyncio.to_thread(_holds, lambda: agent.metrics() == 200)
        assert len(agent.log().splitlines()) < 200

    with_limited(tmp_path, test)


SERVICE = """
import asyncio, sys
from podslice.service.http.post_server import PostAnswer, PostServer

def answer(body):
    with open("/dev/null", "rb"):
        return PostAnswer(body)

def failed(path, error):
    print("a handler failed", error, file=sys.stderr)

async def main():
    server = PostServer({"/echo": answer}, largest=1000, failed=failed)
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def _post(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/echo", data=b"x", timeout=PATIENCE) as answer:
        return bytes(answer.read())


@pytest.mark.slow
def test_the_cluster_service_under_a_flood(tmp_path: Path) -> None:
    """A scheduler that is connected is answered, handlers can open files, and others are let in afterwards."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        _limit(process, _opened(process) + RESERVED_DESCRIPTORS + 8)
        scheduler = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

        def ask() -> bytes:
            scheduler.request("POST", "/echo", b"x")
            return scheduler.getresponse().read()

        assert ask() == b"x"
        with _flood(port, 200):
            assert _holds(lambda: _has_reserve(process))
            for _ in range(5):
                assert ask() == b"x"
        assert _holds(lambda: _post(port) == b"x")
        scheduler.close()
        assert "a handler failed" not in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.slow
def test_the_cluster_service_without_descriptors(tmp_path: Path) -> None:
    """Nobody can be let in while there is none; whoever comes then is served when there are some again."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        before = _limit(process, _opened(process))
        with _flood(port, 5):
            time.sleep(0.3)
        assert process.poll() is None
        _limit(process, before)
        assert _holds(lambda: _post(port) == b"x")
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
