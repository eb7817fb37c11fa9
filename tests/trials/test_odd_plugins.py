"""Device plugins that register, list or answer nonsense: their own resource suffers, and nothing else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from podslice.agent.devices import deviceplugins
from podslice.agent.devices.observeddevices import inventory_of
from podslice.agent.runtime.ttrpc import RPCError
from podslice.machine.devices import Device
from podslice.service.proto import deviceplugin_pb2 as plugin_api
from podslice.service.proto import podresources_pb2 as api
from tests.agent.test_grpc import DeviceWorld, SamplePlugin, gpu_pod, gpus, with_devices
from tests.clock import until
from tests.conftest import make_pod
from tests.trials.test_peers import SERVERS, GarbageServer


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
@pytest.mark.slow
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
