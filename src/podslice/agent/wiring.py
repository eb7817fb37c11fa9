"""The parts of the agent, and what hears what.

kubelet, API server, manifests ──> sources of pods ──┐
container runtime <──> NRI plugin ───────────────────┤
DRA driver, device plugins ──> claims, devices ──────┤
                                                     v
                  owner: admission, placements, updates due
                                                     │ NodeEvents
   cgroups, container files <── resizes, moves, upkeep, guards
   API server, kubelet's clients <── reports, status, metrics
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from podslice.agent.admitting import Admitting, NodeSetup
from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiServer, ApiSource
from podslice.agent.api_server.checkpoint import Checkpoint
from podslice.agent.api_server.refusals import Refusals
from podslice.agent.api_server.tenantevents import TenantEvents
from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.cgroups.write_watcher import WriteWatcher
from podslice.agent.contract import NodeEvents, PodFacts, Reporter
from podslice.agent.daemon import Agent, Loop
from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.devices.observeddevices import ObservedDevices
from podslice.agent.dra.cdi import CDIFiles
from podslice.agent.dra.claimfiles import ClaimFiles
from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.dra.driver import ClaimsServer, Driver
from podslice.agent.dra.reservations import Reservations
from podslice.agent.guards.guardsfirst import RequiredGuards
from podslice.agent.guards.isolationmetrics import IsolationMetrics
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.hotplug import MachineSource, MachineWatch
from podslice.agent.journal import NodeJournal
from podslice.agent.kubelet.arriving import Awaiting
from podslice.agent.kubelet.configuredsources import ConfiguredSources, Trouble
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.kubelet.sources import Sources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.moves.automatic_defrag import AutomaticDefrag
from podslice.agent.moves.memory_moves import MemoryMoves, RunInThread, free_memory
from podslice.agent.moves.move_rules import ThreadReader, Threads, kernel_release
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.moves.running_move import MoveRunner
from podslice.agent.owner import Owner
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.records import NodeRecords
from podslice.agent.reloading import Reloading
from podslice.agent.reporter import JournalStream, ServiceStreams
from podslice.agent.resize.actuator import Actuator
from podslice.agent.resize.cgroup_writes import Cgroups, NoCgroups, TreeCgroups
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.resize.resize_requests import NoSpecifications, ResizeRequests, Specifications
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Launch, RuntimeLink, launch_from_environment
from podslice.agent.runtime.plugin import AgentPlugin, Timer
from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.agent.settings import AgentSettings, ClusterSettings, DRASettings, LoadedSettings
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.metrics import Metrics, MetricsPage
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.statusport import sees_the_node
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.agent.updates import Write
from podslice.agent.upkeep import UpdateWriter, Upkeep
from podslice.host.boot import Boot
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.isolation.kernel_facts import IsolationSources
from podslice.machine.devices import Device
from podslice.machine.model import Machine
from podslice.service.apievents import ApiEvents
from podslice.service.health import Heartbeats
from podslice.service.identity import Identity
from podslice.service.podaccess import pod_namespace
from podslice.service.supervise import Supervisor
from podslice.version import running_version

NO_FACTS, NO_SPECIFICATIONS = GatheredFacts(), NoSpecifications()


class ClaimSetup(NamedTuple):
    """The folder of CDI files, and `users`: returns the UIDs of the pods that may use a claim, by the claim's UID."""

    cdi: Path
    users: Callable[[str], frozenset[str]]


class WiredNode(NamedTuple):
    """The decisions of one node."""

    owner: Owner
    events: NodeEvents
    requests: ResizeRequests


def wire_node(
    setup: NodeSetup,
    reporter: Reporter,
    *,
    records: NodeRecords | None = None,
    facts: PodFacts = NO_FACTS,
    journal: NodeJournal | None = None,
    claims: ClaimSetup | None = None,
    resizes: Specifications = NO_SPECIFICATIONS,
    clock: Callable[[], float] = time.monotonic,
) -> WiredNode:
    """Make the owner of a node and what it is made of. `resizes` finds the specifications by which resizes are carried
    out."""
    events, records = NodeEvents(), records or NodeRecords()
    admitting = Admitting(setup, reporter, journal or NodeJournal(version=""))
    requests = ResizeRequests(admitting, records, resizes)
    ledger = None
    if claims is not None:
        ledger = ClaimLedger(
            admitting, ClaimFiles(setup.directory), CDIFiles(claims.cdi), reporter, records,
            users=claims.users, changed=events.claims_changed,
        )  # fmt: skip
    owner = Owner(setup, admitting, records, reporter, events, facts, claims=ledger, requests=requests, clock=clock)
    events.claims_changed.add(owner.check_pool)
    return WiredNode(owner, events, requests)


