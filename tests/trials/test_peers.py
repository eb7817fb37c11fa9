"""Peers at the agent's gRPC sockets, and those it is a client of, that send garbage, too much, nothing or half of it:
others go on, and what is known of the node stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from podslice.agent import deviceplugins, kubeletresources, podsapi
from podslice.agent.kubeletresources import KubeletResources
from podslice.agent.observeddevices import inventory_of
from podslice.agent.podresources import PodResources
from podslice.agent.podsapi import PodsApiSource
from podslice.agent.podsclient import GRPCPodsApi
from podslice.agent.ratelimit import RateLimit
from podslice.core.machine.devices import Device
from podslice.wire.backoff import BackOff
from podslice.wire.proto import deviceplugin_pb2 as plugin_api
from podslice.wire.proto import podresources_pb2 as api
from podslice.wire.ttrpc import RPCError
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
    """What garbage clients send."""
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


class OddPlugin(SamplePlugin):
    """A plugin whose answers are what a test says."""

    odd: Any = None

    def _allocate(self, request: Any, context: Any) -> Any:
        return self.odd or super()._allocate(request, context)

    def _prefer(self, request: Any, context: Any) -> Any:
        return self.odd or super()._prefer(request, context)


def device(name: str, *nodes: int) -> plugin_api.Device:
    topology = plugin_api.TopologyInfo(nodes=[plugin_api.NUMANode(ID=node) for node in nodes])
    return plugin_api.Device(ID=name, health="Healthy", topology=topology)


@pytest.mark.parametrize("nodes", [(-1,), (2**40,), (-(2**63),), (2**63 - 1, 0), (64,), tuple(range(500))])
def test_numa_nodes_that_cannot_be(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    """They are left out; the device stays, and everybody who is told of it can read it."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put([device("odd", *nodes), device("good", 1)])
        await until(lambda: world.plugins.listed)
        odd, good = world.plugins.listed["vendor.com/gpu"]
        assert all(0 <= node < 64 for node in odd.numa or ())
        assert good.numa == (1,)
        await world.run(gpu_pod("a", 1))
        inventory = inventory_of(
            api.AllocatableResourcesResponse(
                devices=[api.ContainerDevices(resource_name="vendor.com/gpu", device_ids=["odd"], topology=
                         api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in nodes]))]
            )
        )  # fmt: skip
        assert all(0 <= node < 64 for one in inventory.resources for dev in one.devices for node in dev.numa or ())
        await world.end("a")
        await world.run(make_pod("b", ("app", "2")))

    with_devices(tmp_path, test)


def test_lists_of_any_kind(tmp_path: Path) -> None:
    """Thousands of devices, ids twice, empty, huge or of several lines: each list is taken, and the next one too."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        lists: list[list[plugin_api.Device]] = [
            [device(f"d{number}", number % 2) for number in range(5000)],
            [device("d", 0), device("d", 1), device("d")],
            [device("")],
            [device("a\nb\x1b[2J", 0)],
            [device("x" * 100_000, 0)],
            [],
            [plugin_api.Device(ID="d", health="\x00" * 1000)],
            list(gpus(0)),
        ]
        for number, one in enumerate(lists):
            sample.lists.put(one)
            names = [dev.ID for dev in one]
            await until(lambda names=names: [dev.id for dev in world.plugins.listed.get("vendor.com/gpu", (1,))
                                             if isinstance(dev, Device)] == names)  # fmt: skip
            await world.run(make_pod(f"p{number}", ("app", "100m")))
        await world.run(gpu_pod("g", 1))
        assert world.troubles == []

    with_devices(tmp_path, test)


def allocated(**fields: Any) -> plugin_api.AllocateResponse:
    return plugin_api.AllocateResponse(container_responses=[plugin_api.ContainerAllocateResponse(**fields)])


@pytest.mark.parametrize("answer", [
    plugin_api.PreferredAllocationResponse(container_responses=[
        plugin_api.ContainerPreferredAllocationResponse(deviceIDs=["not-asked", "gpu-7", ""])]),
    plugin_api.PreferredAllocationResponse(container_responses=[
        plugin_api.ContainerPreferredAllocationResponse(deviceIDs=["gpu-0"] * 5000)]),
    plugin_api.PreferredAllocationResponse(), plugin_api.AllocateResponse(),
    allocated(envs={"A": "x" * 5_000_000}),
    plugin_api.AllocateResponse(container_responses=[plugin_api.ContainerAllocateResponse()] * 1000),
])  # fmt: skip
def test_odd_answers_of_a_plugin(tmp_path: Path, answer: Any) -> None:
    """A pod gets the devices it was given or is refused, never others; the next pod is served."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        sample.stop()
        (world.folder_of_plugins / "gpu.sock").unlink(missing_ok=True)
        odd = OddPlugin(world.folder_of_plugins)
        try:
            await odd.register()
            odd.lists.put(gpus(0, 0, 1))
            await until(lambda: world.plugins.listed)
            odd.odd = answer
            with contextlib.suppress(RPCError):
                await world.run(gpu_pod("a", 1))
            assert held(world) <= {"gpu-0", "gpu-1", "gpu-2"}
            assert len(held(world)) <= 1
            odd.odd = None
            await world.run(gpu_pod("b", 1))
            assert len(held(world)) <= 2
            world.check()
        finally:
            odd.stop()

    with_devices(tmp_path, test)


def held(world: DeviceWorld) -> set[str]:
    """Devices that pods have."""
    node = world.owner.node
    assert node is not None
    content = node.kubelet.manager.device.content()
    return {name for entry in content.entries for ids in entry.by_node.values() for name in ids}


