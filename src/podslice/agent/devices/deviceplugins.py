"""Server and client of device plugins, API v1beta1: registration, lists of devices, and allocation (memory-device 2.2
to 2.4).

Registration and ListAndWatch run on the event loop. The owner makes the other calls, such as Allocate, in the middle of
a decision, so they block. All calls of one decision together may take `CALL_SECONDS`, well below what the runtime
allows a hook.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from podslice.agent.process.exclusive import SocketFile
from podslice.agent.status.local import owner_only
from podslice.machine.devices import MOST_NUMA_NODES, Device, is_extended_resource_name
from podslice.node.checkpoints.names import DEVICE_STATE_FILE
from podslice.node.devices.plugin import AllocateResponse, DeviceNode, Mount, PluginError, PluginOptions
from podslice.node.node import Node
from podslice.service.pacing import RateLimit
from podslice.service.proto import deviceplugin_pb2 as api
from podslice.service.unixgrpc import create_local_server

VERSION = "v1beta1"
REGISTRATION_SOCKET = "kubelet.sock"
PLUGIN_SERVICE = "v1beta1.DevicePlugin"
DIAL_SECONDS = 10.0
CALL_SECONDS = 1.2
MOST_PLUGINS = 256
_MOST_DEVICES = 65536
_LONGEST_DETAILS = 1000
_LINE_SECONDS, _MOST_LINES = 6.0, 20
_LONGEST_SOCKET = 107
_CHANNEL = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
"""A replaced plugin has the same address, and gRPC would hand out its predecessor's connection: so none is shared."""


