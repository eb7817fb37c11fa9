"""The agent's process: how it starts and stops, what it serves where, and what it reports of itself."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from podslice.agent.api_server.refusals import Refusals
from podslice.agent.cgroups.write_watcher import WriteWatcher
from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.dra.driver import Driver
from podslice.agent.exclusive import DirectoryLock, SocketFile
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.healing import heal
from podslice.agent.journal import NodeJournal
from podslice.agent.kubelet.configuredsources import ConfiguredSources
from podslice.agent.kubelet.kubeletresources import KubeletResources
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.sources import PodSource, Sources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.notify import notify, watchdog_interval
from podslice.agent.owner import Owner
from podslice.agent.reloading import Reloading
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.nri import Connection, Launch, RuntimeLink, run_plugin
from podslice.agent.runtime.plugin import AgentPlugin
from podslice.agent.settings import AgentSettings
from podslice.agent.statefolder import make_private, state_problem
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.local import status_of
from podslice.agent.status.metrics import Metrics, MetricsPage
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.requests import MoveHandlers, Send, serve_local
from podslice.agent.status.statusport import require_token, status_routes
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.agent.upkeep import Upkeep
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.devices import Device
from podslice.service.health import Check, Health, Heartbeats, liveness, readiness
from podslice.service.http.get_server import WebServer, metrics_routes
from podslice.service.supervise import Supervisor
from podslice.status.status import AgentStatus, Drift
from podslice.values.errors import InputError

Loop = Callable[[], Awaitable[None]]
_SOURCE_SECONDS = 10.0


@dataclass(kw_only=True, eq=False)
class Agent:
    """One agent process, which `agent.wiring.wire` makes. `run` serves until it is stopped; with `observe` it decides
    on a throw-away state, reports, and changes nothing. `loops` run until then, by name."""

    settings: AgentSettings
    node_name: str
    observe: bool
    scratch: tempfile.TemporaryDirectory[str] | None
    tree: CgroupTree
    reporter: AgentReporter
    metrics: Metrics
    page: MetricsPage
    configured: ConfiguredSources
    sources: Sources
    journal: NodeJournal
    owner: Owner
    resizing: Resizing
    moving: PlanExecutor
    guards: NodeGuards | None
    plugin: AgentPlugin
    link: RuntimeLink
    refusals: Refusals | None
    driver: Driver | None
    devices: DevicePlugins | None
    listed_devices: Callable[[], Mapping[str, tuple[Device, ...]]]
    upkeep: Upkeep
    write_watcher: WriteWatcher
    reloading: Reloading
    usage: SystemUsageRecorder | None
    observed: ObservedKubelet | None
    live: LiveNodeSource
    heartbeats: Heartbeats
    supervisor: Supervisor
    loops: Mapping[str, Loop]
    stand_in: StandIn | None
    launch: Launch
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    web_port: int = 0
    status_port: int = 0
    _warned: list[str] = field(default_factory=list)
    _started: float = field(default_factory=time.time)

    # Life

    async def run(self) -> None:
        """Serve until `stopping` is set or a signal comes. Raises `InputError` for an address that cannot be had."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.request)
        async with AsyncExitStack() as stack:
            if self.scratch is not None:
                stack.callback(self.scratch.cleanup)
            self._make_private()
            self._lock(stack)
            stack.push_async_callback(self.configured.close)
            await self._listen(stack)
            if self.guards is not None:
                stack.callback(self.guards.restore)
            if self.usage is not None:
                stack.callback(self.usage.save)
            self._start_loops()
            stack.push_async_callback(self.supervisor.stop)
            stack.push_async_callback(self.resizing.close)
            stack.push_async_callback(self.moving.close)
            notify("READY=1")
            await self.stopping.wait()
            notify("STOPPING=1")

    def _make_private(self) -> None:
        """Raises `InputError` where there can be no state directory."""
        if self.observe:
            return
        try:
            remark = make_private(self.owner.directory)
        except OSError as error:
            raise InputError(
                f"{self.owner.directory}: cannot be used: {error.strerror}", path="stateDirectory"
            ) from None
        if remark:
            self.reporter.trouble("stateDirectory", remark)

    def _lock(self, stack: AsyncExitStack) -> None:
        """Raises `InputError` where another agent has the state directory."""
        if self.observe:
            return
        lock = DirectoryLock(self.owner.directory)
        try:
            lock.take()
        except OSError as error:
            self.reporter.trouble("stateDirectory", f"{self.owner.directory} cannot be locked: {error.strerror}")
        stack.callback(lock.release)

    async def _listen(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        address = settings.address()
        if address is not None:
            web = WebServer(metrics_routes(self.page.text, self.healthy, self.ready))
            self.web_port = await _listening("metricsAddress", settings.metrics_address, lambda: web.start(*address))
            stack.push_async_callback(web.close)
        await self._listen_for_status(stack)
        if settings.status_socket:
            file = SocketFile(Path(settings.status_socket))
            moves = MoveHandlers(self.moving)
            handlers = {"node": self._tell_node, "moves": moves.moves, "undo": moves.undo}
            server = await _listening(
                "statusSocket",
                str(file.path),
                lambda: serve_local(file, self.status, handlers, trouble=self.reporter.trouble),
            )
            stack.callback(file.remove)
            stack.callback(server.close)
        await self._serve_pod_resources(stack)
        if self.devices is not None:
            await _listening("devicePlugins", settings.device_plugins, self.devices.start)
            stack.push_async_callback(self.devices.close)
        if self.driver is not None:
            await _listening("dra.plugins", self.driver.settings.plugins, self.driver.start)
            stack.push_async_callback(self.driver.close)

    async def _serve_pod_resources(self, stack: AsyncExitStack) -> None:
        """Where the agent stands in for the kubelet, clients find it as soon as it can answer. A dry run takes nobody's
        place."""
        settings = self.settings
        path, kubelet = Path(settings.pod_resources_socket), Path(settings.pod_resources_upstream)
        if not settings.pod_resources_socket or (settings.stands_in and self.observe):
            return
        if self.stand_in is not None:
            path, kubelet = self.stand_in.own, self.stand_in.kept
            await _listening("podResourcesSocket", str(path), self.stand_in.make_folder)
        resources = PodResources(
            self.owner,
            self.metrics.pod_resources,
            devices=self.listed_devices,
            kubelet=KubeletResources(kubelet) if settings.pod_resources_upstream else None,
            trouble=self.reporter.trouble,
        )
        await _listening("podResourcesSocket", str(path), lambda: resources.start(path))
        stack.push_async_callback(resources.close)
        if self.stand_in is not None:
            stack.callback(self.stand_in.leave)

    async def _listen_for_status(self, stack: AsyncExitStack) -> None:
        settings, address = self.settings, self.settings.status_listener()
        if address is None:
            return
        routes = status_routes(self.owner, self.tree, status=self.status, live=self.live.tell)
        web = WebServer(routes, refusal=require_token(settings.status_token_file))
        self.status_port = await _listening("statusAddress", settings.status_address, lambda: web.start(*address))
        stack.push_async_callback(web.close)

    async def _tell_node(self, request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        return self.live.tell()

    def _start_loops(self) -> None:
        self.supervisor.start("runtime", self._serve_runtime)
        every = self.settings.reconcile_seconds
        beat = partial(self.heartbeats.beat, "reconcile", every)
        self.supervisor.start("reconcile", partial(self.upkeep.run, every, beat))
        self.supervisor.start("watchdog", self._watchdog)
        self.supervisor.start("healing", partial(heal, self.owner.admitting, self.link.close))
        for name, loop in self.loops.items():
            self.supervisor.start(name, loop)
        if self.refusals is not None:
            self.refusals.start(self.supervisor)
        if self.stand_in is not None:
            self.supervisor.start("podResources", partial(self.stand_in.run, self.reporter.trouble))

    async def _serve_runtime(self) -> None:
        """Wait for the sources' pods, as long as that makes sense, then serve the runtime: for ever, or until the
        runtime that started us has gone."""
        try:
            async with asyncio.timeout(_SOURCE_SECONDS):
                while not self.sources.ready:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            for source in self.sources.sources:
                if not source.ready:
                    self.reporter.trouble(source.name, "no list of pods yet; going on with what is known")
        await run_plugin(self.plugin, self.launch, connected=self._connected, disconnected=self._disconnected)
        self.stopping.set()
        await asyncio.Event().wait()

    def _connected(self, connection: Connection) -> None:
        self.link.connection, self.link.problem = connection, ""
        if self.refusals is not None:
            self.refusals.wake()
        self.metrics.runtime_connected()
        self.reporter.log.info("connected", runtime=self.plugin.runtime)
        for warning in self.plugin.warnings:
            if warning not in self._warned:
                self._warned.append(warning)
                self.reporter.log.warning("runtime", warning=warning)
        notify(f"STATUS=serving {self.plugin.runtime}")

    def _disconnected(self, reason: str) -> None:
        """Said once for every reason: the tries go on for ever."""
        self.link.connection = None
        self.metrics.connected.set(0)
        if reason != self.link.problem:
            self.reporter.log.warning("disconnected", reason=reason)
        self.link.problem = reason

    async def reconcile(self) -> list[Drift]:
        """One pass over everything, and what it found."""
        return await self.upkeep.look()

    async def _watchdog(self) -> None:
        """A sign of life while the loop turns."""
        interval = watchdog_interval()
        while True:
            if interval is not None:
                notify("WATCHDOG=1")
            await asyncio.sleep(interval or 1.0)

    # What it says about itself

    def checks(self) -> list[Check]:
        """All that must be well for pods to be served as configured."""
        missing = "not registered with the runtime" + (f": {self.link.problem}" if self.link.problem else "")
        return [
            Check("runtime", "" if self.link.is_up() else missing),
            Check("state", state_problem(self.owner.directory)),
            Check("safe mode", self.owner.safe_mode),
            *(Check(one.name, one.cause if one.ready else _no_list(one)) for one in self.sources.sources),
            *([] if self.stand_in is None else [Check("podResources", self.stand_in.problem)]),
            Check("loops", self.supervisor.problem() or self.heartbeats.problem(), restart_mends=True),
        ]

    def healthy(self) -> Health:
        """What `/healthz` says."""
        return liveness(self.checks())

    def ready(self) -> Health:
        """What `/readyz` says."""
        return readiness(self.checks())

    def status(self) -> AgentStatus:
        return status_of(
            self.owner,
            self.upkeep.drifts,
            node=self.node_name,
            machine=self.owner.machine.name,
            runtime=self.plugin.runtime,
            warnings=tuple(self.plugin.warnings),
            connected=self.link.is_up(),
            observe=self.observe,
            started_at=self._started,
            rejected=() if self.refusals is None else tuple(self.refusals.rejected),
            ready="; ".join(f"{check.name}: {check.problem}" for check in self.checks() if check.problem),
        )


def _no_list(source: PodSource) -> str:
    return "no list of pods yet" + (f": {source.cause}" if source.cause else "")


async def _listening(field: str, where: str, listen: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await listen()
    except (OSError, RuntimeError) as error:
        raise InputError(f"{where}: cannot be used: {error}", path=field, remedy="free it or choose another") from None
