"""Peers at the agent's gRPC sockets, and those it is a client of, that send garbage, too much, nothing or half of it:
others go on, and what is known of the node stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from podslice.agent.kubelet import podsapi
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.podsapi import PodsApiSource
from podslice.agent.kubelet.podsclient import GRPCPodsApi
from podslice.service import kubeletresources
from podslice.service.kubeletresources import KubeletResources
from podslice.service.pacing import BackOff, RateLimit
from podslice.service.proto import podresources_pb2 as api
from tests.agent.helpers import World, in_world
from tests.agent.test_grpc import COUNTS, DeviceWorld, SamplePlugin, ask, gpu_pod, gpus, with_devices
from tests.clock import until
from tests.conftest import make_pod
from tests.trials.test_floods import BEGIN, HEADERS, PREFACE, RST_STREAM, SETTINGS, call, descriptors, field, frame

LIST = "/v1.PodResourcesLister/List"
OTHER = random.Random(7)


def message(data: bytes, stream: int = 1, flags: int = 1) -> bytes:
    """A gRPC message as a client sends it."""
    return frame(0, flags, stream, b"\0" + struct.pack("!I", len(data)) + data)


def begun(path: str) -> bytes:
    return BEGIN + frame(HEADERS, 4, 1, call(path))


def clients(path: str) -> dict[str, bytes]:
    """The inputs of clients that send garbage."""
    return {
        "random": OTHER.randbytes(100_000),
        "http/1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + OTHER.randbytes(500),
        "half a preface": PREFACE[:9],
        "preface and garbage": PREFACE + OTHER.randbytes(100_000),
        "a frame too large": BEGIN + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100_000),
        "settings of a stream": PREFACE + frame(SETTINGS, stream=3),
        "even stream": BEGIN + frame(HEADERS, 4, 2, call(path)),
        "broken hpack": BEGIN + frame(HEADERS, 5, 1, b"\xff" * 100),
        "data before headers": BEGIN + message(b"x"),
        "unknown frames": BEGIN + b"".join(frame(kind, 255, 0, b"x" * 50) for kind in range(11, 255)),
        "undecodable": begun(path) + message(b"\xff" * 1000),
        "a message too large": begun(path) + frame(0, 0, 1, b"\0" + struct.pack("!I", 1 << 31) + bytes(10_000)),
        "compressed": begun(path) + frame(0, 1, 1, b"\1" + struct.pack("!I", 8) + b"x" * 8),
        "cut message": begun(path) + frame(0, 1, 1, b"\0" + struct.pack("!I", 100) + b"x"),
        "no message": begun(path) + frame(0, 1, 1),
        "two messages": begun(path) + message(b"", flags=0) + message(b""),
        "reset": begun(path) + message(b"", flags=0) + frame(RST_STREAM, 0, 1, bytes(4)),
        "another method": begun("/x.Y/" + "z" * 5000) + message(b""),
        "no path": BEGIN + frame(HEADERS, 5, 1, field(b":method", b"POST") + field(b":scheme", b"http")),
    }


@pytest.mark.slow
def test_garbage_clients(tmp_path: Path) -> None:
    """Whatever they send, the others are answered, and nothing is left of them, here or in the node."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await world.run(gpu_pod_of_none("a"))
        resources = PodResources(world.owner, dict.fromkeys(COUNTS, 0), limit=RateLimit(burst=1e9))
        await resources.start(tmp_path / "pr.sock")
        request = api.ListPodResourcesRequest()
        known = await ask(tmp_path / "pr.sock", "List", request, api.ListPodResourcesResponse)
        before = descriptors()
        register = "/v1beta1.Registration/Register"
        for path, place in ((LIST, tmp_path / "pr.sock"), (register, world.folder_of_plugins / "kubelet.sock")):
            for data in clients(path).values():
                reader, writer = await asyncio.open_unix_connection(str(place))
                with contextlib.suppress(OSError):
                    writer.write(data)
                    await writer.drain()
                    async with asyncio.timeout(0.02):
                        await reader.read()
                writer.transport.abort()
            again = await ask(tmp_path / "pr.sock", "List", request, api.ListPodResourcesResponse)
            assert again == known
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed)
        await world.run(gpu_pod("b", 1))
        assert list(world.plugins.listed) == ["vendor.com/gpu"]
        await resources.close()
        assert descriptors() < before + 20

    with_devices(tmp_path, test)


def gpu_pod_of_none(uid: str) -> Any:
    return make_pod(uid, ("app", "2"))


