"""The agent's local socket, which only root may open, and the status that is read there."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from podslice.agent.owner import Owner
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.records import ContainerRecord, PodRecord, ReportedRefusal
from podslice.agent.resize.unapplied_resizes import unapplied_texts
from podslice.node.node import Node
from podslice.node.view import ContainerView, NodeView
from podslice.render.picture import picture_of
from podslice.render.terminal import to_text
from podslice.status.status import (
    AgentStatus,
    ClaimedDeviceReport,
    ClaimReport,
    ContainerReport,
    Drift,
    PodReport,
    Pools,
    RefusalStatus,
)
from podslice.values.cpuset import format_bits, iter_bits
from podslice.values.quirks import PROFILE_RELEASES

BACKLOG = 16
"""Connections that wait to be accepted."""


def bind_private(file: SocketFile) -> socket.socket:
    """Return a listening Unix socket that only its owner may open. Replaces the socket of a dead agent. Raises
    `OSError`, also where a running agent listens."""
    file.clear()
    path = file.path
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with owner_only():
            listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    file.bound()
    listener.listen(BACKLOG)
    return listener


@contextlib.contextmanager
def owner_only() -> Iterator[None]:
    """Give sockets made inside mode 0600 from the first moment, which a chmod afterwards would not."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def status_of(
    owner: Owner,
    drifts: Iterable[Drift],
    *,
    kubelet: str = "",
    conditions: Iterable[str] = (),
    observed: Node | None = None,
    **facts: Any,
) -> AgentStatus:
    """Return the agent's status: pods, pools, drift and the map. `kubelet`: its version; `conditions`: others than
    those of the machine; `observed`: the node as its kubelet's files have it, where these are what the agent reports;
    `facts`: further fields of `AgentStatus`."""
    node = observed or owner.node
    return AgentStatus(
        **facts,
        kubernetes=str(PROFILE_RELEASES[owner.admitting.profile]),
        kubelet=kubelet,
        safe_mode=owner.safe_mode,
        pools=None if node is None else _pools(node.view, owner if observed is None else None),
        pods=tuple(pod_statuses(owner) if observed is None else observed_pods(observed.view)),
        drift=tuple(drifts),
        conditions=(*conditions, *_conditions(owner)),
        claims=tuple(_claims(owner)),
        map="" if node is None else to_text(picture_of(node.view), width=120),
    )


def _conditions(owner: Owner) -> Iterator[str]:
    """Yield messages about what the machine has lost."""
    node = owner.node
    if node is None:
        return
    view = node.view
    gone = view.reserved & ~view.topology.all_cpus if view.pins_cpus else 0
    if gone:
        yield f"reservedCPUsOffline: CPUs {format_bits(gone)} are reserved and offline"
    if view.offline & ~gone:
        yield f"cpusOffline: CPUs {format_bits(view.offline & ~gone)} went offline"
    if view.pins_cpus and view.offline and not view.assignable:
        yield f"noSharedCPUs: only the reserved CPUs {format_bits(view.shared) or 'none'} are left to share"
    for numa, short in sorted(node.state.memory.short.items()):
        yield f"memoryOvercommitted: pods hold {short} bytes on NUMA node {numa} more than it has"


def _lost_cpus(owner: Owner, uid: str) -> Iterator[str]:
    """Yield a line for each container of the pod that owns offline CPUs."""
    for record in owner.containers.values():
        lost = owner.placing.lost(record) if record.pod_uid == uid else 0
        if lost:
            runs_on = record.applied.cpu_list or "the shared CPUs"
            yield f"container {record.name} owns CPUs {format_bits(lost)}, which are offline, and runs on {runs_on}"


def _claims(owner: Owner) -> Iterator[ClaimReport]:
    book = owner.claims
    if book is None:
        return
    for uid, claim in book.claims.items():
        held = book.device_pinnings(claim)
        devices = (
            ClaimedDeviceReport(device.request, device.device, one.cpu_list, device.numa_node, device.memory)
            for device, one in zip(claim.devices, held, strict=True)
        )
        users = tuple(book.in_use(uid))
        yield ClaimReport(claim.namespace, claim.name, uid, tuple(devices), claim.pods, users)


def _pools(view: NodeView, owner: Owner | None) -> Pools:
    exclusive = view.owned if owner is None else owner.placing.exclusive()
    return Pools(format_bits(view.shared), format_bits(view.reserved), format_bits(exclusive))


def observed_pods(view: NodeView) -> Iterator[PodReport]:
    """Yield the pods of a kubelet that decides, by its state files and the API server; the files have no ids of
    containers."""
    for pod in sorted(view.pods.values(), key=lambda one: (one.spec.metadata.namespace, one.spec.metadata.name)):
        containers = tuple(_observed_container(one.name, view.container(pod, one)) for one in pod.containers)
        metadata = pod.spec.metadata
        yield PodReport(metadata.namespace, metadata.name, pod.uid, admitted=True, refused=False, containers=containers)


def _observed_container(name: str, held: ContainerView) -> ContainerReport:
    return ContainerReport(
        name=name,
        id="",
        cpus=format_bits(held.cpus),
        memory_nodes=",".join(map(str, iter_bits(held.memory_nodes))),
        isolation=held.isolation,
        quota="off" if held.cpu_quota_disabled else "on",
        stranger=False,
    )


def pod_statuses(owner: Owner) -> Iterator[PodReport]:
    """Yield the state of each pod, ordered by namespace and name."""
    for uid, pod in sorted(owner.pods.items(), key=lambda item: str(item[1].identity)):
        containers = (
            ContainerReport(
                name=record.name,
                id=record.id,
                cpus=record.applied.cpu_list,
                memory_nodes=record.applied.mem_list,
                isolation=record.applied.isolation,
                quota="off" if record.applied.quota_off else "on",
                stranger=record.stranger,
                cgroup_path=record.cgroups_path,
                baseline=_baseline(owner, record),
            )
            for record in owner.containers.values()
            if record.pod_uid == uid
        )
        identity = pod.identity
        yield PodReport(
            namespace=identity.namespace,
            name=identity.name,
            uid=uid,
            admitted=bool(pod.units),
            refused=bool(pod.refusals),
            findings=(
                *unapplied_texts(pod, (one for one in owner.containers.values() if one.pod_uid == uid)),
                *_lost_cpus(owner, uid),
            ),
            refusals=tuple(_refusal(pod, unit, refusal) for unit, refusal in pod.refusals.items()),
            containers=tuple(containers),
        )


def _baseline(owner: Owner, record: ContainerRecord) -> str:
    node = owner.node
    return "" if node is None or not record.member else format_bits(node.view.promised(record.unit, record.member))


def _refusal(pod: PodRecord, unit: str, refusal: ReportedRefusal) -> RefusalStatus:
    return RefusalStatus(
        container=unit.removeprefix(pod.identity.uid).removeprefix("/"),
        reason=refusal.reason,
        message=refusal.message,
        why=refusal.why,
        since=refusal.since,
        fix=refusal.fix,
        waits_for=refusal.waits_for,
        rejected=pod.rejected,
    )
