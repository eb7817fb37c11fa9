"""The plugin side of the Node Resource Interface, NRI (containerd ≥ 1.7, CRI-O).

The plugin connects (or is started by the runtime with a connected socket), registers, is configured and receives the
list of running pods and containers; afterwards the runtime calls it for every pod and container. `run_plugin` does this
for ever; the answers come from a `Plugin`. Both forms of pod events are supported: `StateChange`, and a method for
each.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from podslice.agent.runtime.ttrpc import INVALID_ARGUMENT, Client, Handler, Mux, RPCError, TTRPCServer, WireError
from podslice.service.pacing import BackOff
from podslice.service.proto import nri_pb2 as nri

PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
DEFAULT_SOCKET = "/var/run/nri/nri.sock"
CALL_TIMEOUT = 5.0
"""Seconds for one call to the runtime."""
SYNCHRONIZE_TIMEOUT = 120.0
"""Seconds that a runtime may take from registration to the end of synchronization."""
MOST_SYNCHRONIZED = 20_000
"""Limit of pods and containers in one synchronization."""

EVENTS = (
    nri.RUN_POD_SANDBOX,
    nri.STOP_POD_SANDBOX,
    nri.REMOVE_POD_SANDBOX,
    nri.CREATE_CONTAINER,
    nri.START_CONTAINER,
    nri.UPDATE_CONTAINER,
    nri.POST_UPDATE_CONTAINER,
    nri.STOP_CONTAINER,
    nri.REMOVE_CONTAINER,
)
LATER_EVENTS = (nri.UPDATE_POD_SANDBOX,)
"""Events of newer runtimes. A runtime that sends the version of its NRI knows them; another one closes the connection
of a plugin that subscribes to an unknown event."""


class CreateAnswer(NamedTuple):
    """Adjustments of a new container, and updates of running ones."""

    adjust: nri.ContainerAdjustment
    updates: Iterable[nri.ContainerUpdate] = ()


class Plugin(Protocol):
    """The decisions of an NRI plugin. Every method may raise `RPCError`, which the runtime passes on to its client."""

    def configure(self, request: nri.ConfigureRequest) -> None:
        """Receive the runtime's name, version and time limits, and the plugin's own configuration text."""

    def synchronize(
        self, pods: list[nri.PodSandbox], containers: list[nri.Container]
    ) -> Iterable[nri.ContainerUpdate] | Awaitable[Iterable[nri.ContainerUpdate]]: ...
    def run_pod(self, pod: nri.PodSandbox) -> Awaitable[None] | None: ...
    def stop_pod(self, pod: nri.PodSandbox) -> None: ...
    def remove_pod(self, pod: nri.PodSandbox) -> None: ...
    def create_container(
        self, pod: nri.PodSandbox, container: nri.Container
    ) -> CreateAnswer | Awaitable[CreateAnswer]: ...
    def start_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """Note that the container's cgroup is complete; its process has not been started yet."""

    def update_pod(self, pod: nri.PodSandbox, resources: nri.LinuxResources) -> Awaitable[None] | None:
        """Handle a change of the pod cgroup's resources by the kubelet."""

    def update_container(
        self, pod: nri.PodSandbox, container: nri.Container, resources: nri.LinuxResources
    ) -> Iterable[nri.ContainerUpdate] | Awaitable[Iterable[nri.ContainerUpdate]]: ...
    def post_update_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """Note that the runtime has applied the answer to an update."""

    def stop_container(self, pod: nri.PodSandbox, container: nri.Container) -> Iterable[nri.ContainerUpdate]: ...
    def remove_container(self, pod: nri.PodSandbox, container: nri.Container) -> None: ...
    def on_crash(self, error: Exception) -> None:
        """Report an unexpected error of a method; the runtime gets `INTERNAL`."""


def event_mask(events: Iterable[int]) -> int:
    """Return event numbers as the bit mask of a `ConfigureResponse`."""
    return sum(1 << event - 1 for event in set(events))


