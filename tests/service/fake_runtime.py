"""A container runtime that exists only on paper and speaks NRI over a socket pair: for tests and measurements.

`FakeRuntime` behaves as containerd does. Its calls carry no flags. It waits for the registration, configures and
synchronizes the plugin, and applies adjustments and updates to its containers. A call may take two seconds. If the
plugin is gone or slow, it creates the container without it, unpinned, unless its validator requires the plugin.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from typing import Any

from podslice.agent.runtime.nri import PLUGIN_CONNECTION, PLUGIN_SERVICE, RUNTIME_CONNECTION, RUNTIME_SERVICE
from podslice.agent.runtime.ttrpc import DEADLINE_EXCEEDED, UNAVAILABLE, UNKNOWN, Client, Mux, RPCError, TTRPCServer
from podslice.service.proto import nri_pb2 as nri


class FakeContainer:
    """A container in the runtime's ledgers; `cpus`, `mems`, `quota` are what its cgroup would say."""

    def __init__(self, message: nri.Container) -> None:
        self.message = message
        self.env: dict[str, str] = {}
        self.mounts: list[nri.Mount] = []
        self.devices: list[str] = []

    @property
    def cpu(self) -> nri.LinuxCPU:
        return self.message.linux.resources.cpu

    @property
    def cpus(self) -> str:
        return self.cpu.cpus

    @property
    def mems(self) -> str:
        return self.cpu.mems

    @property
    def quota(self) -> int:
        return self.cpu.quota.value

    @property
    def memory(self) -> int:
        return self.message.linux.resources.memory.limit.value

    def apply(self, resources: nri.LinuxResources) -> None:
        """Take over the fields that are set, as an OCI runtime does."""
        if resources.cpu.cpus:
            self.cpu.cpus = resources.cpu.cpus
        if resources.cpu.mems:
            self.cpu.mems = resources.cpu.mems
        if resources.cpu.HasField("quota"):
            self.cpu.quota.value = resources.cpu.quota.value
        if resources.cpu.HasField("shares"):
            self.cpu.shares.value = resources.cpu.shares.value
        if resources.memory.HasField("limit"):
            self.message.linux.resources.memory.limit.value = resources.memory.limit.value


