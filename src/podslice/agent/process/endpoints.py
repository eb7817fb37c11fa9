"""The addresses and sockets on which the agent serves, from the start to the end of its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.dra.driver import Driver
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.owner import Owner
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.process.health import AgentHealth
from podslice.agent.settings import AgentSettings
from podslice.agent.status.agent_status import AgentStatusSource
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.metrics import MetricsPage
from podslice.agent.status.requests import MoveHandlers, Send, serve_local
from podslice.agent.status.statusport import require_token, status_routes
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.devices import Device
from podslice.service.http.get_server import WebServer, metrics_routes
from podslice.service.kubeletresources import KubeletResources
from podslice.values.errors import InputError


@dataclass(kw_only=True, eq=False)
class Endpoints:
    """The servers and sockets that the settings ask for."""

    settings: AgentSettings
    observe: bool
    owner: Owner
    tree: CgroupTree
    executor: PlanExecutor
    health: AgentHealth
    status: AgentStatusSource
    page: MetricsPage
    live: LiveNodeSource
    devices: DevicePlugins | None
    listed_devices: Callable[[], Mapping[str, tuple[Device, ...]]]
    driver: Driver | None
    stand_in: StandIn | None
    served: dict[str, int]
    trouble: Callable[[str, str], None]
    web_port: int = 0
    status_port: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        """Serve until `stack` is closed. Raises `InputError` for an address that cannot be used."""
        await self._serve_metrics(stack)
        await self._serve_status(stack)
        await self._serve_local_socket(stack)
        await self._serve_pod_resources(stack)
        if self.devices is not None:
            await _listen("devicePlugins", self.settings.device_plugins, self.devices.start)
            stack.push_async_callback(self.devices.close)
        if self.driver is not None:
            await _listen("dra.plugins", self.driver.settings.plugins, self.driver.start)
            stack.push_async_callback(self.driver.close)

    async def _serve_metrics(self, stack: AsyncExitStack) -> None:
        address = self.settings.address()
        if address is None:
            return
        web = WebServer(metrics_routes(self.page.text, self.health.alive, self.health.ready))
        self.web_port = await _listen("metricsAddress", self.settings.metrics_address, lambda: web.start(*address))
        stack.push_async_callback(web.close)

    async def _serve_status(self, stack: AsyncExitStack) -> None:
        address = self.settings.status_listener()
        if address is None:
            return
        routes = status_routes(self.owner, self.tree, status=self.status.read, live=self.live.tell)
        web = WebServer(routes, refusal=require_token(self.settings.status_token_file))
        self.status_port = await _listen("statusAddress", self.settings.status_address, lambda: web.start(*address))
        stack.push_async_callback(web.close)

    async def _serve_local_socket(self, stack: AsyncExitStack) -> None:
        if not self.settings.status_socket:
            return
        file, moves = SocketFile(Path(self.settings.status_socket)), MoveHandlers(self.executor)
        handlers = {"node": self._answer_node, "moves": moves.moves, "undo": moves.undo}
        server = await _listen(
            "statusSocket",
            str(file.path),
            lambda: serve_local(file, self.status.read, handlers, trouble=self.trouble),
        )
        stack.callback(file.remove)
        stack.callback(server.close)

    async def _answer_node(self, request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        return self.live.tell()

    async def _serve_pod_resources(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        path, kubelet = Path(settings.pod_resources_socket), Path(settings.pod_resources_upstream)
        # A dry run leaves the kubelet's socket alone.
        if not settings.pod_resources_socket or (settings.stands_in and self.observe):
            return
        if self.stand_in is not None:
            path, kubelet = self.stand_in.own, self.stand_in.kept
            await _listen("podResourcesSocket", str(path), self.stand_in.make_folder)
        resources = PodResources(
            self.owner,
            self.served,
            devices=self.listed_devices,
            kubelet=KubeletResources(kubelet) if settings.pod_resources_upstream else None,
            trouble=self.trouble,
        )
        await _listen("podResourcesSocket", str(path), lambda: resources.start(path))
        stack.push_async_callback(resources.close)
        if self.stand_in is not None:
            stack.callback(self.stand_in.leave)


async def _listen(setting: str, where: str, listen: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await listen()
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{where}: cannot be used: {error}", path=setting, remedy="free it or choose another"
        ) from None
