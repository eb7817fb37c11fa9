"""PodResources and device plugins over real gRPC sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import grpc
import msgspec
import pytest

from podslice.agent.devices.deviceplugins import CALL_SECONDS, CallBudget, DevicePlugins
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.service.pacing import RateLimit
from podslice.service.proto import deviceplugin_pb2 as plugin_api
from podslice.service.proto import podresources_pb2 as api
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import World, agent_config, in_world
from tests.clock import PATIENCE, until
from tests.conftest import make_pod

COUNTS = (
    "requests_total requests_total/v1alpha1 requests_list requests_get requests_get_allocatable errors_list errors_get "
    "errors_get_allocatable"
).split()


async def ask(path: Path, method: str, request: Any, kind: Any, version: str = "v1") -> Any:
    async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
        call = channel.unary_unary(
            f"/{version}.PodResourcesLister/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await call(request, timeout=PATIENCE)


def test_pod_resources(tmp_path: Path) -> None:
    """R02, M01, M05: CPUs and memory of every container, of the node, and the errors."""
    config = agent_config(
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )

    async def test(world: World) -> None:
        got = await world.run(make_pod("a", ("app", "4"), init=(("prepare", "1", False), ("side", "1", True))))
        await world.run(make_pod("s", ("app", "500m")))
        counts = dict.fromkeys(COUNTS, 0)
        server = PodResources(world.owner, counts)
        path = tmp_path / "pr.sock"
        await server.start(path)
        assert path.stat().st_mode & 0o777 == 0o600
        answer = await ask(path, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
        pods = {pod.name: pod for pod in answer.pod_resources}
        containers = {c.name: c for c in pods["a"].containers}
        assert list(containers) == ["side", "app"]
        assert list(containers["app"].cpu_ids) == [i for i in range(32) if parse_bits(got["app"].cpus) >> i & 1]
        memory = containers["app"].memory[0]
        assert (memory.memory_type, memory.size, memory.topology.nodes[0].ID) == (
            "memory",
            1 << 30,
            int(got["app"].mems),
        )
        assert list(pods["s"].containers[0].cpu_ids) == []
        request = api.GetPodResourcesRequest(pod_name="s", pod_namespace="default")
        one = await ask(path, "Get", request, api.GetPodResourcesResponse)
        assert one.pod_resources.name == "s"
        with pytest.raises(grpc.aio.AioRpcError, match="pod x in namespace default not found") as caught:
            await ask(
                path,
                "Get",
                api.GetPodResourcesRequest(pod_name="x", pod_namespace="default"),
                api.GetPodResourcesResponse,
            )
        assert caught.value.code() == grpc.StatusCode.UNKNOWN
        old = await ask(path, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse, "v1alpha1")
        assert {pod.name: [c.name for c in pod.containers] for pod in old.pod_resources} == {"a": ["app"], "s": ["app"]}
        assert not any(c.cpu_ids or c.memory for pod in old.pod_resources for c in pod.containers)
        request = api.AllocatableResourcesRequest()
        node = await ask(path, "GetAllocatableResources", request, api.AllocatableResourcesResponse)
        assert list(node.cpu_ids) == list(range(1, 32))
        assert [m.topology.nodes[0].ID for m in node.memory] == [0, 1]
        assert (counts["requests_total"], counts["requests_list"], counts["errors_get"]) == (4, 1, 1)
        assert counts["requests_total/v1alpha1"] == 1
        await server.close()

    in_world(tmp_path, test, config, real_time=True)


def test_pod_resources_are_rate_limited(tmp_path: Path) -> None:
    """R06: more than ten at once are refused with the kubelet's words."""

    async def test(world: World) -> None:
        server = PodResources(world.owner, dict.fromkeys(COUNTS, 0), limit=RateLimit(lambda: 0.0))
        path = tmp_path / "pr.sock"
        await server.start(path)
        for _ in range(10):
            await ask(path, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
        with pytest.raises(grpc.aio.AioRpcError, match="rejected by rate limit") as caught:
            await ask(path, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await server.close()

    in_world(tmp_path, test, real_time=True)


class SamplePlugin:
    """A device plugin as vendors write them: a gRPC server on its own socket that registers with the kubelet's.
    `lists` are what ListAndWatch sends, None ends the stream."""

    def __init__(self, folder: Path, resource: str = "vendor.com/gpu", *, fail_allocate: str = "") -> None:
        self.folder = folder
        self.resource = resource
        self.lists: Queue[list[plugin_api.Device] | None] = Queue()
        self.allocated: list[list[str]] = []
        self.preferred: list[int] = []
        self.started: list[list[str]] = []
        self.fail_allocate = fail_allocate
        self.takes_time: Callable[[], None] = lambda: None
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        methods = {
            "GetDevicePluginOptions": self._unary(self._options, plugin_api.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list, plugin_api.Empty.FromString, lambda m: m.SerializeToString()
            ),
            "Allocate": self._unary(self._allocate, plugin_api.AllocateRequest),
            "GetPreferredAllocation": self._unary(self._prefer, plugin_api.PreferredAllocationRequest),
            "PreStartContainer": self._unary(self._pre_start, plugin_api.PreStartContainerRequest),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        self._server.add_insecure_port(f"unix://{folder / 'gpu.sock'}")
        self._server.start()

    @staticmethod
    def _unary(function: Any, kind: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(function, kind.FromString, lambda m: m.SerializeToString())

    def _options(self, request: Any, context: Any) -> Any:
        return plugin_api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def _list(self, request: Any, context: Any) -> Iterator[Any]:
        while context.is_active():
            try:
                devices = self.lists.get(timeout=0.1)
            except Empty:
                continue
            if devices is None:
                return
            yield plugin_api.ListAndWatchResponse(devices=devices)

    def _allocate(self, request: Any, context: Any) -> Any:
        self.takes_time()
        if self.fail_allocate:
            context.abort(grpc.StatusCode.INTERNAL, self.fail_allocate)
        ids = list(request.container_requests[0].devices_ids)
        self.allocated.append(ids)
        one = plugin_api.ContainerAllocateResponse(envs={"GPUS": ",".join(ids)}, annotations={"vendor.com/x": "y"})
        one.devices.add(container_path="/dev/gpu0", host_path="/dev/null", permissions="rw")
        one.mounts.add(container_path="/usr/lib/gpu", host_path="/usr/lib", read_only=True)
        one.cdi_devices.add(name="vendor.com/gpu=0")
        return plugin_api.AllocateResponse(container_responses=[one])

    def _prefer(self, request: Any, context: Any) -> Any:
        one = request.container_requests[0]
        self.preferred.append(one.allocation_size)
        ids = sorted(one.available_deviceIDs, reverse=True)[: one.allocation_size]
        answer = plugin_api.ContainerPreferredAllocationResponse(deviceIDs=ids)
        return plugin_api.PreferredAllocationResponse(container_responses=[answer])

    def _pre_start(self, request: Any, context: Any) -> Any:
        self.started.append(list(request.devices_ids))
        return plugin_api.PreStartContainerResponse()

    async def register(self, **fields: str) -> None:
        request = plugin_api.RegisterRequest(
            **{"version": "v1beta1", "endpoint": "gpu.sock", "resource_name": self.resource, **fields}
        )
        async with grpc.aio.insecure_channel(f"unix://{self.folder / 'kubelet.sock'}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=plugin_api.Empty.FromString,
            )
            await call(request, timeout=PATIENCE)

    def stop(self) -> None:
        self.lists.put(None)
        self._server.stop(None)


def gpus(*numa: int, health: str = "Healthy") -> list[plugin_api.Device]:
    return [
        plugin_api.Device(
            ID=f"gpu-{i}", health=health, topology=plugin_api.TopologyInfo(nodes=[plugin_api.NUMANode(ID=node)])
        )
        for i, node in enumerate(numa)
    ]


def gpu_pod(uid: str, count: int, cpu: str = "2") -> Pod:
    amounts = {"cpu": cpu, "memory": "1Gi", "vendor.com/gpu": str(count)}
    containers = [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]
    return pod_from_dict(
        {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": containers}}
    )


class DeviceWorld(World):
    """A world whose agent serves device plugins. Their calls may take `PATIENCE` by the clock `now`."""

    now = 0.0

    async def start(self) -> None:
        self.troubles: list[str] = []
        self.folder_of_plugins = self.folder / "plugins"
        self.plugins = DevicePlugins(
            self.folder_of_plugins,
            lambda: self.owner.node,
            trouble=lambda what, text: self.troubles.append(text),
            registered=lambda resource: None,
            allocated=lambda resource, seconds: None,
            budget=CallBudget(PATIENCE, lambda: self.now),
        )
        self.real_devices = True
        await self.plugins.start()
        await super().start()

    async def _connect(self) -> None:
        self.node.events.state_opened.add(self.plugins.attach)
        await super()._connect()

    async def stop(self) -> None:
        """As killed: plugins notice by the socket that is gone."""
        await self.plugins.close()
        await self.kill()


def with_devices(folder: Path, test: Any) -> None:
    async def main() -> None:
        world = DeviceWorld(folder, agent_config(topology_manager_policy="single-numa-node"))
        await world.start()
        sample = SamplePlugin(world.folder_of_plugins)
        try:
            await test(world, sample)
        finally:
            sample.stop()
            await world.stop()

    asyncio.run(main())


def test_devices_of_a_real_plugin(tmp_path: Path) -> None:
    """T02: registered, listed, preferred, allocated beside its CPUs, started, and told by PodResources."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0, 0, 1, 1))
        await until(lambda: world.plugins.listed)
        got = (await world.run(gpu_pod("a", 1)))["app"]
        assert sample.allocated == [["gpu-1"]]
        assert sample.preferred == [1]
        assert ["gpu-1"] in sample.started
        assert parse_bits(got.cpus) < 1 << 16
        assert got.env["GPUS"] == "gpu-1"
        assert got.devices == ["/dev/gpu0"]
        assert "/usr/lib/gpu" in [mount.destination for mount in got.mounts]
        server = PodResources(world.owner, dict.fromkeys(COUNTS, 0), devices=lambda: world.plugins.listed)
        await server.start(tmp_path / "pr.sock")
        answer = await ask(tmp_path / "pr.sock", "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
        device = answer.pod_resources[0].containers[0].devices[0]
        assert (device.resource_name, list(device.device_ids), device.topology.nodes[0].ID) == (
            "vendor.com/gpu",
            ["gpu-1"],
            0,
        )
        old = await ask(
            tmp_path / "pr.sock", "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse, "v1alpha1"
        )
        only = api.ContainerDevices(resource_name="vendor.com/gpu", device_ids=["gpu-1"])
        assert list(old.pod_resources[0].containers) == [api.ContainerResources(name="app", devices=[only])]
        request = api.AllocatableResourcesRequest()
        node = await ask(tmp_path / "pr.sock", "GetAllocatableResources", request, api.AllocatableResourcesResponse)
        assert len(node.devices) == 4
        await server.close()
        with pytest.raises(RPCError, match="TopologyAffinityError"):
            await world.run(gpu_pod("b", 3))
        assert (tmp_path / "state" / "device-plugins" / "kubelet_internal_checkpoint").exists()

    with_devices(tmp_path, test)


def test_devices_are_kept_over_a_restart(tmp_path: Path) -> None:
    """X03: an agent that comes back knows who has which device before the plugin is back; then others are given.

    Sockets in the folder are removed at the start, which is how plugins learn that they must register again."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0, 0))
        await until(lambda: world.plugins.listed)
        await world.run(gpu_pod("a", 1))
        await world.stop()
        await world.start()
        node = world.owner.node
        assert node is not None
        assert "a" in world.owner.pods["a"].units
        held = [entry.by_node for entry in node.kubelet.manager.device.content().entries]
        assert [list(ids) for by_node in held for ids in by_node.values()] == [["gpu-1"]]
        with pytest.raises(RPCError):
            await world.run(gpu_pod("b", 1))
        again = SamplePlugin(world.folder_of_plugins)
        await again.register()
        again.lists.put(gpus(0, 0))
        await until(lambda: world.plugins.listed)
        await world.run(gpu_pod("c", 1))
        await world.end("a")
        await world.run(gpu_pod("d", 1))
        assert again.allocated == [["gpu-0"], ["gpu-1"]]
        again.stop()

    with_devices(tmp_path, test)


def test_slow_plugins_do_not_use_up_the_runtimes_patience(tmp_path: Path) -> None:
    """All calls of one decision share a budget below the runtime's limit of two seconds, whatever the number of
    containers; the next decision has it again."""
    assert CALL_SECONDS <= 1.2

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0, 0, 0, 0))
        await until(lambda: world.plugins.listed)

        def slowly() -> None:
            world.now += 25.0

        sample.takes_time = slowly
        pod = gpu_pod("a", 1, cpu="1")
        several = [msgspec.structs.replace(pod.spec.containers[0], name=f"c{number}") for number in range(4)]
        with pytest.raises(RPCError, match="code = DeadlineExceeded"):
            await world.run(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=several)))
        assert len(sample.allocated) == 3
        assert world.fake.unpinned == []
        sample.takes_time = lambda: None
        await world.run(gpu_pod("b", 4))

    with_devices(tmp_path, test)


def test_health_and_loss(tmp_path: Path) -> None:
    """X04: unhealthy devices are not given away; when the plugin goes nothing is, until it registers again."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0, health="Unhealthy"))
        await until(lambda: world.plugins.listed)
        with pytest.raises(RPCError):
            await world.run(gpu_pod("a", 1))
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed["vendor.com/gpu"][0].healthy)
        await world.run(gpu_pod("b", 1))
        await world.end("b")
        sample.lists.put(None)
        await until(lambda: not world.plugins.listed["vendor.com/gpu"][0].healthy)
        with pytest.raises(RPCError):
            await world.run(gpu_pod("c", 1))
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed["vendor.com/gpu"][0].healthy)
        await world.run(gpu_pod("d", 1))

    with_devices(tmp_path, test)


def test_plugin_error_refuses_the_pod(tmp_path: Path) -> None:
    """The plugin's own words reach the pod."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        await sample.register()
        sample.lists.put(gpus(0))
        await until(lambda: world.plugins.listed)
        sample.fail_allocate = "the card is on fire"
        with pytest.raises(RPCError, match=r"UnexpectedAdmissionError: .*code = Internal desc = the card is on fire"):
            await world.run(gpu_pod("a", 1))

    with_devices(tmp_path, test)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": "v1alpha1"}, r'requested API version "v1alpha1" is not supported by kubelet'),
        ({"resource_name": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"endpoint": "../gpu.sock"}, "is not a file name"),
    ],
)
def test_bad_registrations(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    """Version, name and socket of a registration are checked, with upstream's words."""

    async def test(world: DeviceWorld, sample: SamplePlugin) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match=message):
            await sample.register(**fields)
        assert len(world.troubles) == 1

    with_devices(tmp_path, test)