class CallBudget:
    """Time budget of the calls of one decision. A decision is made in one turn of the event loop, so the budget is
    whole again in the next."""

    def __init__(self, seconds: float = CALL_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end: float | None = None

    def remaining(self) -> float:
        """Return the seconds that are left of this decision's budget."""
        if self._end is None:
            self._end = self._clock() + self._seconds
            # The owner decides without awaiting, so the next turn of the loop is after the decision.
            asyncio.get_running_loop().call_soon(self._renew)
        return max(0.0, self._end - self._clock())

    def _renew(self) -> None:
        self._end = None


class RemotePlugin:
    """A plugin behind a socket, with the calls that the Device Manager makes. Every call may raise `PluginError`."""

    def __init__(
        self, target: str, options: PluginOptions, observe: Callable[[float], None], budget: CallBudget
    ) -> None:
        self.options = options
        self._budget = budget
        self._observe = observe
        self._channel = grpc.insecure_channel(target, options=_CHANNEL)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def get_preferred_allocation(self, available: list[str], must_include: list[str], size: int) -> list[str] | None:
        """Return the ids that the plugin prefers, None where it has no preference."""
        one = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        answer = self._call(
            "GetPreferredAllocation",
            api.PreferredAllocationRequest(container_requests=[one]),
            api.PreferredAllocationResponse,
        )
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else None

    def allocate(self, ids: list[str]) -> AllocateResponse | None:
        """Allocate devices to a container; None for an answer without containers."""
        started = time.perf_counter()
        try:
            request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
            answer = self._call("Allocate", request, api.AllocateResponse)
        finally:
            self._observe(time.perf_counter() - started)
        return _response(answer.container_responses[0]) if answer.container_responses else None

    def pre_start(self, ids: list[str]) -> None:
        """Let the plugin prepare devices before the container starts."""
        self._call("PreStartContainer", api.PreStartContainerRequest(devices_ids=ids), api.PreStartContainerResponse)

    def _call(self, method: str, request: Any, kind: Any) -> Any:
        left = self._budget.remaining()
        if not left:
            raise PluginError("rpc error: code = DeadlineExceeded desc = the calls before this one took all the time")
        call = self._channel.unary_unary(
            f"/{PLUGIN_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        try:
            return call(request, timeout=left)
        except grpc.RpcError as error:
            raise PluginError(f"rpc error: code = {_code_name(error)} desc = {_details_of(error)}") from None


def _details_of(error: Any) -> str:
    """Return the message of an error, cut off."""
    return str(error.details())[:_LONGEST_DETAILS]


def _code_name(error: Any) -> str:
    """Return the code as Go prints it: `DeadlineExceeded`."""
    return "".join(word.capitalize() for word in error.code().name.split("_"))


def _response(message: api.ContainerAllocateResponse) -> AllocateResponse:
    return AllocateResponse(
        envs=dict(message.envs),
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in message.mounts),
        devices=tuple(DeviceNode(d.container_path, d.host_path, d.permissions) for d in message.devices),
        annotations=dict(message.annotations),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
    )


def device_of(message: api.Device) -> Device:
    """Return a device of a plugin's list. Its NUMA nodes are None without a topology object; nodes that no machine has
    are left out, since other programs could not read them."""
    if not message.HasField("topology"):
        return Device(message.ID, None, message.health)
    listed = dict.fromkeys(node.ID for node in message.topology.nodes)
    return Device(message.ID, tuple(node for node in listed if 0 <= node < MOST_NUMA_NODES), message.health)


class DevicePlugins:
    """The registration socket, and the plugins that have registered.

    `node`: returns the current node, None in safe mode; plugins that register meanwhile are given to the next node by
    `attach`. `listed`: devices by resource.
    """

    def __init__(
        self,
        folder: Path,
        node: Callable[[], Node | None],
        *,
        trouble: Callable[[str, str], None],
        registered: Callable[[str], None],
        allocated: Callable[[str, float], None],
        budget: CallBudget | None = None,
    ) -> None:
        self.listed: dict[str, tuple[Device, ...]] = {}
        self._folder = folder
        self._node = node
        self._trouble = trouble
        self._lines = RateLimit(per_second=1 / _LINE_SECONDS, burst=_MOST_LINES)
        self._registered = registered
        self._allocated = allocated
        self._plugins: dict[str, RemotePlugin] = {}
        self._budget = budget or CallBudget()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._server: Any = None

    async def start(self) -> None:
        """Clean the folder and listen for registrations. Raises `OSError`, also where a kubelet or an agent listens."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        SocketFile(self._folder / REGISTRATION_SOCKET).clear()
        for path in self._folder.iterdir():
            if path.name != DEVICE_STATE_FILE and path.is_socket():
                path.unlink()
        self._server = create_local_server()
        method = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})
        self._server.add_generic_rpc_handlers((handler,))
        with owner_only():
            self._server.add_insecure_port(f"unix://{self._folder / REGISTRATION_SOCKET}")
        await self._server.start()

    async def close(self) -> None:
        """Stop serving, and hang up on all plugins."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)
        for plugin in self._plugins.values():
            plugin.close()
        if self._server is not None:
            await self._server.stop(0.2)

    def list_devices(self) -> Mapping[str, tuple[Device, ...]]:
        """Return the devices that the plugins have listed, by resource."""
        return self.listed

    def attach(self, node: Node) -> None:
        """Register the present plugins with a new node."""
        for resource, plugin in self._plugins.items():
            if resource in self.listed:
                node.register_devices(resource, self.listed[resource], plugin)

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        try:
            self._check(request)
            self._registered(request.resource_name)
            await self._connect(request.resource_name, request.endpoint)
        except PluginError as error:
            self._say(f"{request.resource_name[:200]}: {error}")
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.Empty()

    def _say(self, text: str) -> None:
        """Report a refusal, within a rate: a client may be refused very often, under another name each time."""
        if self._lines.take():
            self._trouble("devicePlugin", text)

    def _check(self, request: api.RegisterRequest) -> None:
        if request.version != VERSION:
            raise PluginError(
                f'requested API version "{request.version[:80]}" is not supported by kubelet. '
                f'Supported version is ["{VERSION}"]'
            )
        if not is_extended_resource_name(request.resource_name):
            raise PluginError(f'the ResourceName "{request.resource_name[:200]}" is invalid')
        endpoint = request.endpoint
        # The endpoint is joined to the folder: a path in it could name any socket of the node.
        if "/" in endpoint or endpoint in ("", ".", "..", REGISTRATION_SOCKET) or not endpoint.isprintable():
            raise PluginError(f"the endpoint {endpoint[:200]!r} is not a file name")
        # The kernel takes 107 bytes and a NUL in sun_path.
        if len(os.fsencode(self._folder / endpoint)) > _LONGEST_SOCKET:
            raise PluginError(f'the endpoint "{endpoint[:200]}" is too long for a socket')
        if request.resource_name not in self._plugins and len(self._plugins) >= MOST_PLUGINS:
            raise PluginError(f"plugins of more than {MOST_PLUGINS} resources")

    async def _connect(self, resource: str, endpoint: str) -> None:
        target = f"unix://{quote(str(self._folder / endpoint))}"
        channel = grpc.aio.insecure_channel(target, options=_CHANNEL)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await channel.channel_ready()
        except TimeoutError:
            await channel.close()
            raise PluginError("failed to dial device plugin: context deadline exceeded") from None
        options = channel.unary_unary(
            f"/{PLUGIN_SERVICE}/GetDevicePluginOptions",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=api.DevicePluginOptions.FromString,
        )
        try:
            answer = await options(api.Empty(), timeout=DIAL_SECONDS)
        except grpc.aio.AioRpcError as error:
            await channel.close()
            raise PluginError(f"failed to get device plugin options: {_details_of(error)}") from None
        self._replace(resource, target, answer, channel)

    def _replace(self, resource: str, target: str, answer: api.DevicePluginOptions, channel: Any) -> None:
        old = self._watches.pop(resource, None)
        if old is not None:
            old.cancel()
        # A plugin that registers again takes its predecessor's place, as with a kubelet.
        if resource in self._plugins:
            self._plugins.pop(resource).close()
        options = PluginOptions(answer.pre_start_required, answer.get_preferred_allocation_available)
        observe = functools.partial(self._allocated, resource)
        self._plugins[resource] = RemotePlugin(target, options, observe, self._budget)
        self._watches[resource] = asyncio.ensure_future(self._watch(resource, channel))

    async def _watch(self, resource: str, channel: Any) -> None:
        """Follow the plugin's list until its stream ends; then mark its devices unhealthy."""
        stream = channel.unary_stream(
            f"/{PLUGIN_SERVICE}/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        first = True
        try:
            async for answer in stream(api.Empty()):
                self.listed[resource] = tuple(device_of(device) for device in answer.devices[:_MOST_DEVICES])
                self._list(resource, first=first)
                first = False
        except grpc.aio.AioRpcError as error:
            self._say(f"{resource}: ListAndWatch ended: {_details_of(error)}")
        except Exception as error:
            text = str(error)[:_LONGEST_DETAILS]
            self._say(f"{resource}: ListAndWatch ended: {type(error).__name__}: {text}")
        finally:
            with contextlib.suppress(Exception):
                await channel.close()
        self._disconnect(resource)

    def _list(self, resource: str, *, first: bool) -> None:
        node = self._node()
        if node is None:
            return
        if first:
            node.register_devices(resource, self.listed[resource], self._plugins[resource])
        else:
            node.update_devices(resource, self.listed[resource])

    def _disconnect(self, resource: str) -> None:
        self.listed[resource] = tuple(
            Device(device.id, device.numa, "Unhealthy") for device in self.listed.get(resource, ())
        )
        node = self._node()
        if node is not None:
            node.disconnect_devices(resource, now=time.monotonic())