@pytest.mark.parametrize("endpoint", [
    "/etc/gpu.sock", "../gpu.sock", "..", ".", "", "a/b", "%2e%2e%2fgpu.sock", "%2Fetc%2Fgpu.sock", "a?b", "a\0b",
    "x" * 5000, "x" * 200, "a\nb", "kubelet.sock",
])  # fmt: skip
def test_endpoints_that_leave_the_folder(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket outside of the folder is ever dialled, however its name is written; nor our own."""
    monkeypatch.setattr(deviceplugins, "DIAL_SECONDS", 0.2)

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        outside = GarbageServer(world.folder_of_plugins.parent / "gpu.sock", b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await sample.register(endpoint=endpoint)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "Unexpected" not in str(caught.value.details())
        assert len(str(caught.value.details())) < 1500
        outside.close()
        assert outside.connections == 0
        assert len(world.troubles) == 1
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed)

    with_devices(tmp_path, test)


@pytest.mark.parametrize("resource", [
    "a\nb/c", "x" * 100_000, "vendor.com/" + "g" * 64, "", "/", "vendor.com/", "kubernetes.io/gpu", "cpu", "v.c/\x1b[",
])  # fmt: skip
def test_names_that_are_none(tmp_path: Path, resource: str) -> None:
    """They are refused, and no counter is made for each."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        counted: list[str] = []
        world.plugins._registered = counted.append
        with pytest.raises(grpc.aio.AioRpcError, match="is invalid"):
            await sample.register(resource_name=resource)
        assert counted == []
        assert len(world.troubles) == 1
        assert len(world.troubles[0]) < 600

    with_devices(tmp_path, test)


@pytest.mark.parametrize("name", [*SERVERS, "silence"])
def test_a_garbage_plugin(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that registers and then answers garbage, or nothing, is refused; another one of the same name is not."""
    monkeypatch.setattr(deviceplugins, "DIAL_SECONDS", 0.3)

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        server = GarbageServer(world.folder_of_plugins / "bad.sock", SERVERS.get(name, b""), stays=name != "nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await sample.register(endpoint="bad.sock")
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "Unexpected" not in str(caught.value.details())
        server.close()
        assert len(world.troubles) == 1
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed)
        await world.run(gpu_pod("a", 1))
        assert len(world.plugins._plugins) == 1

    with_devices(tmp_path, test)


class BrokenLists(SamplePlugin):
    """ListAndWatch sends a good list and then these bytes."""

    data = b""

    def _list(self, request: Any, context: Any) -> Iterator[Any]:
        yield plugin_api.ListAndWatchResponse(devices=gpus(0))
        while self.lists.empty():
            time.sleep(0.01)
        yield Raw(self.data)


class Raw:
    """Bytes that are sent as they are."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self.data


@pytest.mark.parametrize("data", [b"\xff" * 50, bytes(5 << 20), b"\x0a\x7f"])
def test_a_list_that_is_none(tmp_path: Path, data: bytes) -> None:
    """The stream ends with one line; its devices are unhealthy, what is held stays, and a new plugin is taken."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        sample.stop()
        broken = BrokenLists(world.folder_of_plugins)
        broken.data = data
        await broken.register()
        await until(lambda: world.plugins.listed)
        await world.run(gpu_pod("a", 1))
        broken.lists.put(None)
        await until(lambda: not world.plugins.listed["vendor.com/gpu"][0].healthy)
        assert len(world.troubles) == 1
        assert "vendor.com/gpu: ListAndWatch ended" in world.troubles[0]
        assert held(world) == {"gpu-0"}
        broken.stop()
        fresh = SamplePlugin(world.folder_of_plugins)
        await fresh.register()
        fresh.lists.put(gpus(0, 1))
        await until(lambda: len(world.plugins.listed["vendor.com/gpu"]) == 2)
        await world.run(gpu_pod("b", 1))
        assert held(world) == {"gpu-0", "gpu-1"}
        fresh.stop()

    with_devices(tmp_path, test)


def test_a_list_that_the_node_cannot_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw ends this stream in one line, and the plugin's devices are unhealthy."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed)
        node = world.owner.node
        assert node is not None

        def broken(*arguments: Any) -> None:
            raise RuntimeError("nobody foresaw this")

        monkeypatch.setattr(type(node), "update_devices", broken)
        sample.lists.put(gpus(0, 1))
        await until(lambda: world.troubles)
        assert "nobody foresaw this" in world.troubles[0]
        await until(lambda: not any(one.healthy for one in world.plugins.listed["vendor.com/gpu"]))

    with_devices(tmp_path, test)


def test_plugins_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names one peer registers, so many are kept; the known ones may register again."""
    monkeypatch.setattr(deviceplugins, "MOST_PLUGINS", 2)

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        for number in range(2):
            await sample.register(resource_name=f"vendor.com/g{number}")
        with pytest.raises(grpc.aio.AioRpcError, match="more than 2 resources"):
            await sample.register(resource_name="vendor.com/g2")
        await sample.register(resource_name="vendor.com/g0")
        assert len(world.plugins._plugins) == 2

    with_devices(tmp_path, test)


def test_refused_registrations_fill_no_log(tmp_path: Path) -> None:
    """However many names one peer makes up, some lines tell of it."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        for number in range(60):
            with pytest.raises(grpc.aio.AioRpcError, match="is invalid"):
                await sample.register(resource_name=f"made-up-{number}")
        assert 20 <= len(world.troubles) < 60

    with_devices(tmp_path, test)