class GarbageServer:
    """Says `data` to everybody who connects, after they said something, and then hangs up or, with `stays`, waits."""

    def __init__(self, path: Path, data: bytes, *, stays: bool = False) -> None:
        self.path, self.data, self.stays = path, data, stays
        self.connections = 0
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with contextlib.suppress(OSError):
                if self.data:
                    one.sendall(self.data)
                if self.stays:
                    self._open.append(one)
                    continue
            one.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in self._open:
            one.close()
        self.path.unlink(missing_ok=True)


def answered(body: bytes, *, status: bytes = b"0", length: int | None = None, cut: bool = False) -> bytes:
    """A server's side of the first call of a connection: stream 1."""
    head = field(b":status", b"200") + field(b"content-type", b"application/grpc")
    said = frame(0, 0, 1, b"\0" + struct.pack("!I", len(body) if length is None else length) + body)
    end = b"" if cut else frame(HEADERS, 5, 1, field(b"grpc-status", status))
    return frame(SETTINGS) + frame(HEADERS, 4, 1, head) + said + end


SERVERS: dict[str, bytes] = {
    "nothing": b"",
    "random": OTHER.randbytes(10_000),
    "http/1": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "garbage frames": frame(SETTINGS) + OTHER.randbytes(10_000),
    "undecodable": answered(b"\xff" * 100),
    "too large": answered(b"x" * 100, length=1 << 31),
    "cut": answered(b"x" * 100, length=1000, cut=True),
    "odd status": answered(b"", status=b"nonsense"),
    "status out of range": answered(b"", status=b"99999999999999"),
    "html": frame(SETTINGS) + frame(HEADERS, 5, 1, field(b":status", b"404") + field(b"content-type", b"text/html")),
    "goaway": frame(SETTINGS) + frame(7, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.slow
def test_a_garbage_kubelet(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are a short typed error to our own client; once a real one is there again, it is asked."""
    monkeypatch.setattr(kubeletresources, "CALL_SECONDS", 0.15)

    async def test(world: World) -> None:
        lines: list[str] = []
        path = tmp_path / "kubelet.sock"
        server = GarbageServer(path, SERVERS[name], stays=bool(SERVERS[name]))
        resources = PodResources(
            world.owner, dict.fromkeys(COUNTS, 0), kubelet=KubeletResources(path),
            trouble=lambda what, why: lines.append(why),
        )  # fmt: skip
        await resources.start(tmp_path / "pr.sock")
        kinds: dict[str, tuple[Any, Any]] = {
            "List": (api.ListPodResourcesRequest(), api.ListPodResourcesResponse),
            "Get": (api.GetPodResourcesRequest(pod_name="a"), api.GetPodResourcesResponse),
            "GetAllocatableResources": (api.AllocatableResourcesRequest(), api.AllocatableResourcesResponse),
        }
        try:
            for method, (request, kind) in kinds.items():
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(tmp_path / "pr.sock", method, request, kind)
                assert "Unexpected <class" not in str(caught.value.details())
                assert len(str(caught.value.details())) < 1500
            assert server.connections >= 3
            assert all(len(line) < 1000 for line in lines)
        finally:
            server.close()
        with pytest.raises(grpc.aio.AioRpcError, match="no such file"):
            await ask(tmp_path / "pr.sock", "List", *kinds["List"])
        other = PodResources(world.owner, dict.fromkeys(COUNTS, 0))
        await other.start(path)
        await ask(tmp_path / "pr.sock", "List", *kinds["List"])
        await other.close()
        await resources.close()

    in_world(tmp_path, test, real_time=True)


@pytest.mark.parametrize("name", SERVERS)
def test_a_garbage_pods_api(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of pods tries again, more and more slowly, and says why."""
    monkeypatch.setattr(podsapi, "SYNC_SECONDS", 0.15)

    async def main() -> None:
        waits, lines = list[float](), list[str]()
        server = GarbageServer(tmp_path / "pods.sock", SERVERS[name])

        async def wait(event: asyncio.Event, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) >= 4:
                await asyncio.Event().wait()

        source = PodsApiSource(
            GRPCPodsApi(tmp_path / "pods.sock"), required=True, trouble=lambda what, why: lines.append(why), wait=wait
        )
        task = asyncio.ensure_future(source.run(BackOff(0.001, 30.0)))
        await until(lambda: len(waits) >= 4)
        assert not task.done()
        assert waits[3] > waits[0]
        assert len(lines) == 4
        assert all(len(line) < 500 for line in lines)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()

    asyncio.run(main())
