"""Device plugins of a made-up machine, over the real protocol: they register with a kubelet, list devices on NUMA
nodes, prefer and allocate as podslice's simulated plugin does."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from podslice.machine.devices import DeviceInventory, DeviceResource
from podslice.node.devices.plugin import AllocateResponse, DeviceNode, SimulatedPlugin
from podslice.service.proto import deviceplugin_pb2 as api

_VERSION = "v1beta1"
_PATIENCE = 30.0
FOLDER = "device-plugins"


class Plugins:
    """All plugins of a machine. `register` registers them with a kubelet, after each of its starts."""

    def __init__(self, inventory: DeviceInventory, root: Path) -> None:
        self._folder = root / FOLDER
        self._plugins = {
            resource.resource: _Plugin(resource, f"plugin-{place}")
            for place, resource in enumerate(inventory.resources)
        }

    def __enter__(self) -> Plugins:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def register(self) -> None:
        """Serve again, as a kubelet that starts removes all sockets, and register with it."""
        self.stop()
        for plugin in self._plugins.values():
            plugin.serve(self._folder)

    def change(self, resource: DeviceResource) -> None:
        """Give the plugin of a resource another list, which it sends."""
        self._plugins[resource.resource].change(resource)

    def stop(self) -> None:
        """Stop all plugins."""
        for plugin in self._plugins.values():
            plugin.stop()


class AllocatingPlugin(SimulatedPlugin):
    """A plugin that gives a container an environment variable, device files and an annotation."""

    def __init__(self, resource: DeviceResource) -> None:
        super().__init__(preferred_allocation=resource.preferred_allocation)
        self._name = resource.resource.replace("/", "_").replace(".", "_").upper()

    def allocate(self, ids: list[str]) -> AllocateResponse | None:
        chosen = sorted(ids)
        return AllocateResponse(
            envs={self._name: ",".join(chosen)},
            devices=tuple(DeviceNode(f"/dev/{one}", "/dev/null", "rw") for one in chosen),
            annotations={self._name.lower(): str(len(chosen))},
        )


class _Plugin:
    """The plugin of one resource."""

    def __init__(self, resource: DeviceResource, name: str) -> None:
        self._resource, self._name = resource, f"{name}.sock"
        self._simulated = AllocatingPlugin(resource)
        self._server: Any = None
        self._stopped = threading.Event()
        self._changes: queue.SimpleQueue[DeviceResource] = queue.SimpleQueue()

    def serve(self, folder: Path) -> None:
        """Listen, then register."""
        self._stopped = threading.Event()
        self._changes = queue.SimpleQueue()
        (folder / self._name).unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self._handler(),))
        self._server.add_insecure_port(f"unix://{folder / self._name}")
        self._server.start()
        request = api.RegisterRequest(
            version=_VERSION, endpoint=self._name, resource_name=self._resource.resource, options=self._options()
        )
        with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api.RegisterRequest.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            register(request, timeout=_PATIENCE, wait_for_ready=True)

    def change(self, resource: DeviceResource) -> None:
        self._resource = resource
        self._changes.put(resource)

    def stop(self) -> None:
        self._stopped.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def _options(self) -> Any:
        return api.DevicePluginOptions(get_preferred_allocation_available=self._resource.preferred_allocation)

    def _handler(self) -> Any:
        unary: dict[str, tuple[Any, Any]] = {
            "GetDevicePluginOptions": (api.Empty, lambda _: self._options()),
            "GetPreferredAllocation": (api.PreferredAllocationRequest, self._prefer),
            "Allocate": (api.AllocateRequest, self._allocate),
            "PreStartContainer": (api.PreStartContainerRequest, lambda _: api.PreStartContainerResponse()),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda request, _, answer=answer: answer(request),
                request_deserializer=kind.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (kind, answer) in unary.items()
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._watch,
            request_deserializer=api.Empty.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)

    def _watch(self, _: Any, context: Any) -> Iterator[Any]:
        """Send the list, and again when it changes; the call lasts as long as the plugin."""
        changes, stopped = self._changes, self._stopped
        yield _list_of(self._resource)
        while context.is_active() and not stopped.is_set():
            with contextlib.suppress(queue.Empty):
                yield _list_of(changes.get(timeout=0.1))

    def _prefer(self, request: Any) -> Any:
        answers = []
        for one in request.container_requests:
            found = self._simulated.get_preferred_allocation(
                list(one.available_deviceIDs), list(one.must_include_deviceIDs), one.allocation_size
            )
            answers.append(api.ContainerPreferredAllocationResponse(deviceIDs=found or []))
        return api.PreferredAllocationResponse(container_responses=answers)

    def _allocate(self, request: Any) -> Any:
        answers = (self._simulated.allocate(list(one.devices_ids)) for one in request.container_requests)
        return api.AllocateResponse(container_responses=[_response(own or AllocateResponse()) for own in answers])


def _list_of(resource: DeviceResource) -> Any:
    return api.ListAndWatchResponse(devices=[_device_message(device) for device in resource.devices])


def _device_message(device: Any) -> Any:
    topology = None
    if device.numa is not None:
        topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in device.numa])
    return api.Device(ID=device.id, health=device.health, topology=topology)


def _response(answer: AllocateResponse) -> Any:
    return api.ContainerAllocateResponse(
        envs=answer.envs,
        mounts=[api.Mount(container_path=own.container_path, host_path=own.host_path, read_only=own.read_only)
                for own in answer.mounts],
        devices=[api.DeviceSpec(container_path=own.container_path, host_path=own.host_path, permissions=own.permissions)
                 for own in answer.devices],
        annotations=answer.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in answer.cdi_devices],
    )  # fmt: skip