def wire_resizes(
    node: WiredNode,
    cgroups: Cgroups,
    *,
    leaving: MemoryMigration | None,
    threads: Threads | None,
    clock: Callable[[], float] = time.monotonic,
    run_in_thread: RunInThread = asyncio.to_thread,
) -> Resizing:
    """Make what carries out resizes. `leaving` is None where memory stays on the NUMA nodes that a pod leaves."""
    owner, events, requests = node
    actuator = Actuator(
        owner, events, requests, cgroups, memory=leaving, threads=threads, run_in_thread=run_in_thread, clock=clock
    )
    resizing = Resizing(owner, events, requests, actuator, clock=clock)
    events.room_freed.add(resizing.room_freed)
    events.policy_changed.add(resizing.policy_changed)
    return resizing


def wire_plugin(
    node: WiredNode,
    sources: Sources,
    files: ContainerFiles,
    timer: Timer,
    *,
    settle: Callable[[str], None],
    write: Write,
    ended: Callable[[Identity], bool],
    resizing: Resizing | None = None,
    guards: RequiredGuards | None = None,
    observe: bool = False,
) -> AgentPlugin:
    """Make what answers the runtime, and keeps the containers' files."""
    plugin = AgentPlugin(
        node.owner, sources, files, timer,
        settle=settle, write=write, ended=ended, resizing=resizing, guards=guards, observe=observe,
    )  # fmt: skip
    node.events.pinning_changed.add(plugin.queue_file)
    if resizing is not None and not observe:
        node.events.change_finished.add(plugin.write_file)
    return plugin