class Connection:
    """A connection to a runtime. Call `register` first; `closed` is done when the socket is gone."""

    def __init__(self, mux: Mux, plugin: Plugin) -> None:
        self._mux = mux
        self._plugin = plugin
        self._pods: list[nri.PodSandbox] = []
        self._containers: list[nri.Container] = []
        self.synchronized = asyncio.Event()
        self._client = Client(mux, RUNTIME_CONNECTION)
        handlers = {(PLUGIN_SERVICE, name): handler for name, handler in self._handlers().items()}
        TTRPCServer(mux, PLUGIN_CONNECTION, handlers, on_crash=plugin.on_crash)

    @property
    def closed(self) -> asyncio.Future[str | None]:
        return self._mux.closed

    def close(self) -> None:
        self._mux.close()

    async def register(self, name: str, index: str) -> None:
        """Register the plugin. Raises `RPCError`: that of the runtime, or `INVALID_ARGUMENT` for names it would
        refuse."""
        if not name or len(index) != 2 or not index.isdecimal():
            raise RPCError(INVALID_ARGUMENT, f"plugin name {name!r} and two-digit index {index!r} needed")
        request = nri.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        await self._client.call(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), timeout=CALL_TIMEOUT)

    # The runtime's calls

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._shutdown,
            "RunPodSandbox": lambda data: self._pod_event(nri.RUN_POD_SANDBOX, data),
            "StopPodSandbox": lambda data: self._pod_event(nri.STOP_POD_SANDBOX, data),
            "RemovePodSandbox": lambda data: self._pod_event(nri.REMOVE_POD_SANDBOX, data),
            "CreateContainer": self._create_container,
            "StartContainer": lambda data: self._container_event(nri.START_CONTAINER, data),
            "UpdateContainer": self._update_container,
            "PostUpdateContainer": lambda data: self._container_event(nri.POST_UPDATE_CONTAINER, data),
            "UpdatePodSandbox": self._update_pod,
            "StopContainer": self._stop_container,
            "RemoveContainer": lambda data: self._container_event(nri.REMOVE_CONTAINER, data),
            "StateChange": self._state_change,
        }

    def _configure(self, data: bytes) -> bytes:
        request = nri.ConfigureRequest.FromString(data)
        self._plugin.configure(request)
        # The field came with the later events, so a runtime that sends it has them.
        events = (*EVENTS, *LATER_EVENTS) if request.NRI_version else EVENTS
        return nri.ConfigureResponse(events=event_mask(events)).SerializeToString()

    def _synchronize(self, data: bytes) -> bytes | Awaitable[bytes]:
        request = nri.SynchronizeRequest.FromString(data)
        announced = len(self._pods) + len(self._containers) + len(request.pods) + len(request.containers)
        if announced > MOST_SYNCHRONIZED:
            raise WireError(f"more than {MOST_SYNCHRONIZED} pods and containers announced")
        self._pods += request.pods
        self._containers += request.containers
        # containerd splits a long list into several requests; the answer must say `more` as well.
        if request.more:
            return nri.SynchronizeResponse(more=True).SerializeToString()
        pods, self._pods = self._pods, []
        containers, self._containers = self._containers, []
        updates = self._plugin.synchronize(pods, containers)
        if isinstance(updates, Awaitable):
            return self._synchronize_later(updates)
        self.synchronized.set()
        return nri.SynchronizeResponse(update=updates).SerializeToString()

    async def _synchronize_later(self, updates: Awaitable[Iterable[nri.ContainerUpdate]]) -> bytes:
        answer = nri.SynchronizeResponse(update=await updates).SerializeToString()
        self.synchronized.set()
        return answer

    def _shutdown(self, data: bytes) -> bytes:
        return b""

    def _state_change(self, data: bytes) -> bytes | Awaitable[bytes]:
        event = nri.StateChangeEvent.FromString(data)
        if event.event in (nri.START_CONTAINER, nri.POST_UPDATE_CONTAINER, nri.REMOVE_CONTAINER):
            return self._on_container(event.event, event.pod, event.container)
        return self._on_pod(event.event, event.pod)

    def _container_event(self, event: int, data: bytes) -> bytes:
        request = nri.CreateContainerRequest.FromString(data)
        return self._on_container(event, request.pod, request.container)

    def _on_container(self, event: int, pod: nri.PodSandbox, container: nri.Container) -> bytes:
        if event == nri.START_CONTAINER:
            self._plugin.start_container(pod, container)
        elif event == nri.POST_UPDATE_CONTAINER:
            self._plugin.post_update_container(pod, container)
        else:
            self._plugin.remove_container(pod, container)
        return b""

    def _pod_event(self, event: int, data: bytes) -> bytes | Awaitable[bytes]:
        return self._on_pod(event, nri.PodSandboxRequest.FromString(data).pod)

    def _on_pod(self, event: int, pod: nri.PodSandbox) -> bytes | Awaitable[bytes]:
        if event == nri.RUN_POD_SANDBOX:
            answer = self._plugin.run_pod(pod)
            if isinstance(answer, Awaitable):
                return _empty(answer)
        elif event == nri.STOP_POD_SANDBOX:
            self._plugin.stop_pod(pod)
        elif event == nri.REMOVE_POD_SANDBOX:
            self._plugin.remove_pod(pod)
        return b""

    def _create_container(self, data: bytes) -> bytes | Awaitable[bytes]:
        request = nri.CreateContainerRequest.FromString(data)
        answer = self._plugin.create_container(request.pod, request.container)
        return _created_later(answer) if isinstance(answer, Awaitable) else _created(answer)

    def _update_pod(self, data: bytes) -> bytes | Awaitable[bytes]:
        request = nri.UpdatePodSandboxRequest.FromString(data)
        answer = self._plugin.update_pod(request.pod, request.linux_resources)
        return b"" if answer is None else _empty(answer)

    def _update_container(self, data: bytes) -> bytes | Awaitable[bytes]:
        request = nri.UpdateContainerRequest.FromString(data)
        updates = self._plugin.update_container(request.pod, request.container, request.linux_resources)
        return _updated_later(updates) if isinstance(updates, Awaitable) else _updated(updates)

    def _stop_container(self, data: bytes) -> bytes:
        request = nri.CreateContainerRequest.FromString(data)
        updates = self._plugin.stop_container(request.pod, request.container)
        return nri.StopContainerResponse(update=updates).SerializeToString()


