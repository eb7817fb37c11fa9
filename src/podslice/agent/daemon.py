"""Putting the agent together: who talks to whom, what is served where, and how it starts and stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.api_server.checkpoint import Checkpoint
from podslice.agent.api_server.refusals import Refusals
from podslice.agent.api_server.tenantevents import TenantEvents
from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.agent.cgroups.reconcile import Reconciler, pinned_in
from podslice.agent.cgroups.write_watcher import WriteWatcher
from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.devices.observeddevices import ObservedDevices
from podslice.agent.dra.driver import ClaimsServer, Driver
from podslice.agent.exclusive import DirectoryLock, SocketFile
from podslice.agent.guards.isolationmetrics import IsolationMetrics
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.healing import heal
from podslice.agent.hotplug import MachineSource, MachineWatch
from podslice.agent.journal import NodeJournal
from podslice.agent.kubelet.configuredsources import ConfiguredSources
from podslice.agent.kubelet.kubeletresources import KubeletResources
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.sources import PodSource, Sources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.moves.automatic_defrag import AutomaticDefrag
from podslice.agent.moves.memory_moves import MemoryMoves, free_memory
from podslice.agent.moves.move_rules import ThreadReader, kernel_release
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.moves.running_move import MoveRunner
from podslice.agent.notify import notify, watchdog_interval
from podslice.agent.owner import Owner
from podslice.agent.reloading import Reloading
from podslice.agent.reporter import JournalStream, ServiceStreams
from podslice.agent.resize.actuator import Actuator
from podslice.agent.resize.cgroup_writes import Cgroups, NoCgroups, TreeCgroups
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Connection, Launch, launch_from_environment, run_plugin
from podslice.agent.runtime.plugin import AgentPlugin
from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.agent.settings import AgentSettings, ClusterSettings, LoadedSettings
from podslice.agent.statefolder import make_private, state_problem
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.local import status_of
from podslice.agent.status.metrics import Metrics
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.requests import MoveHandlers, Send, serve_local
from podslice.agent.status.statusport import require_token, sees_the_node, status_routes
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.agent.upkeep import Upkeep
from podslice.host.boot import Boot
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.isolation.kernel_facts import IsolationSources
from podslice.machine.devices import Device
from podslice.machine.model import Machine
from podslice.service.apievents import ApiEvents
from podslice.service.health import Check, Health, Heartbeats, liveness, readiness
from podslice.service.http.get_server import WebServer, metrics_routes
from podslice.service.identity import Identity
from podslice.service.podaccess import pod_namespace
from podslice.service.supervise import Supervisor
from podslice.status.status import AgentStatus, Drift
from podslice.values.errors import InputError
from podslice.version import running_version

_SOURCE_SECONDS = 10.0


def _journal(cluster: ClusterSettings | None, *, observe: bool) -> NodeJournal:
    """Kept only where somebody follows: a dry run decides for nobody."""
    followed = cluster is not None and not observe
    return NodeJournal(
        version=running_version() if followed else "",
        honours=cluster is not None and cluster.plan == "honour",
    )


class Agent:
    """One agent process. `run` serves until it is stopped; with `observe` it decides on a throw-away state, reports,
    and changes nothing. `read` reads the settings again, at SIGHUP."""

    def __init__(
        self,
        loaded: LoadedSettings,
        machine: Machine,
        *,
        observe: bool = False,
        api: ApiServer | None = None,
        launch: Launch | None = None,
        tree: CgroupTree | None = None,
        machine_source: MachineSource | None = None,
        writes: FileWrites | None = None,
        kernel: KernelFiles | None = None,
        boot: Boot | None = None,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[], LoadedSettings] | None = None,
    ) -> None:
        self.settings = settings = loaded.agent
        self.observe = observe
        self.reporter = AgentReporter()
        self.loops = Supervisor(lambda name, why: self.reporter.trouble("loop", f"{name} is started again: {why}"))
        self.node_name = settings.sources.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()
        self._chosen = ConfiguredSources(settings.sources, self.node_name, api=api, trouble=self.reporter.trouble)
        self.sources = Sources(
            self._chosen.in_order(),
            wait=settings.sources.wait_seconds,
            annotation=settings.sources.annotation_counts,
        )
        self._scratch = tempfile.TemporaryDirectory(prefix="podslice-observe-") if observe else None
        folder = Path(settings.container_files) if settings.container_files and not observe else None
        files = ContainerFiles(folder)
        self.journal = _journal(settings.cluster, observe=observe)
        self.owner = self._owning(loaded, machine, files, boot)
        self.driver = self._driving()
        self.refusals = self._refusing()
        self.observed = self._observing(loaded, machine)
        self.metrics = self.reporter.metrics = Metrics(self.owner)
        self.tree = tree or CgroupTree(settings.cgroup_root)
        self.reconciler = Reconciler(
            self.owner, self.tree, repair=not observe, repair_limits=settings.limits == "repair"
        )
        self.vanished = VanishedSandboxes(self.owner, self.tree)
        cgroups = NoCgroups() if observe else TreeCgroups(self.tree, self.reconciler.write)
        self.resizing = self._carrying_out(cgroups)
        self.moving = PlanExecutor(self.owner, self._running_moves(cgroups), observe=observe)
        self.guards = self._guarding(kernel, boot)
        self.isolation = self._sampling(kernel)
        self.usage = self._recording(kernel)
        self.write_watcher = WriteWatcher(self.owner, self.tree, writes, trouble=self.reporter.trouble)
        self.plugin = self._answering(files)
        self.machine_watch = self._watching(machine_source)
        self.upkeep = self._keeping_up()
        self.drifts = self.upkeep.drifts
        self.reloading = Reloading(
            self.owner, loaded, read or (lambda: loaded), say=self._say_policy, then=self._policy_changed
        )
        self.devices = self._devices(settings)
        self._live = LiveNodeSource(self.owner, self.node_name, self._listed_devices, self.sources.find)
        self.web_port = 0
        self.status_port = 0
        self._stand_in: StandIn | None = None
        self.stopping = asyncio.Event()
        self._launch = launch or launch_from_environment(
            os.environ, name=settings.plugin_name, index=settings.plugin_index, path=settings.nri_socket
        )
        self._connection: Connection | None = None
        self._why_not = ""
        self._warned: list[str] = []
        self._started = time.time()
        self._turning = Heartbeats(clock)

    def _owning(self, loaded: LoadedSettings, machine: Machine, files: ContainerFiles, boot: Boot | None) -> Owner:
        """In a dry run, on a folder that is thrown away."""
        return Owner(
            Path(self._scratch.name if self._scratch else self.settings.state_directory),
            machine,
            loaded.config,
            reporter=self.reporter,
            profile=self.settings.profile,
            policy=loaded.policy,
            move_strangers=self.settings.strangers == "move",
            real_devices=bool(self.settings.device_plugins),
            find=self.sources.find,
            environment=files.environment,
            pod_limit=lambda identity: self.reconciler.pod_limit(identity),
            awaits=lambda uid: None if self.refusals is None else self.refusals.awaiting(uid),
            boot=boot,
            runs_on=lambda record: pinned_in(self.tree, record),
            journal=self.journal,
        )

    def _carrying_out(self, cgroups: Cgroups) -> Resizing:
        memory = None if self.observe else MemoryMigration(self.tree, partial(free_memory, DiskFileSystem("/sys")))
        actuator = Actuator(self.owner, cgroups, memory=memory, threads=self._threads())
        return Resizing(self.owner, self.sources, actuator)

    def _threads(self) -> ThreadReader:
        return ThreadReader(self.tree, DiskFileSystem("/proc") if sees_the_node() else None)

    def _answering(self, files: ContainerFiles) -> AgentPlugin:
        return AgentPlugin(
            self.owner,
            self.sources,
            files,
            self.reporter,
            settle=self.reconciler.settle,
            write=self.reconciler.write,
            ended=self.vanished.ended,
            resizing=self.resizing,
            guards=self.guards,
            observe=self.observe,
        )

    def _running_moves(self, cgroups: Cgroups) -> MoveRunner:
        return MoveRunner(
            self.owner,
            self.resizing,
            cgroups,
            MemoryMoves(self.tree, partial(free_memory, DiskFileSystem("/sys"))),
            find=self.sources.find,
            threads=self._threads(),
            kernel=kernel_release(os.uname().release),
        )

    def _watching(self, source: MachineSource | None) -> MachineWatch | None:
        """A node follows its machine while the policy asks for it."""
        if source is None:
            return None
        write = (lambda record, wanted: False) if self.observe else self.reconciler.write
        return MachineWatch(self.owner, source, write=write, place=lambda: self.upkeep.write_updates())

    def _keeping_up(self) -> Upkeep:
        return Upkeep(
            self.owner,
            self.reconciler,
            self.vanished,
            self.write_watcher,
            self.reporter,
            machine=self.machine_watch,
            guards=self.guards,
            observe=self.observe,
            passed=self.metrics.last_reconcile.set_to_current_time,
            again=self.plugin.write_again,
        )

    def _guarding(self, kernel: KernelFiles | None, boot: Boot | None) -> NodeGuards | None:
        """None where the kernel's files are not ours to look at."""
        if kernel is None:
            return None
        mount = kernel.path_of(self.tree.root)
        store = SavedStore(self.owner.directory, boot.id if boot is not None else "", cgroups=mount)
        return NodeGuards(
            self.owner,
            kernel,
            store,
            self.metrics,
            said=self.reporter,
            mount=mount,
            observe=self.observe,
            kernel=kernel_release(os.uname().release),
        )

    def _sampling(self, kernel: KernelFiles | None) -> IsolationMetrics | None:
        if kernel is None:
            return None
        proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(self.tree.root)
        sources = IsolationSources(proc, cgroups, DiskFileSystem(kernel.root / "sys"), {})
        sampler = IsolationMetrics(self.owner, sources, threads=sees_the_node())
        self.metrics.isolation = sampler.text
        return sampler

    def _recording(self, kernel: KernelFiles | None) -> SystemUsageRecorder | None:
        """A dry run records nothing."""
        if kernel is None or self.observe:
            return None
        proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(self.tree.root)
        return SystemUsageRecorder(self.owner, cgroups, proc, trouble=self.reporter.trouble)

    def _refusing(self) -> Refusals | None:
        """Without API server, and in a dry run, pods are refused at their containers and that is all."""
        api, source = self._chosen.api, self._chosen.api_source
        if api is None or source is None or self.observe:
            return None
        return Refusals(
            api,
            source,
            self.owner,
            self.reporter,
            node=self.node_name,
            find=self.sources.find,
            connected=lambda: self._connection is not None,
            early=not self.settings.sources.annotation_counts,
            fail=self.settings.refusals == "fail",
        )

    def _driving(self) -> Driver | None:
        """A dry run prepares nothing."""
        settings, api = self.settings.dra, self._chosen.api
        if settings is None or api is None or self.observe:
            return None
        return Driver(
            settings,
            self.owner,
            cast(ClaimsServer, api),
            self.node_name,
            prepared=lambda result, seconds: self.metrics.claim_prepares.labels(result).observe(seconds),
        )

    def _observing(self, loaded: LoadedSettings, machine: Machine) -> ObservedKubelet | None:
        """In a dry run the kubelet decides, and the cluster's service hears of that."""
        cluster, source = self.settings.cluster, self._chosen.api_source
        if cluster is None or source is None or not self.observe:
            return None
        return ObservedKubelet(
            Path(cluster.kubelet_directory),
            machine,
            loaded.config,
            profile=self.settings.profile,
            version=running_version(),
            pods=lambda: list(source.pods),
            ready=lambda: source.ready,
            trouble=self.reporter.trouble,
            devices=ObservedDevices(Path(cluster.kubelet_directory)).read,
        )

    def _devices(self, settings: AgentSettings) -> DevicePlugins | None:
        if not settings.device_plugins:
            return None
        plugins = DevicePlugins(
            Path(settings.device_plugins),
            lambda: self.owner.node,
            trouble=self.reporter.trouble,
            registered=lambda resource: self.metrics.plugin_registrations.labels(resource).inc(),
            allocated=lambda resource, seconds: self.metrics.plugin_allocations.labels(resource).observe(seconds),
        )
        self.owner.on_open = plugins.attach
        return plugins

    # Life

    async def run(self) -> None:
        """Serve until `stopping` is set or a signal comes. Raises `InputError` for an address that cannot be had."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.hear)
        async with AsyncExitStack() as stack:
            if self._scratch is not None:
                stack.callback(self._scratch.cleanup)
            self._make_private()
            self._lock(stack)
            stack.push_async_callback(self._chosen.close)
            await self._listen(stack)
            if self.guards is not None:
                stack.callback(self.guards.restore)
            if self.usage is not None:
                stack.callback(self.usage.save)
            self._start_loops()
            stack.push_async_callback(self.loops.stop)
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
            web = WebServer(metrics_routes(self.metrics.text, self.healthy, self.ready))
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
        if settings.stands_in:
            self._stand_in = StandIn(path)
            path, kubelet = self._stand_in.own, self._stand_in.kept
            await _listening("podResourcesSocket", str(path), self._stand_in.make_folder)
        resources = PodResources(
            self.owner,
            self.metrics.pod_resources,
            devices=self._listed_devices,
            kubelet=KubeletResources(kubelet) if settings.pod_resources_upstream else None,
            trouble=self.reporter.trouble,
        )
        await _listening("podResourcesSocket", str(path), lambda: resources.start(path))
        stack.push_async_callback(resources.close)
        if self._stand_in is not None:
            stack.callback(self._stand_in.leave)

    async def _listen_for_status(self, stack: AsyncExitStack) -> None:
        settings, address = self.settings, self.settings.status_listener()
        if address is None:
            return
        routes = status_routes(self.owner, self.tree, status=self.status, live=self._live.tell)
        web = WebServer(routes, refusal=require_token(settings.status_token_file))
        self.status_port = await _listening("statusAddress", settings.status_address, lambda: web.start(*address))
        stack.push_async_callback(web.close)

    async def _tell_node(self, request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        return self._live.tell()

    def _listed_devices(self) -> Mapping[str, tuple[Device, ...]]:
        return self.devices.listed if self.devices else {}

    def _start_loops(self) -> None:
        self.loops.start("runtime", self._serve_runtime)
        self.loops.start("placing", self.upkeep.place)
        every = self.settings.reconcile_seconds
        beat = partial(self._turning.beat, "reconcile", every)
        self.loops.start("reconcile", lambda: self.upkeep.run(every, beat))
        self.loops.start("resizes", self.resizing.run)
        self.loops.start("policy", self.reloading.run)
        if not self.observe:
            self.loops.start("defrag", AutomaticDefrag(self.owner, self.moving).run)
        self.loops.start("watchdog", self._watchdog)
        self.loops.start("healing", lambda: heal(self.owner.admitting, self._reconnect))
        for name, loop in self._chosen.loops():
            self.loops.start(name, loop)
        if self.machine_watch is not None:
            self.loops.start("machine", self.machine_watch.run)
        if self.isolation is not None:
            self.loops.start("isolation", self.isolation.run)
        if self.usage is not None:
            self.loops.start("usage", self.usage.run)
        for name, loop in () if self.driver is None else self.driver.loops():
            self.loops.start(name, loop)
        if self.refusals is not None:
            self.refusals.start(self.loops)
        if self._chosen.api is not None and self.settings.events and not self.observe:
            events = ApiEvents(self._chosen.api, self.node_name)
            self.reporter.events = TenantEvents(events, self._identities)
            self.loops.start("events", events.run)
        if self.observed is not None:
            self.loops.start("observed", self.observed.run)
        if (cluster := self.settings.cluster) and (self.observed is not None or not self.observe):
            self._start_telling(cluster, self.journal if self.observed is None else self.observed.journal)
        if self._chosen.api is not None and self.settings.writes_topology and not self.observe:
            self._start_topology(self._chosen.api)
        if self._stand_in is not None:
            stand_in = self._stand_in
            self.loops.start("podResources", lambda: stand_in.run(self.reporter.trouble))

    def _identities(self) -> list[Identity]:
        return [pod.identity for pod in self.owner.pods.values()]

    def _start_topology(self, api: ApiServer) -> None:
        """Keep the node's NodeResourceTopology, and the Lease that says so."""
        lease = LeaseName(pod_namespace() or self.settings.namespace, self.node_name)
        topology = TopologyObject(
            api,
            self.node_name,
            lambda: self.owner.node,
            self.journal,
            merges=self.settings.node_resource_topology == "merge",
            version=running_version(),
            lease=str(lease),
            trouble=self.reporter.trouble,
        )
        self.loops.start("nodeResourceTopology", topology.run)
        self.loops.start("lease", TopologyLease(api, lease, topology, trouble=self.reporter.trouble).run)

    def _start_telling(self, cluster: ClusterSettings, journal: NodeJournal) -> None:
        """Keep the services of the cluster and the node's object informed."""
        api, trouble = self._chosen.api, self.reporter.trouble

        def stream(address: str, name: str) -> JournalStream:
            return JournalStream(
                address,
                journal,
                node=self.node_name,
                token_file=Path(cluster.token_file),
                ca_file=Path(cluster.ca_file) if cluster.ca_file else None,
                server_name=cluster.server_name or name,
                trouble=trouble,
            )

        for target in cluster.services:
            self.loops.start(f"cluster {target}", ServiceStreams(target, stream, trouble=trouble).run)
        if cluster.checkpoint and api is not None:
            self.loops.start("nodeState", Checkpoint(api, self.node_name, journal, trouble=trouble).run)

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
        await run_plugin(self.plugin, self._launch, connected=self._connected, disconnected=self._disconnected)
        self.stopping.set()
        await asyncio.Event().wait()

    def _connected(self, connection: Connection) -> None:
        self._connection = connection
        self._why_not = ""
        if self.refusals is not None:
            self.refusals.wake()
        self.metrics.connected.set(1)
        self.metrics.connections.inc()
        self.reporter.log.info("connected", runtime=self.plugin.runtime)
        for warning in self.plugin.warnings:
            if warning not in self._warned:
                self._warned.append(warning)
                self.reporter.log.warning("runtime", warning=warning)
        notify(f"STATUS=serving {self.plugin.runtime}")

    def _reconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _disconnected(self, reason: str) -> None:
        """Said once for every reason: the tries go on for ever."""
        self._connection = None
        self.metrics.connected.set(0)
        if reason != self._why_not:
            self.reporter.log.warning("disconnected", reason=reason)
        self._why_not = reason

    def _say_policy(self, text: str) -> None:
        self.reporter.log.info("policy", text=text)
        self.reporter.events.emit_node("Normal", "PodslicePolicyRead", text)

    def _policy_changed(self) -> None:
        if self.machine_watch is not None:
            self.machine_watch.forget()

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
        missing = "not registered with the runtime" + (f": {self._why_not}" if self._why_not else "")
        return [
            Check("runtime", "" if self._connection is not None else missing),
            Check("state", state_problem(self.owner.directory)),
            Check("safe mode", self.owner.safe_mode),
            *(Check(one.name, one.cause if one.ready else _no_list(one)) for one in self.sources.sources),
            *([] if self._stand_in is None else [Check("podResources", self._stand_in.problem)]),
            Check("loops", self.loops.problem() or self._turning.problem(), restart_mends=True),
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
            self.drifts,
            node=self.node_name,
            machine=self.owner.machine.name,
            runtime=self.plugin.runtime,
            warnings=tuple(self.plugin.warnings),
            connected=self._connection is not None,
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