def wire(
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
) -> Agent:
    """Make a whole agent. With `observe` it decides on a throw-away state, reports, and changes nothing. `read` is
    called for the settings at SIGHUP."""
    settings, records, link = loaded.agent, NodeRecords(), RuntimeLink()
    name = settings.sources.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()
    tree = tree or CgroupTree(settings.cgroup_root)
    scratch = tempfile.TemporaryDirectory(prefix="podslice-observe-") if observe else None
    api = api if api is not None else HTTPApiServer() if settings.sources.api_server else None
    written = None if observe else api

    # What is reported
    metrics = Metrics(settings.profile)
    api_events = None if written is None or not settings.events else ApiEvents(written, name)
    tenant_events = None if api_events is None else TenantEvents(api_events, partial(_identities, records))
    reporter = AgentReporter(tenant_events, metrics=metrics, explains=written is not None)
    trouble = reporter.trouble
    supervisor = Supervisor(partial(_report_restart, reporter))

    # What is known of pods
    configured = ConfiguredSources(settings.sources, name, api=api, trouble=trouble)
    annotation = settings.sources.annotation_counts
    sources = Sources(configured.in_order(), wait=settings.sources.wait_seconds, annotation=annotation)
    files = ContainerFiles(Path(settings.container_files) if settings.container_files and not observe else None)
    awaiting = None if written is None or configured.api_source is None else Awaiting(configured.api_source, name)

    # Who decides
    journal = _journal(settings.cluster, observe=observe)
    reservations = _reservations(settings.dra, records, written, trouble)
    node = wire_node(
        _setup(loaded, machine, scratch.name if scratch else settings.state_directory, boot), reporter,
        records=records, facts=GatheredFacts(sources, files, tree, awaiting), journal=journal,
        claims=_claim_setup(settings.dra, reservations), resizes=sources,
    )  # fmt: skip
    owner, events = node.owner, node.events

    # What changes running containers
    reconciler = Reconciler(owner, tree, repair=not observe, repair_limits=settings.limits == "repair")
    cgroups = NoCgroups() if observe else TreeCgroups(tree, reconciler.write)
    free = partial(free_memory, DiskFileSystem("/sys"))
    threads = ThreadReader(tree, DiskFileSystem("/proc") if sees_the_node() else None)
    resizing = wire_resizes(node, cgroups, leaving=None if observe else MemoryMigration(tree, free), threads=threads)
    running_moves = MoveRunner(
        owner, events, resizing, cgroups, MemoryMoves(tree, free), find=sources.find, threads=threads,
        kernel=kernel_release(os.uname().release),
    )  # fmt: skip
    moving = PlanExecutor(owner, running_moves, observe=observe)
    due = UpdateWriter(owner, reconciler, observe=observe)
    watch = None if machine_source is None else MachineWatch(
        owner, machine_source, write=cgroups.write, place=due.write
    )  # fmt: skip
    guards = _guards(node, kernel, tree, boot, metrics, reporter, observe=observe)
    vanished = VanishedSandboxes(owner, tree)

    # Who is answered
    plugin = wire_plugin(
        node, sources, files, reporter, settle=reconciler.settle, write=reconciler.write, ended=vanished.has_ended,
        resizing=resizing, guards=guards, observe=observe,
    )  # fmt: skip
    refusals = None if written is None or awaiting is None else Refusals(
        written, awaiting, owner, reporter, find=sources.find, connected=link.is_up,
        early=not annotation, fail=settings.refusals == "fail",
    )  # fmt: skip
    driver = _driver(settings.dra, node, reservations, written, name, metrics)
    devices = _device_plugins(settings.device_plugins, owner, metrics, trouble)
    listed = partial(_listed_devices, devices)
    write_watcher = WriteWatcher(owner, tree, writes, trouble=trouble)
    upkeep = Upkeep(
        owner, reconciler, vanished, write_watcher, reporter, due=due, machine=watch, guards=guards, observe=observe,
        passed=metrics.last_reconcile.set_to_current_time, again=plugin.write_again,
    )  # fmt: skip
    reloading = Reloading(owner, loaded, read, say=reporter.policy_read)

    # What hears what, after what `wire_node`, `wire_resizes` and `wire_plugin` have added
    events.updates_due.add(due.wake)
    if refusals and configured.api_source:
        events.admissions_changed.add(refusals.wake)
        configured.api_source.pods_changed.add(refusals.wake)
    events.policy_changed.add(*([watch.forget] if watch else []))
    events.state_opened.add(*([devices.attach] if devices else []))

    # What runs
    isolation, usage = _isolation(node, kernel, tree), _usage(node, kernel, tree, trouble, observe=observe)
    observed = _observed(loaded, machine, configured.api_source, trouble) if observe else None
    loops = {"placing": due.run, "resizes": resizing.run, "policy": reloading.run, **dict(configured.loops())}
    automatic = None if observe else AutomaticDefrag(owner, moving)
    optional = {"defrag": automatic, "machine": watch, "isolation": isolation, "usage": usage, "events": api_events,
                "observed": observed}  # fmt: skip
    loops |= {key: part.run for key, part in optional.items() if part is not None}
    loops |= dict(driver.loops()) if driver else {}
    if settings.cluster and (observed or not observe):
        loops |= dict(service_loops(settings.cluster, observed.journal if observed else journal, api, name, trouble))
    loops |= dict(_topology_loops(settings, owner, journal, written, name, trouble))
    return Agent(
        settings=settings, node_name=name, observe=observe, scratch=scratch, tree=tree, reporter=reporter,
        metrics=metrics, page=MetricsPage(metrics, owner, resizes=resizing, isolation=isolation),
        configured=configured, sources=sources, journal=journal, owner=owner, resizing=resizing, moving=moving,
        guards=guards, plugin=plugin, link=link, refusals=refusals, driver=driver, devices=devices,
        listed_devices=listed, upkeep=upkeep, write_watcher=write_watcher, reloading=reloading, usage=usage,
        observed=observed,
        live=LiveNodeSource(owner, name, listed, sources.find), heartbeats=Heartbeats(clock),
        supervisor=supervisor, loops=loops,
        stand_in=StandIn(Path(settings.pod_resources_socket)) if settings.stands_in and not observe else None,
        launch=launch or _launch(settings),
    )  # fmt: skip


# Parts that the settings may leave out


def _setup(loaded: LoadedSettings, machine: Machine, directory: str, boot: Boot | None) -> NodeSetup:
    settings = loaded.agent
    return NodeSetup(
        Path(directory), machine, loaded.config, loaded.policy, settings.profile, boot,
        real_devices=bool(settings.device_plugins), move_strangers=settings.strangers == "move",
    )  # fmt: skip


def _launch(settings: AgentSettings) -> Launch:
    name, index, path = settings.plugin_name, settings.plugin_index, settings.nri_socket
    return launch_from_environment(os.environ, name=name, index=index, path=path)


def _journal(cluster: ClusterSettings | None, *, observe: bool) -> NodeJournal:
    """Kept only where a service follows: a dry run decides for no one."""
    followed = cluster is not None and not observe
    return NodeJournal(
        version=running_version() if followed else "",
        honours=cluster is not None and cluster.plan == "honour",
    )


def _reservations(
    dra: DRASettings | None, records: NodeRecords, api: ApiServer | None, trouble: Trouble
) -> Reservations | None:
    """A dry run prepares no claims."""
    if dra is None or api is None:
        return None
    return Reservations(records.claims, cast(ClaimsServer, api), Path(dra.kubelet_state), trouble=trouble)


def _claim_setup(dra: DRASettings | None, reservations: Reservations | None) -> ClaimSetup | None:
    return None if dra is None or reservations is None else ClaimSetup(Path(dra.cdi), reservations.find_pods)


