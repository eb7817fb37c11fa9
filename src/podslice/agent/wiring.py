"""The parts of the agent, and which events each of them receives.

kubelet, API server, manifests ──> sources of pods ──┐
container runtime <──> NRI plugin ───────────────────┤
DRA driver, device plugins ──> claims, devices ──────┤
                                                     v
                  owner: admission, placements, updates due
                                                     │ NodeEvents
   cgroups, container files <── resizes, moves, passes, guards
   API server, kubelet's clients <── reports, status, metrics
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from podslice.agent.admitting import heal
from podslice.agent.api_server.apiserver import ApiServer, ApiSource
from podslice.agent.api_server.refusals import Refusals
from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.cgroups.write_watcher import WriteWatcher
from podslice.agent.contract import NodeEvents
from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.hotplug import MachineWatch
from podslice.agent.kubelet.arriving import Awaiting
from podslice.agent.kubelet.configuredsources import ConfiguredSources
from podslice.agent.kubelet.kubelet_release import DecidingRelease, choose_release, with_release
from podslice.agent.moves.automatic_defrag import AutomaticDefrag
from podslice.agent.node_wiring import wire_moves, wire_node, wire_plugin, wire_resizes
from podslice.agent.optional_parts import (
    cluster_loops,
    find_node_name,
    make_api_server,
    make_authority,
    make_claim_setup,
    make_container_files,
    make_device_plugins,
    make_driver,
    make_guards,
    make_isolation_metrics,
    make_journal,
    make_kubelet_release,
    make_launch,
    make_machine_watch,
    make_metrics_page,
    make_migration,
    make_observed_kubelet,
    make_refusals,
    make_reservations,
    make_stand_in,
    make_tenant_events,
    make_threads,
    make_usage_recorder,
    node_setup,
    topology_loops,
)
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.process.daemon import Agent, Loop, LoopGroup, LoopPart
from podslice.agent.process.endpoints import Endpoints
from podslice.agent.process.health import AgentHealth
from podslice.agent.process.host_access import HostAccess
from podslice.agent.process.notify import feed_watchdog
from podslice.agent.process.reloading import Reloading
from podslice.agent.records import NodeRecords
from podslice.agent.resize.cgroup_writes import NoCgroups, TreeCgroups
from podslice.agent.runtime.nri import Launch
from podslice.agent.runtime.runtime_link import RuntimeLink
from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.agent.settings import LoadedSettings
from podslice.agent.status.agent_status import AgentStatusSource
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.metrics import Metrics
from podslice.agent.status.report import AgentReporter
from podslice.agent.upkeep import UpdateWriter, Upkeep
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.model import Machine
from podslice.service.apievents import ApiEvents
from podslice.service.health import Heartbeats
from podslice.service.supervise import Supervisor


def wire(
    loaded: LoadedSettings,
    machine: Machine,
    host: HostAccess,
    *,
    observe: bool = False,
    api: ApiServer | None = None,
    launch: Launch | None = None,
    clock: Callable[[], float] = time.monotonic,
    read: Callable[[], LoadedSettings] | None = None,
    release: DecidingRelease | None = None,
) -> Agent:
    """Make a whole agent. With `observe` it decides on a throw-away state, reports, and changes nothing; `read` reads
    the settings again at SIGHUP; `release` is what was found of the kubelet beside it. Raises `InputError` for settings
    that cannot be used."""
    given, loaded = loaded, with_release(loaded, release := release or choose_release(loaded.agent, ""))
    settings, records, stopping = loaded.agent, NodeRecords(), asyncio.Event()
    name = find_node_name(settings.sources)
    tree, api = host.tree or CgroupTree(settings.cgroup_root), api or make_api_server(settings.sources)
    writable = None if observe else api  # a dry run writes no object

    # Metrics, events and the log
    metrics, heartbeats = Metrics(settings.profile), Heartbeats(clock)
    api_events = ApiEvents(writable, name) if writable is not None and settings.events else None
    reporter = AgentReporter(make_tenant_events(api_events, records), metrics=metrics, explains=writable is not None)
    trouble, supervisor = reporter.trouble, Supervisor(reporter.loop_restarted)

    # Facts about pods and containers
    configured = ConfiguredSources(settings.sources, name, api=api, trouble=trouble)
    sources = configured.combine()
    files = make_container_files(settings, observe=observe)
    awaiting = Awaiting(configured.api_source, name) if writable is not None and configured.api_source else None

    # Decisions
    scratch = tempfile.TemporaryDirectory(prefix="podslice-observe-") if observe else None
    folder = Path(scratch.name if scratch else settings.state_directory)
    journal = make_journal(settings.cluster, observe=observe)
    reservations = make_reservations(settings.dra, records, writable, trouble)
    node = wire_node(
        node_setup(loaded, machine, folder, host.boot), reporter, records=records, journal=journal, resizes=sources,
        facts=GatheredFacts(sources, files, tree, awaiting), claims=make_claim_setup(settings.dra, reservations),
    )  # fmt: skip
    owner, events = node.owner, node.events

    # Changes of running containers
    reconciler = Reconciler(owner, tree, repair=not observe, repair_limits=settings.limits == "repair")
    cgroups = NoCgroups() if observe else TreeCgroups(tree, reconciler.write)
    updates, threads = UpdateWriter(owner, reconciler, observe=observe), make_threads(tree)
    resizing = wire_resizes(node, cgroups, migration=make_migration(tree, observe=observe), threads=threads)
    executor = wire_moves(node, resizing, cgroups, tree, find=sources.find, threads=threads, observe=observe)
    guards = make_guards(owner, host, tree, metrics, reporter, observe=observe)

    # Calls of the runtime and of the kubelet
    vanished = VanishedSandboxes(owner, tree)
    plugin = wire_plugin(
        node, sources, files, reporter, settle=reconciler.settle, write=reconciler.write, ended=vanished.has_ended,
        resizing=resizing, guards=guards, observe=observe,
    )  # fmt: skip
    launch = launch or make_launch(settings)
    link = RuntimeLink(plugin, launch, sources, reporter, connected=events.runtime_connected, stop=stopping.set)
    refusals = make_refusals(writable, awaiting, owner, sources, link, reporter, settings)
    driver = make_driver(settings.dra, owner, reservations, writable, name, metrics)
    devices = make_device_plugins(settings.device_plugins, owner, metrics, trouble)

    # Loops beside the calls
    watch = make_machine_watch(owner, host.machine, cgroups, updates)
    upkeep = Upkeep(
        owner, reconciler, vanished, WriteWatcher(owner, tree, host.writes, trouble=trouble), reporter,
        seconds=settings.reconcile_seconds, due=updates, machine=watch, guards=guards, observe=observe,
        begun=partial(heartbeats.beat, "reconcile", settings.reconcile_seconds),
        passed=metrics.last_reconcile.set_to_current_time, again=plugin.write_again,
    )  # fmt: skip
    reloading = Reloading(owner, given, read, say=reporter.policy_read)
    isolation = make_isolation_metrics(owner, host.kernel, tree)
    usage = make_usage_recorder(owner, host.kernel, tree, trouble, observe=observe)
    observed = make_observed_kubelet(loaded, machine, configured.api_source, trouble, observe=observe)
    stand_in = make_stand_in(settings, trouble, observe=observe)
    kubelet = make_kubelet_release(
        given, release, machine, api, name, trouble, stop=None if launch.once else stopping.set, observe=observe
    )
    parts: dict[str, LoopPart | None] = {
        "runtime": link, "placing": updates, "reconcile": upkeep, "resizes": resizing, "policy": reloading,
        "defrag": None if observe else AutomaticDefrag(owner, executor), "machine": watch, "isolation": isolation,
        "usage": usage, "events": api_events, "observed": observed, "podResources": stand_in, "release": kubelet,
    }  # fmt: skip
    loops = _loops_of(parts, (configured, refusals, driver))
    loops |= {"watchdog": feed_watchdog, "healing": partial(heal, owner.admitting, link.close)}
    followed, authority = journal if observed is None else observed.journal, make_authority(settings.cluster)
    loops |= dict(cluster_loops(settings.cluster, followed, api, name, trouble, authority, reporter.stream_began))
    loops |= dict(topology_loops(settings, owner, journal, writable, name, trouble))

    _subscribe(events, updates, watch, devices, refusals, configured.api_source)

    # What the agent says of itself, and serves
    health = AgentHealth(owner, sources, link, supervisor, heartbeats, stand_in)
    status = AgentStatusSource(name, owner, upkeep, link, refusals, health, kubelet, observe=observe, observed=observed)
    listed = devices.list_devices if devices is not None else dict
    endpoints = Endpoints(
        settings=settings, observe=observe, owner=owner, tree=tree, executor=executor, health=health, status=status,
        page=make_metrics_page(metrics, owner, settings.cluster, resizing, isolation, followed, authority, kubelet),
        served=metrics.pod_resources,
        live=LiveNodeSource(owner, name, listed, sources.find, kubelet.version, observed),
        devices=devices, listed_devices=listed, driver=driver, stand_in=stand_in, trouble=trouble,
    )  # fmt: skip
    return Agent(
        node_name=name, observe=observe, scratch=scratch, owner=owner, reporter=reporter, configured=configured,
        resizing=resizing, executor=executor, guards=guards, usage=usage, upkeep=upkeep, refusals=refusals,
        reloading=reloading, release=kubelet, endpoints=endpoints, supervisor=supervisor, loops=loops,
        stopping=stopping,
    )  # fmt: skip


def _loops_of(parts: Mapping[str, LoopPart | None], groups: Iterable[LoopGroup | None]) -> dict[str, Loop]:
    """Return the loops of the parts and of the groups of parts that there are."""
    loops: dict[str, Loop] = {key: part.run for key, part in parts.items() if part is not None}
    for group in groups:
        loops |= dict(group.loops() if group is not None else ())
    return loops


def _subscribe(
    events: NodeEvents,
    updates: UpdateWriter,
    watch: MachineWatch | None,
    devices: DevicePlugins | None,
    refusals: Refusals | None,
    source: ApiSource | None,
) -> None:
    """Subscribe parts beside those of `wire_node`, `wire_resizes` and `wire_plugin`."""
    events.updates_due.add(updates.wake)
    if watch is not None:
        events.policy_changed.add(watch.forget)
    if devices is not None:
        events.state_opened.add(devices.attach)
    if refusals is not None and source is not None:
        for event in (events.runtime_connected, events.admissions_changed, source.pods_changed):
            event.add(refusals.wake)
