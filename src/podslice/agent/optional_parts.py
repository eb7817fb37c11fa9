"""Make the parts that depend on settings, on the host, or on whether this is a dry run; None for one that is left out.

`agent.wiring` says how they are connected. A dry run gets no API server to write to.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

from podslice.agent.admitting import NodeSetup
from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiServer, ApiSource
from podslice.agent.api_server.checkpoint import Checkpoint
from podslice.agent.api_server.refusals import Refusals
from podslice.agent.api_server.tenantevents import TenantEvents
from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.agent.devices.deviceplugins import DevicePlugins
from podslice.agent.devices.observeddevices import ObservedDevices
from podslice.agent.dra.driver import ClaimsServer, Driver
from podslice.agent.dra.reservations import Reservations
from podslice.agent.guards.isolationmetrics import IsolationMetrics
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.hotplug import MachineSource, MachineWatch
from podslice.agent.journal import NodeJournal
from podslice.agent.kubelet.arriving import Awaiting
from podslice.agent.kubelet.configuredsources import Trouble
from podslice.agent.kubelet.kubelet_release import DecidingRelease, KubeletRelease
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.kubelet.sources import Sources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.moves.memory_moves import free_memory
from podslice.agent.moves.move_rules import ThreadReader, kernel_release
from podslice.agent.node_wiring import ClaimSetup
from podslice.agent.owner import Owner
from podslice.agent.process.daemon import Loop
from podslice.agent.process.host_access import HostAccess
from podslice.agent.records import NodeRecords
from podslice.agent.reporter import JournalStream, ServiceStreams
from podslice.agent.resize.cgroup_writes import Cgroups
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Launch, launch_from_environment
from podslice.agent.runtime.runtime_link import RuntimeLink
from podslice.agent.settings import AgentSettings, ClusterSettings, DRASettings, LoadedSettings, SourceSettings
from podslice.agent.status.metrics import Metrics, MetricsPage
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.statusport import sees_the_node
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.agent.upkeep import UpdateWriter
from podslice.host.boot import Boot
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.isolation.kernel_facts import IsolationSources
from podslice.machine.model import Machine
from podslice.node.node import Node
from podslice.service.apievents import ApiEvents
from podslice.service.identity import Identity
from podslice.service.podaccess import pod_namespace
from podslice.service.trust import AuthorityFile
from podslice.values.quirks import profile_of_a_kubelet
from podslice.version import running_version


def find_node_name(sources: SourceSettings) -> str:
    """Return the name of the agent's Node object."""
    return sources.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()


def node_setup(loaded: LoadedSettings, machine: Machine, directory: Path, boot: Boot | None) -> NodeSetup:
    """Return what the node starts with, by the settings."""
    settings = loaded.agent
    return NodeSetup(
        directory,
        machine,
        loaded.config,
        loaded.policy,
        settings.profile,
        boot,
        real_devices=bool(settings.device_plugins),
        move_strangers=settings.strangers == "move",
    )


def make_launch(settings: AgentSettings) -> Launch:
    """Make the way to the runtime: to its socket, or through one that it gave the agent."""
    return launch_from_environment(
        os.environ, name=settings.plugin_name, index=settings.plugin_index, path=settings.nri_socket
    )


def make_api_server(sources: SourceSettings) -> ApiServer | None:
    """Make the client of the API server."""
    return HTTPApiServer() if sources.api_server else None


def make_tenant_events(events: ApiEvents | None, records: NodeRecords) -> TenantEvents | None:
    """Make the sink of events, which may name only pods of the same namespace."""
    return None if events is None else TenantEvents(events, partial(_identities, records))


def _identities(records: NodeRecords) -> list[Identity]:
    return [pod.identity for pod in records.pods.values()]


def make_container_files(settings: AgentSettings, *, observe: bool) -> ContainerFiles:
    """Make the files of containers, none of which is written without a folder and in a dry run."""
    return ContainerFiles(Path(settings.container_files) if settings.container_files and not observe else None)


def make_journal(cluster: ClusterSettings | None, *, observe: bool) -> NodeJournal:
    """Make the journal of the node, which is empty where no service follows it."""
    followed = cluster is not None and not observe
    return NodeJournal(
        version=running_version() if followed else "",
        honours=cluster is not None and cluster.plan == "honour",
    )


# Claims and devices