class FakeRuntime:
    """The runtime's side. `connect` is what `run_plugin` needs to reach it; `attached` is set while a plugin is
    registered and synchronized. `state_changes` False sends pod events as methods of their own, as newer runtimes do.

    `latencies`: seconds every CreateContainer took, from sending the request to having decoded the answer. `spent`: the
    processor time of it, both sides and whatever else the thread did.
    """

    def __init__(
        self,
        *,
        state_changes: bool = True,
        request_timeout: float = 2.0,
        chunk: int = 0,
        required_plugin: str = "",
        name: str = "fake",
        version: str = "1",
        nri_version: str = "",
    ) -> None:
        self.nri_version = nri_version
        self.name = name
        self.version = version
        self.pods: dict[str, nri.PodSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.events = 0
        self.registered: list[tuple[str, str]] = []
        self.unpinned: list[str] = []
        self.latencies: list[float] = []
        self.spent: list[float] = []
        self.attached = asyncio.Event()
        self._state_changes = state_changes
        self._timeout = request_timeout
        self._chunk = chunk
        self._required = required_plugin
        self._mux: Mux | None = None
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuse_connections = False

    async def connect(self) -> Mux:
        """A plugin connects. Raises `OSError` while the runtime is down."""
        if self._refuse_connections:
            raise ConnectionRefusedError(111, "the runtime is down")
        ours, theirs = socket.socketpair()
        await self.adopt(ours)
        _, plugin_side = await asyncio.get_running_loop().create_unix_connection(Mux, sock=theirs)
        return plugin_side

    async def adopt(self, ours: socket.socket) -> None:
        """Take the runtime's end of a connection, as when the runtime starts the plugin itself."""
        _, mux = await asyncio.get_running_loop().create_unix_connection(Mux, sock=ours)
        TTRPCServer(mux, RUNTIME_CONNECTION, {(RUNTIME_SERVICE, "RegisterPlugin"): self._register})
        self._mux, self._client = mux, Client(mux, PLUGIN_CONNECTION, flags=0)
        self.attached.clear()
        mux.closed.add_done_callback(lambda _: self.attached.clear() if self._mux is mux else None)

    def drop_plugin(self) -> None:
        """Hang up."""
        self.attached.clear()
        if self._mux is not None:
            self._mux.close()

    def stop(self) -> None:
        """The runtime goes down; its containers go on."""
        self._refuse_connections = True
        self.drop_plugin()

    def start(self) -> None:
        """The runtime is back and knows its pods and containers."""
        self._refuse_connections = False

    # The plugin's calls

    def _register(self, data: bytes) -> bytes:
        request = nri.RegisterPluginRequest.FromString(data)
        if not request.plugin_name or len(request.plugin_idx) != 2 or not request.plugin_idx.isdecimal():
            raise RPCError(UNKNOWN, f"invalid plugin name {request.plugin_name!r} or index {request.plugin_idx!r}")
        self.registered.append((request.plugin_name, request.plugin_idx))
        task = asyncio.ensure_future(self._introduce())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return b""

    async def _introduce(self) -> None:
        with contextlib.suppress(RPCError):
            answer = await self._call(
                "Configure",
                nri.ConfigureRequest(
                    runtime_name=self.name,
                    runtime_version=self.version,
                    NRI_version=self.nri_version,
                    registration_timeout=5000,
                    request_timeout=int(self._timeout * 1000),
                ),
            )
            self.events = nri.ConfigureResponse.FromString(answer).events
            pods, containers = list(self.pods.values()), [c.message for c in self.containers.values()]
            size = self._chunk or max(len(pods), len(containers), 1)
            steps = max(-(-len(pods) // size), -(-len(containers) // size), 1)
            for step in range(steps):
                part = slice(step * size, (step + 1) * size)
                request = nri.SynchronizeRequest(pods=pods[part], containers=containers[part], more=step < steps - 1)
                reply = nri.SynchronizeResponse.FromString(await self._call("Synchronize", request))
                assert reply.more == request.more
            self._apply(reply.update)
            self.attached.set()

    def _apply(self, updates: Any) -> None:
        for update in updates:
            container = self.containers.get(update.container_id)
            if container is not None:
                container.apply(update.linux.resources)

    # Calls to the plugin

    async def _call(self, method: str, request: Any) -> bytes:
        if self._client is None:
            raise RPCError(UNAVAILABLE, "no plugin")
        return await self._client.call(PLUGIN_SERVICE, method, request.SerializeToString(), timeout=self._timeout)

    async def _ask(self, method: str, request: Any) -> bytes | None:
        """The plugin's answer; None when it is gone or too slow, which closes the connection."""
        if not self.attached.is_set():
            return None
        try:
            return await self._call(method, request)
        except RPCError as error:
            if error.code not in (DEADLINE_EXCEEDED, UNAVAILABLE):
                raise
            self.drop_plugin()
            return None

    async def _pod_event(self, event: nri.Event, method: str, pod: nri.PodSandbox) -> None:
        if self._state_changes:
            await self._ask("StateChange", nri.StateChangeEvent(event=event, pod=pod))
        else:
            await self._ask(method, nri.PodSandboxRequest(pod=pod))

    async def run_pod(
        self,
        uid: str,
        *,
        name: str = "",
        namespace: str = "default",
        sandbox: str = "",
        annotations: Mapping[str, str] | None = None,
        cgroup_parent: str = "",
        cgroups_path: str = "",
        cpu_limit: int = 0,
    ) -> str:
        """RunPodSandbox; returns the sandbox id. `cpu_limit` of the pod is in thousandths. Raises `RPCError` when the
        plugin refuses; the pod is gone then."""
        identity = sandbox or f"sandbox-{uid}"
        pod = nri.PodSandbox(
            id=identity,
            name=name or uid,
            uid=uid,
            namespace=namespace,
            annotations=annotations,
            linux=nri.LinuxPodSandbox(cgroup_parent=cgroup_parent or f"/kubepods/pod{uid}", cgroups_path=cgroups_path),
        )
        if cpu_limit:
            pod.linux.pod_resources.cpu.quota.value, pod.linux.pod_resources.cpu.period.value = cpu_limit * 100, 100_000
        self.pods[identity] = pod
        try:
            await self._pod_event(nri.RUN_POD_SANDBOX, "RunPodSandbox", pod)
        except RPCError:
            await self.stop_pod(identity)
            await self.remove_pod(identity)
            raise
        return identity

    async def stop_pod(self, sandbox: str) -> None:
        """StopPodSandbox: its containers stop first."""
        for identity, container in list(self.containers.items()):
            if container.message.pod_sandbox_id == sandbox and container.message.state != nri.CONTAINER_STOPPED:
                await self.stop_container(identity)
        await self._pod_event(nri.STOP_POD_SANDBOX, "StopPodSandbox", self.pods[sandbox])

    async def remove_pod(self, sandbox: str) -> None:
        """RemovePodSandbox: its containers are removed first."""
        for identity, container in list(self.containers.items()):
            if container.message.pod_sandbox_id == sandbox:
                await self.remove_container(identity)
        await self._pod_event(nri.REMOVE_POD_SANDBOX, "RemovePodSandbox", self.pods[sandbox])
        del self.pods[sandbox]

    async def create_container(
        self,
        sandbox: str,
        name: str,
        *,
        container_id: str = "",
        shares: int = 2,
        quota: int = 0,
        memory: int = 0,
        env: tuple[str, ...] = (),
        start: bool = True,
    ) -> FakeContainer:
        """CreateContainer and, if so asked, StartContainer. Raises `RPCError` when the plugin refuses."""
        pod = self.pods[sandbox]
        identity = container_id or f"{sandbox}-{name}"
        resources = nri.LinuxResources(
            cpu=nri.LinuxCPU(
                shares=nri.OptionalUInt64(value=shares),
                quota=nri.OptionalInt64(value=quota),
                period=nri.OptionalUInt64(value=100_000),
            ),
            memory=nri.LinuxMemory(limit=nri.OptionalInt64(value=memory)),
        )
        message = nri.Container(
            id=identity,
            pod_sandbox_id=sandbox,
            name=name,
            env=env,
            state=nri.CONTAINER_CREATED,
            created_at=time.time_ns(),
            linux=nri.LinuxContainer(resources=resources, cgroups_path=self._cgroup(pod, identity)),
        )
        request = nri.CreateContainerRequest(pod=pod, container=message)
        started, before = time.perf_counter(), time.thread_time()
        data = await self._ask("CreateContainer", request)
        container = FakeContainer(message)
        if data is None:
            if self._required:
                text = f'validator rejected container adjustment: required plugin "{self._required}" not present'
                raise RPCError(UNKNOWN, text)
            self.unpinned.append(identity)
        else:
            answer = nri.CreateContainerResponse.FromString(data)
            self.latencies.append(time.perf_counter() - started)
            self.spent.append(time.thread_time() - before)
            container.apply(answer.adjust.linux.resources)
            container.env = {pair.key: pair.value for pair in answer.adjust.env}
            container.mounts = list(answer.adjust.mounts)
            container.devices = [device.path for device in answer.adjust.linux.devices]
            message.env.extend(f"{key}={value}" for key, value in container.env.items())
            self._apply(answer.update)
        self.containers[identity] = container
        if start:
            await self.start_container(identity)
        return container

    async def start_container(self, container_id: str) -> None:
        container = self.containers[container_id]
        await self._container_event(nri.START_CONTAINER, "StartContainer", container)
        container.message.state = nri.CONTAINER_RUNNING

    async def _container_event(self, event: nri.Event, method: str, container: FakeContainer) -> None:
        pod = self.pods[container.message.pod_sandbox_id]
        if self._state_changes:
            await self._ask("StateChange", nri.StateChangeEvent(event=event, pod=pod, container=container.message))
        else:
            await self._ask(method, nri.CreateContainerRequest(pod=pod, container=container.message))

    def _cgroup(self, pod: nri.PodSandbox, container_id: str) -> str:
        """As with either cgroup driver: a path below the pod's, or a scope of the pod's slice."""
        parent = pod.linux.cgroup_parent
        return f"{parent}:{self.name}:{container_id}" if parent.endswith(".slice") else f"{parent}/{container_id}"

    async def update_container(self, container_id: str, resources: nri.LinuxResources) -> None:
        """UpdateContainerResources of the kubelet; the plugin's answer overrides it."""
        container = self.containers[container_id]
        pod = self.pods[container.message.pod_sandbox_id]
        data = await self._ask(
            "UpdateContainer",
            nri.UpdateContainerRequest(pod=pod, container=container.message, linux_resources=resources),
        )
        container.apply(resources)
        if data is not None:
            self._apply(nri.UpdateContainerResponse.FromString(data).update)
            await self._container_event(nri.POST_UPDATE_CONTAINER, "PostUpdateContainer", container)

    async def update_pod(self, sandbox: str, milli: int) -> None:
        """UpdatePodSandboxResources of the kubelet. Raises `RPCError` when the plugin refuses."""
        resources = nri.LinuxResources()
        if milli:
            resources.cpu.quota.value, resources.cpu.period.value = milli * 100, 100_000
        request = nri.UpdatePodSandboxRequest(pod=self.pods[sandbox], linux_resources=resources)
        await self._ask("UpdatePodSandbox", request)

    async def stop_container(self, container_id: str) -> None:
        container = self.containers[container_id]
        pod = self.pods[container.message.pod_sandbox_id]
        container.message.state = nri.CONTAINER_STOPPED
        data = await self._ask("StopContainer", nri.CreateContainerRequest(pod=pod, container=container.message))
        if data is not None:
            self._apply(nri.StopContainerResponse.FromString(data).update)

    async def remove_container(self, container_id: str) -> None:
        await self._container_event(nri.REMOVE_CONTAINER, "RemoveContainer", self.containers.pop(container_id))
