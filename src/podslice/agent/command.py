"""`podslice agent`: the node agent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import msgspec

from podslice.agent.kubelet.kubelet_release import DecidingRelease, find_release, with_release
from podslice.agent.settings import AgentSettings, ClusterSettings, LoadedSettings, load_settings
from podslice.cli.group import need_linux
from podslice.cli.options.machine import Sources, machine_choice, resolve_machine
from podslice.extras import need_modules
from podslice.host.boot import read_boot
from podslice.host.discover import read_machine
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.host.kernel.kernelfiles import KernelFiles
from podslice.machine.model import Machine
from podslice.node.checkpoints.names import CPU_STATE_FILE, STATE_DIRECTORY
from podslice.node.node import Node
from podslice.render.ansi import echo, style
from podslice.service.http.access import is_loopback
from podslice.values.errors import InputError, StartError

_NEEDED = ("google.protobuf", "grpc", "prometheus_client", "structlog", "lightkube")


@click.command()
@click.option("--config", "config_path", metavar="FILE", default="/etc/podslice/agent.yaml", show_default=True,
              help="AgentConfiguration (docs/agent.md).")  # fmt: skip
@click.option("--check-config", is_flag=True, help="Say whether the agent would start here, and stop.")
@click.option("--observe", is_flag=True, help="Decide and report, change nothing.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@machine_choice
def agent(
    *,
    config_path: str,
    check_config: bool,
    observe: bool,
    log_level: str,
    machine: str | None,
    sysfs: str | None,
    source: Sources,
) -> None:
    """Run the node agent: give this node's pods the CPUs, memory nodes and quotas the core decides, through NRI.

    \b
    Examples:
      podslice agent --config agent.yaml --check-config
      podslice agent --config agent.yaml --observe
      podslice agent --config agent.yaml

    Exit codes: 0 stopped or configuration good, 2 bad configuration.
    """
    need_modules("the agent", _NEEDED, extras="agent")
    loaded = load_settings(config_path)
    for warning in loaded.warnings:
        echo(style(f"warning: {warning}", fg="yellow"), err=True)
    chosen = resolve_machine(machine, sysfs, source)
    if check_config:
        release = asyncio.run(_find_release(loaded))
        loaded = with_release(loaded, release)
        _check(loaded, chosen)
        if not observe:
            _check_kubelet(loaded)
        if release.problem:
            echo(style(f"warning: {release.problem}", fg="yellow"), err=True)
        for remark in _remarks(loaded.agent):
            echo(style(f"warning: {remark}", fg="yellow"), err=True)
        facts = f"{chosen.cpu_count} CPUs, CPU manager {loaded.config.cpu_manager_policy}"
        echo(f"{config_path}: good; {facts}, Kubernetes {release.release}")
        return
    need_linux("agent")
    import structlog

    from podslice.agent.hotplug import MachineSource
    from podslice.agent.process.host_access import HostAccess
    from podslice.agent.status.report import configure_log
    from podslice.agent.wiring import wire
    from podslice.service.native_lines import LibraryLog, NativeLines

    files = DiskFileSystem(sysfs or "/")
    discover = partial(resolve_machine, machine, sysfs, source)
    follows = None if machine or source else MachineSource(partial(read_machine, files), discover)

    async def run_once(loaded: LoadedSettings) -> LoadedSettings | None:
        """Run an agent until it stops; return the settings with which it is to begin anew, as the kubelet of another
        release."""
        host = HostAccess(boot=read_boot(DiskFileSystem()), kernel=KernelFiles(), writes=_writes(), machine=follows)
        read, release = partial(load_settings, config_path), await _find_release(loaded)
        running = wire(loaded, chosen, host, observe=observe, read=read, release=release)
        await running.run()
        if host.writes is not None:
            host.writes.close()
        return running.reloading.loaded if running.release.restarts else None

    with NativeLines() as native:
        configure_log(log_level, native.stream)
        # What fails to connect is counted, and reported with its address, by the part that connects.
        native.follow(LibraryLog(structlog.get_logger(), "gRPC", count=lambda kind: None).write)
        again: LoadedSettings | None = loaded
        while again is not None:
            again = asyncio.run(run_once(again))


async def _find_release(loaded: LoadedSettings) -> DecidingRelease:
    """Return the release of the kubelet beside the agent, as far as it can be found."""
    from podslice.agent.api_server.apiclient import HTTPApiServer
    from podslice.agent.optional_parts import find_node_name

    sources = loaded.agent.sources
    try:
        api = HTTPApiServer() if sources.api_server else None
    except InputError:  # said where the agent's own client is made
        api = None
    try:
        return await find_release(loaded.agent, api, find_node_name(sources))
    finally:
        if api is not None:
            await api.close()


def _writes() -> FileWrites | None:
    """Watch for writes to cgroups; None where inotify is unavailable: then only the periodic passes find them."""
    try:
        return FileWrites()
    except OSError as error:
        echo(
            style(f"warning: cgroups are read back every so often only: inotify: {error.strerror}", fg="yellow"),
            err=True,
        )
        return None


def _remarks(settings: AgentSettings) -> Iterator[str]:
    """Yield warnings: things that are not wrong, but will be missing at run time or widen access."""
    if not CgroupTree(settings.cgroup_root).usable:
        yield f"cgroupRoot {settings.cgroup_root}: no cgroup v2 with cpu and cpuset; nothing is read back"
    address = settings.address()
    if address is not None and not is_loopback(address[0]):
        yield f"metricsAddress {settings.metrics_address}: not loopback: any client can read the metrics"
    sources = settings.sources
    if sources.annotation_counts:
        yield (
            "sources.annotation: authors of pods set pod-level resources themselves, up to what the pod requests"
            if sources.others
            else "sources: none but the annotation: authors of pods take CPUs that no scheduler or quota has counted"
        )
    if sources.kubelet is not None and sources.kubelet.insecure_skip_tls_verify:
        yield "sources.kubelet.insecureSkipTLSVerify: who takes the kubelet's port gets the token and names the pods"
    if sources.pods_api_required and not Path(sources.pods_api_socket).is_socket():
        yield f"sources.podsAPI: no kubelet serves {sources.pods_api_socket} yet (feature gate PodsAPI)"
    folder = Path(settings.pod_resources_socket).parent
    if settings.stands_in and not os.access(folder, os.W_OK):
        yield f"podResourcesUpstream: {folder} cannot be written, the kubelet's place cannot be taken"
    yield from _cluster_remarks(settings.cluster)
    if not Path(settings.nri_socket).is_socket():
        yield f"nriSocket {settings.nri_socket}: no runtime listens there yet"


def _cluster_remarks(cluster: ClusterSettings | None) -> Iterator[str]:
    """Yield warnings about the files for the cluster's services. Raises `InputError` for an authority that is there and
    cannot be used, such as a key."""
    from podslice.service.trust import AuthorityFile

    if cluster is None or not cluster.services:
        return
    if not Path(cluster.token_file).is_file():
        yield f"cluster.tokenFile {cluster.token_file}: there is no token yet"
    if not cluster.ca_file:
        return
    if not Path(cluster.ca_file).exists():
        yield f"cluster.caFile {cluster.ca_file}: there is no authority yet, so no service will be trusted"
        return
    authority = AuthorityFile(Path(cluster.ca_file), "cluster.caFile")
    authority.read()
    if authority.expiry() <= time.time():
        yield f"cluster.caFile {cluster.ca_file}: has expired, so no service will be trusted"


def _check_kubelet(loaded: LoadedSettings) -> None:
    """Check that the kubelet of this node does not hand out CPUs too, by its state file. Raises `InputError`."""
    dra = loaded.agent.dra
    folder = Path(STATE_DIRECTORY) if dra is None else Path(dra.kubelet_state).parent
    try:
        policy = msgspec.json.decode((folder / CPU_STATE_FILE).read_bytes(), type=_CPUState).policy_name
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return
    if policy == "static" == loaded.config.cpu_manager_policy:
        raise InputError(
            "the kubelet's CPU Manager is static too, both would own CPUs",
            path=str(folder / CPU_STATE_FILE),
            remedy="set cpuManagerPolicy: none in the kubelet's configuration (docs/agent.md, Install)",
        )


class _CPUState(msgspec.Struct):
    policy_name: str = msgspec.field(default="", name="policyName")


def _check(loaded: LoadedSettings, machine: Machine) -> None:
    """Check that the managers would start on this machine. Raises `InputError`."""
    try:
        Node(machine, loaded.config, profile=loaded.agent.profile, policy=loaded.policy)
    except StartError as error:
        raise InputError(f"would not start: {error.message}", path=error.stage, remedy=error.remedy) from None