def make_reservations(
    dra: DRASettings | None, records: NodeRecords, api: ApiServer | None, trouble: Trouble
) -> Reservations | None:
    """Make what knows the pods that may use a claim."""
    if dra is None or api is None:
        return None
    return Reservations(records.claims, cast(ClaimsServer, api), Path(dra.kubelet_state), trouble=trouble)


def make_claim_setup(dra: DRASettings | None, reservations: Reservations | None) -> ClaimSetup | None:
    """Return what the ledger of claims starts with."""
    return None if dra is None or reservations is None else ClaimSetup(Path(dra.cdi), reservations.find_pods)


def make_driver(
    dra: DRASettings | None,
    owner: Owner,
    reservations: Reservations | None,
    api: ApiServer | None,
    node_name: str,
    metrics: Metrics,
) -> Driver | None:
    """Make the DRA driver."""
    if dra is None or owner.claims is None or reservations is None:
        return None
    return Driver(
        dra, owner, owner.claims, reservations, cast(ClaimsServer, api), node_name, prepared=metrics.claim_prepared
    )


def make_device_plugins(folder: str, owner: Owner, metrics: Metrics, trouble: Trouble) -> DevicePlugins | None:
    """Make the server that device plugins register with."""
    if not folder:
        return None
    return DevicePlugins(
        Path(folder),
        lambda: owner.node,
        trouble=trouble,
        registered=metrics.plugin_registered,
        allocated=metrics.plugin_allocated,
    )


def make_stand_in(settings: AgentSettings, trouble: Trouble, *, observe: bool) -> StandIn | None:
    """Make the stand-in for the kubelet's PodResources socket; None in a dry run."""
    return StandIn(Path(settings.pod_resources_socket), trouble) if settings.stands_in and not observe else None


# Refused pods


def make_refusals(
    api: ApiServer | None,
    awaiting: Awaiting | None,
    owner: Owner,
    sources: Sources,
    link: RuntimeLink,
    reporter: AgentReporter,
    settings: AgentSettings,
) -> Refusals | None:
    """Make what handles refused pods. Without API server they are refused at their containers and that is all."""
    if api is None or awaiting is None:
        return None
    return Refusals(
        api,
        awaiting,
        owner,
        reporter,
        find=sources.find,
        connected=link.is_up,
        early=not settings.sources.annotation_counts,
        fail=settings.refusals == "fail",
    )


# The kernel


def make_threads(tree: CgroupTree) -> ThreadReader:
    """Make the reader of threads' affinities; without the node's processes in `/proc` it reads none."""
    return ThreadReader(tree, DiskFileSystem("/proc") if sees_the_node() else None)


def make_migration(tree: CgroupTree, *, observe: bool) -> MemoryMigration | None:
    """Make what takes along the memory of a container that leaves a NUMA node; a dry run moves none."""
    return None if observe else MemoryMigration(tree, partial(free_memory, DiskFileSystem("/sys")))


def make_machine_watch(
    owner: Owner, source: MachineSource | None, cgroups: Cgroups, updates: UpdateWriter
) -> MachineWatch | None:
    """Make what follows the machine, where it can change."""
    return None if source is None else MachineWatch(owner, source, write=cgroups.write, place=updates.write)


def make_guards(
    owner: Owner, host: HostAccess, tree: CgroupTree, metrics: Metrics, reporter: AgentReporter, *, observe: bool
) -> NodeGuards | None:
    """Make the guards of exclusive CPUs."""
    if host.kernel is None:
        return None
    mount = host.kernel.path_of(tree.root)
    return NodeGuards(
        owner,
        host.kernel,
        SavedStore(owner.directory, "" if host.boot is None else host.boot.id, cgroups=mount),
        metrics,
        said=reporter,
        mount=mount,
        observe=observe,
        kernel=kernel_release(os.uname().release),
    )


def make_isolation_metrics(owner: Owner, kernel: KernelFiles | None, tree: CgroupTree) -> IsolationMetrics | None:
    """Make the measurements of exclusive CPUs."""
    if kernel is None:
        return None
    proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(tree.root)
    sources = IsolationSources(proc, cgroups, DiskFileSystem(kernel.root / "sys"), {})
    return IsolationMetrics(owner, sources, threads=sees_the_node())


def make_usage_recorder(
    owner: Owner, kernel: KernelFiles | None, tree: CgroupTree, trouble: Trouble, *, observe: bool
) -> SystemUsageRecorder | None:
    """Make the records of what the system itself uses; a dry run records nothing."""
    if kernel is None or observe:
        return None
    proc, cgroups = DiskFileSystem(kernel.root / "proc"), DiskFileSystem(tree.root)
    return SystemUsageRecorder(owner, cgroups, proc, trouble=trouble)