def _driver(
    dra: DRASettings | None,
    node: WiredNode,
    reservations: Reservations | None,
    api: ApiServer | None,
    name: str,
    metrics: Metrics,
) -> Driver | None:
    ledger = node.owner.claims
    if dra is None or ledger is None or reservations is None:
        return None
    return Driver(dra, node.owner, ledger, reservations, cast(ClaimsServer, api), name, prepared=metrics.claim_prepared)


def _guards(
    node: WiredNode,
    kernel: KernelFiles | None,
    tree: CgroupTree,
    boot: Boot | None,
    metrics: Metrics,
    reporter: AgentReporter,
    *,
    observe: bool,
) -> NodeGuards | None:
    """None where the kernel's files are not ours to look at."""
    if kernel is None:
        return None
    mount, release = kernel.path_of(tree.root), kernel_release(os.uname().release)
    store = SavedStore(node.owner.directory, boot.id if boot is not None else "", cgroups=mount)
    return NodeGuards(node.owner, kernel, store, metrics, said=reporter, mount=mount, observe=observe, kernel=release)


def _isolation(node: WiredNode, kernel: KernelFiles | None, tree: CgroupTree) -> IsolationMetrics | None:
    if kernel is None:
        return None
    proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(tree.root)
    sources = IsolationSources(proc, cgroups, DiskFileSystem(kernel.root / "sys"), {})
    return IsolationMetrics(node.owner, sources, threads=sees_the_node())


def _usage(
    node: WiredNode, kernel: KernelFiles | None, tree: CgroupTree, trouble: Trouble, *, observe: bool
) -> SystemUsageRecorder | None:
    """A dry run records nothing."""
    if kernel is None or observe:
        return None
    proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(tree.root)
    return SystemUsageRecorder(node.owner, cgroups, proc, trouble=trouble)


def _observed(
    loaded: LoadedSettings, machine: Machine, source: ApiSource | None, trouble: Trouble
) -> ObservedKubelet | None:
    """In a dry run the kubelet decides, and the cluster's service gets its decisions."""
    cluster = loaded.agent.cluster
    if cluster is None or source is None:
        return None
    folder = Path(cluster.kubelet_directory)
    return ObservedKubelet(
        folder, machine, loaded.config, profile=loaded.agent.profile, version=running_version(),
        pods=lambda: list(source.pods), ready=lambda: source.ready, trouble=trouble,
        devices=ObservedDevices(folder).read,
    )  # fmt: skip


def _device_plugins(folder: str, owner: Owner, metrics: Metrics, trouble: Trouble) -> DevicePlugins | None:
    if not folder:
        return None
    return DevicePlugins(
        Path(folder), lambda: owner.node, trouble=trouble,
        registered=metrics.plugin_registered, allocated=metrics.plugin_allocated,
    )  # fmt: skip


def service_loops(
    cluster: ClusterSettings, journal: NodeJournal, api: ApiServer | None, node: str, trouble: Trouble
) -> Iterator[tuple[str, Loop]]:
    """Yield what keeps the services of the cluster and the node's NodeState object informed."""

    def stream(address: str, name: str) -> JournalStream:
        return JournalStream(
            address, journal, node=node, token_file=Path(cluster.token_file),
            ca_file=Path(cluster.ca_file) if cluster.ca_file else None,
            server_name=cluster.server_name or name, trouble=trouble,
        )  # fmt: skip

    for target in cluster.services:
        yield f"cluster {target}", ServiceStreams(target, stream, trouble=trouble).run
    if cluster.checkpoint and api is not None:
        yield "nodeState", Checkpoint(api, node, journal, trouble=trouble).run


def _topology_loops(
    settings: AgentSettings, owner: Owner, journal: NodeJournal, api: ApiServer | None, node: str, trouble: Trouble
) -> Iterator[tuple[str, Loop]]:
    """Yield what keeps the node's NodeResourceTopology, and the Lease that says so."""
    if api is None or not settings.writes_topology:
        return
    lease = LeaseName(pod_namespace() or settings.namespace, node)
    topology = TopologyObject(
        api, node, lambda: owner.node, journal, merges=settings.node_resource_topology == "merge",
        version=running_version(), lease=str(lease), trouble=trouble,
    )  # fmt: skip
    yield "nodeResourceTopology", topology.run
    yield "lease", TopologyLease(api, lease, topology, trouble=trouble).run


def _identities(records: NodeRecords) -> list[Identity]:
    return [pod.identity for pod in records.pods.values()]


def _report_restart(reporter: AgentReporter, name: str, why: str) -> None:
    reporter.trouble("loop", f"{name} is started again: {why}")


def _listed_devices(devices: DevicePlugins | None) -> Mapping[str, tuple[Device, ...]]:
    return {} if devices is None else devices.listed