async def _empty(answer: Awaitable[None]) -> bytes:
    await answer
    return b""


def _created(answer: CreateAnswer) -> bytes:
    return nri.CreateContainerResponse(adjust=answer.adjust, update=answer.updates).SerializeToString()


async def _created_later(answer: Awaitable[CreateAnswer]) -> bytes:
    return _created(await answer)


def _updated(updates: Iterable[nri.ContainerUpdate]) -> bytes:
    return nri.UpdateContainerResponse(update=updates).SerializeToString()


async def _updated_later(updates: Awaitable[Iterable[nri.ContainerUpdate]]) -> bytes:
    return _updated(await updates)


Connect = Callable[[], Awaitable[Mux]]


async def connect_unix(path: str = DEFAULT_SOCKET) -> Mux:
    """Connect to the runtime's socket. Raises `OSError`."""
    _, mux = await asyncio.get_running_loop().create_unix_connection(Mux, path)
    return mux


async def adopt_socket(descriptor: int) -> Mux:
    """Adopt the connected socket that a runtime passes to a plugin it starts (`NRI_PLUGIN_SOCKET`). Raises
    `OSError`."""
    _, mux = await asyncio.get_running_loop().create_unix_connection(Mux, sock=socket.socket(fileno=descriptor))
    return mux


class Launch(NamedTuple):
    """Name and two-digit index to register with, and how to connect. `once`: the socket cannot be opened again."""

    name: str
    place: str
    connect: Connect
    once: bool


def launch_from_environment(environment: Mapping[str, str], *, name: str, index: str, path: str) -> Launch:
    """Return how to connect: as the environment of a plugin started by the runtime says, else by the arguments."""
    descriptor = environment.get("NRI_PLUGIN_SOCKET", "")
    if not descriptor.isdecimal():
        return Launch(name, index, lambda: connect_unix(path), False)
    return Launch(
        environment.get("NRI_PLUGIN_NAME", name),
        environment.get("NRI_PLUGIN_IDX", index),
        lambda: adopt_socket(int(descriptor)),
        True,
    )


async def run_plugin(
    plugin: Plugin,
    launch: Launch,
    *,
    connected: Callable[[Connection], None],
    disconnected: Callable[[str], None],
    back_off: BackOff | None = None,
) -> None:
    """Serve `plugin` for ever, reconnecting after every loss; return only after a `launch.once` connection.

    `connected` is called after each synchronization, `disconnected` with the reason after each loss or failed attempt.
    """
    back_off = back_off or BackOff()
    while True:
        try:
            connection = Connection(await launch.connect(), plugin)
        except OSError as error:
            disconnected(f"cannot connect: {os.strerror(error.errno) if error.errno else error}")
        else:
            disconnected(await _serve(connection, launch, connected, back_off))
        if launch.once:
            return
        await asyncio.sleep(back_off.next())


async def _serve(
    connection: Connection, launch: Launch, connected: Callable[[Connection], None], back_off: BackOff
) -> str:
    try:
        await connection.register(launch.name, launch.place)
        synchronized = asyncio.ensure_future(connection.synchronized.wait())
        waited: list[asyncio.Future[Any]] = [synchronized, connection.closed]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED, timeout=SYNCHRONIZE_TIMEOUT)
            if not synchronized.done() and not connection.closed.done():
                return "registered, but the runtime sent no list of pods and containers"
            if not connection.closed.done():
                back_off.reset()
                connected(connection)
        finally:
            synchronized.cancel()
        # Shielded: others wait for this future too, and a cancelled wait would cancel it for them.
        return await asyncio.shield(connection.closed) or "the runtime closed the connection"
    except RPCError as error:
        return f"registration failed: {error.message}"
    finally:
        connection.close()