# The cluster


def make_observed_kubelet(
    loaded: LoadedSettings, machine: Machine, source: ApiSource | None, trouble: Trouble, *, observe: bool
) -> ObservedKubelet | None:
    """Make what reads the kubelet's decisions in a dry run, in which the kubelet decides."""
    cluster = loaded.agent.cluster
    if cluster is None or source is None or not observe:
        return None
    folder = Path(cluster.kubelet_directory)
    return ObservedKubelet(
        folder,
        machine,
        loaded.config,
        profile=profile_of_a_kubelet(loaded.agent.profile),
        version=running_version(),
        pods=lambda: list(source.pods),
        ready=lambda: source.ready,
        trouble=trouble,
        devices=ObservedDevices(folder).read,
    )


def make_authority(cluster: ClusterSettings | None) -> AuthorityFile | None:
    """Make the reader of the authority of the services' certificates; None for the system's."""
    if cluster is None or not cluster.ca_file:
        return None
    return AuthorityFile(Path(cluster.ca_file), "cluster.caFile")


def make_metrics_page(
    metrics: Metrics,
    owner: Owner,
    cluster: ClusterSettings | None,
    resizing: Resizing,
    isolation: IsolationMetrics | None,
    journal: NodeJournal,
    authority: AuthorityFile | None,
    release: KubeletRelease,
) -> MetricsPage:
    """Make the page of metrics; `journal` is what the services follow."""
    services = 0 if cluster is None else len(cluster.services)
    return MetricsPage(
        metrics,
        owner,
        resizes=resizing,
        isolation=isolation,
        journal=journal,
        services=services,
        authority=authority,
        is_kubelets=release.is_kubelets,
    )


def make_kubelet_release(
    loaded: LoadedSettings,
    now: DecidingRelease,
    machine: Machine,
    api: ApiServer | None,
    node_name: str,
    trouble: Trouble,
    *,
    stop: Callable[[], None] | None,
    observe: bool,
) -> KubeletRelease:
    """Make what follows the version of the kubelet; a dry run keeps none."""

    def starts(settings: LoadedSettings) -> None:
        Node(machine, settings.config, profile=settings.agent.profile, predicates=False, policy=settings.policy)

    directory = None if observe else Path(loaded.agent.state_directory)
    return KubeletRelease(loaded, now, api, node_name, trouble=trouble, stop=stop, remember=directory, starts=starts)


def cluster_loops(
    cluster: ClusterSettings | None,
    journal: NodeJournal,
    api: ApiServer | None,
    node_name: str,
    trouble: Trouble,
    authority: AuthorityFile | None,
    began: Callable[[str, str, int], object],
) -> Iterator[tuple[str, Loop]]:
    """Yield the loops that send the journal to the cluster's services, and keep the node's NodeState object."""
    if cluster is None or not journal.version:
        return

    def stream(address: str, name: str) -> JournalStream:
        return JournalStream(
            address,
            journal,
            node=node_name,
            token_file=Path(cluster.token_file),
            authority=authority,
            server_name=cluster.server_name or name,
            trouble=trouble,
            began=began,
        )

    if authority is not None:
        yield "cluster authority", partial(authority.watch, trouble)
    for target in cluster.services:
        yield f"cluster {target}", ServiceStreams(target, stream, trouble=trouble).run
    if cluster.checkpoint and api is not None:
        yield "nodeState", Checkpoint(api, node_name, journal, trouble=trouble).run


def topology_loops(
    settings: AgentSettings, owner: Owner, journal: NodeJournal, api: ApiServer | None, node_name: str, trouble: Trouble
) -> Iterator[tuple[str, Loop]]:
    """Yield the loops that keep the node's NodeResourceTopology, and the Lease that says so."""
    if api is None or not settings.writes_topology:
        return
    lease = LeaseName(pod_namespace() or settings.namespace, node_name)
    topology = TopologyObject(
        api,
        node_name,
        lambda: owner.node,
        journal,
        merges=settings.node_resource_topology == "merge",
        version=running_version(),
        lease=str(lease),
        trouble=trouble,
    )
    yield "nodeResourceTopology", topology.run
    yield "lease", TopologyLease(api, lease, topology, trouble=trouble).run
