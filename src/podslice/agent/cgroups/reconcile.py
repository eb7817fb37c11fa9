"""Compares the cgroup of every container and pod with what it should have, and repairs it.

A runtime may lose an update, an administrator may write a cpuset, another agent may disagree. One pass reads every
cgroup back, writes what differs and reports it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from podslice.agent.contract import PodFailure
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, Limits, Pinning, PodRecord, quota_returns
from podslice.agent.resize.unapplied_resizes import limit_milli_cpu, pod_resize_text
from podslice.dra.cgroups import ClaimedLimits
from podslice.host.kernel.cgroup2 import CgroupTree, CgroupValues, cgroup_path
from podslice.node.effects.cgroup import pod_cgroup
from podslice.node.effects.cpu_weight import shares_to_runtime_weight, shares_to_weight
from podslice.service.identity import RESOURCES_ANNOTATION, Identity
from podslice.status.status import Drift
from podslice.values.cpuset import format_bits
from podslice.values.gates import FeatureGates
from podslice.values.quirks import PROFILE_RELEASES

T = TypeVar("T")
_PAGE = mmap.PAGESIZE
_NARROWED = "the set is written, but the kernel grants less: a parent cgroup is narrower, or CPUs are offline"
_IN_USE = "more is in use already; writing the limit could kill the container"
_LEFT = "limits are only reported"


class Difference(msgspec.Struct, frozen=True):
    """A value that differs, as text, and the write that repairs it. `skip_reason`: why the write would have no effect
    or do harm; empty where it is safe."""

    kind: str
    wanted: str
    found: str
    write: Callable[[], None]
    skip_reason: str = ""


class Reconciler:
    """Compares and repairs below one cgroup root. `repair` False: only reports. `repair_limits` False: only reports
    quotas and memory limits, which the kubelet sets."""

    def __init__(self, owner: Owner, tree: CgroupTree, *, repair: bool = True, repair_limits: bool = True) -> None:
        self._owner = owner
        self._tree = tree
        self._repair = repair
        self._repair_limits = repair_limits
        release = PROFILE_RELEASES[owner.admitting.profile]
        self._gates = FeatureGates.from_overrides(owner.config.feature_gates, release=release)

    def read_only_copy(self) -> Reconciler:
        """Return a reconciler that finds the same differences and writes nothing."""
        return Reconciler(self._owner, self._tree, repair=False, repair_limits=self._repair_limits)

    def settle(self, uid: str) -> None:
        """Write the values of a new pod into the cgroup that the kubelet made. Not reported as drift: these are first
        values."""
        pod = self._owner.pods.get(uid)
        if pod is not None:
            list(self._pod(pod))

    def write(self, record: ContainerRecord, wanted: Pinning) -> bool:
        """Write the new values of a running container. Not reported as drift. Return False where there is no cgroup to
        write, or the runtime is still creating it."""
        path = cgroup_path(record.cgroups_path)
        if path is None or not record.started or (found := self._tree.read(path)) is None:
            return False
        differences = [*self._sets(path, wanted, found)]
        if wanted.quota_off and found.quota is not None:
            differences.append(self._quota(path, None, found.period, found))
        limits = record.limits
        if limits is not None and found.quota is None and quota_returns(record.applied, wanted, limits):
            differences.append(self._quota(path, limits.quota, limits.period, found))
        written = [self._repair_difference("", "", one).repaired or one.skip_reason for one in differences]
        return all(written)

    def run(self) -> list[Drift]:
        """Compare all containers and pods once. Those not started or without cgroup are skipped."""
        return [drift for step in self.steps() for drift in step]

    def steps(self, only: Container[str] | None = None) -> Iterator[list[Drift]]:
        """Do the same pass in steps of one container or pod, so that other work can run between them.

        Each step reads the current state. `only`: container ids and pod UIDs to compare; None for all.
        """
        for record in list(self._owner.containers.values()):
            if only is not None and record.id not in only:
                continue
            if self._owner.containers.get(record.id) is record:
                yield self._owner.attempt("reconcile", record, partial(self._collect, self._container, record)) or []
        # A copy, looked up again: between two steps the runtime's calls add and remove pods.
        for uid in list(self._owner.pods):
            pod = self._owner.pods.get(uid)
            if pod is not None and (only is None or uid in only):
                found = self._owner.seam.attempt("reconcile", pod.identity, partial(self._collect, self._pod, pod))
                yield [] if isinstance(found, PodFailure) else found

    def _collect(self, look: Callable[[T], Iterator[Drift]], what: T) -> list[Drift]:
        return list(look(what))

    def _container(self, record: ContainerRecord) -> Iterator[Drift]:
        pod = self._owner.pods.get(record.pod_uid)
        path = cgroup_path(record.cgroups_path)
        if pod is None or path is None or not record.started or (found := self._tree.read(path)) is None:
            return
        wanted = self._owner.placing.wanted(record)
        claimed = self._owner.placing.claimed_limits(record)
        limits = _with_claims(record.limits, claimed, found)
        weight = self._weight(path, claimed)
        for difference in (*self._sets(path, wanted, found), *self._limits(path, wanted, limits, found), *weight):
            yield self._repair_difference(str(pod.identity), record.name, difference)

    def _weight(self, path: str, claimed: ClaimedLimits | None) -> Iterator[Difference]:
        """Compare `cpu.weight` with the CPUs of claims. Runtimes convert shares into a weight in two ways; only a value
        below both is too small."""
        if claimed is None or not claimed.shares:
            return
        want, found = shares_to_runtime_weight(claimed.shares), self._tree.weight(path)
        if found is not None and found < min(want, shares_to_weight(claimed.shares)):
            yield Difference("weight", str(want), str(found), partial(self._tree.write_weight, path, want))

    def _sets(self, path: str, wanted: Pinning, found: CgroupValues) -> Iterator[Difference]:
        """Compare CPUs and memory nodes. The effective set counts where the kernel reports it."""
        for kind, want, given, effective, write in (
            ("cpus", wanted.cpus, found.cpus, found.cpus_effective, self._tree.write_cpus),
            ("mems", wanted.mems, found.mems, found.mems_effective, self._tree.write_mems),
        ):
            seen = given if effective is None else effective
            # The effective set differs where a parent is narrower or CPUs are offline: writing again would not help.
            if want and seen is not None and seen != want:
                why = _NARROWED if given == want else ""
                yield Difference(kind, format_bits(want), format_bits(seen), partial(write, path, want), why)

    def _limits(self, path: str, wanted: Pinning, limits: Limits | None, found: CgroupValues) -> Iterator[Difference]:
        """Compare the CFS quota, which is off for exclusive CPUs, and the memory limit."""
        left = "" if self._repair_limits else _LEFT
        if wanted.quota_off:
            if found.quota is not None:
                yield self._quota(path, None, found.period, found)
        elif limits is not None and _quota_differs(limits, found):
            yield self._quota(path, limits.quota, limits.period, found, left)
        if limits is not None and _pages(found.memory_max) != _pages(limits.memory):
            yield self._memory(path, limits.memory, found, left)

    def _quota(
        self, path: str, quota: int | None, period: int, found: CgroupValues, skip_reason: str = ""
    ) -> Difference:
        def write() -> None:
            self._tree.write_quota(path, quota, period)

        seen = _text(found.quota)
        if quota is not None and found.quota is not None and found.period != period:
            return Difference("quota", f"{quota} {period}", f"{seen} {found.period}", write, skip_reason)
        return Difference("quota", _text(quota), seen, write, skip_reason)

    def _memory(self, path: str, limit: int | None, found: CgroupValues, skip_reason: str = "") -> Difference:
        # The kernel reclaims at the write of a limit below the usage, and kills where that does not suffice.
        if not skip_reason and limit is not None and self._tree.memory_current(path) > limit:
            skip_reason = _IN_USE
        write = partial(self._tree.write_memory_max, path, limit)
        return Difference("memory", _text(limit), _text(found.memory_max), write, skip_reason)

    def _pod(self, pod: PodRecord) -> Iterator[Drift]:
        """Compare the pod's own cgroup: no quota where all its CPUs are exclusive, and the limits of its annotation."""
        path = pod_path(pod.identity)
        if path is None or (found := self._tree.read(path)) is None:
            return
        for difference in self._pod_limits(pod, path, found):
            yield self._repair_difference(str(pod.identity), "", difference)

    def _pod_limits(self, pod: PodRecord, path: str, found: CgroupValues) -> Iterator[Difference]:
        placing = self._owner.placing
        quota_off = (placing.pod_quota_off(pod.units) and not self._could_exceed(pod)) or self._on_claims(pod)
        owns = quota_off or placing.has_pod_cpus(pod.identity.uid)
        # The kubelet changed the limit in a resize that the agent does not carry out: the limit holds.
        if owns and found.quota is not None and self._resized(pod, found.quota * 1000 // found.period):
            return
        limits = self._limits_by_annotation(pod, quota_off=quota_off)
        quota, memory = limits.get("cpuQuota"), limits.get("memory") or self._claimed_memory(pod)
        if quota_off and found.quota is not None:
            yield self._quota(path, None, found.period, found)
        elif quota is not None and quota > 0 and found.quota != quota:
            yield self._quota(path, quota, limits["cpuPeriod"], found)
        elif not quota_off and found.quota is None and quota is None and pod.identity.quota:
            yield self._quota(path, pod.identity.quota + pod.identity.overhead, pod.identity.period, found)
        if memory and _pages(found.memory_max) != _pages(memory):
            yield self._memory(path, memory, found)

    def _could_exceed(self, pod: PodRecord) -> bool:
        """Return whether an unknown pod's sharing containers could exceed its request without a pod quota.

        Containers of a pod with pod-level resources have no limits of their own.
        """
        if pod.identity.uid in pod.units or pod.limit is None:
            return False
        mine = [record for record in self._owner.containers.values() if record.pod_uid == pod.identity.uid]
        placing = self._owner.placing
        shared = [limit_milli_cpu(record.limits) or 0 for record in mine if not placing.owned_by([record.unit])]
        return placing.owned_by(pod.units).bit_count() * 1000 + sum(shared) > pod.limit

    def _on_claims(self, pod: PodRecord) -> bool:
        """Return whether a container runs on CPUs of claims and every other one does so too or has a limit."""
        mine = [record for record in self._owner.containers.values() if record.pod_uid == pod.identity.uid]
        if not any(record.claims for record in mine):
            return False
        free = [record for record in mine if self._owner.placing.wanted(record).quota_off]
        return bool(free) and all(record in free or limit_milli_cpu(record.limits) for record in mine)

    def _resized(self, pod: PodRecord, found: int) -> bool:
        """Return whether the kubelet changed the limit of a pod with exclusive CPUs. The limit then stays, and the
        resize is reported."""
        if pod.resize:
            return True
        uid = pod.identity.uid
        active = None if self._owner.node is None else self._owner.node.view.pods.get(uid)
        if active is None or not active.pod_level or RESOURCES_ANNOTATION in pod.identity.annotations:
            pod.resized = None
            return any(record.resized for record in self._owner.containers.values() if record.pod_uid == uid)
        cgroup = pod_cgroup(active.spec, self._gates)
        if not cgroup.cpu_quota or not cgroup.cpu_period or cgroup.cpu_quota * 1000 // cgroup.cpu_period == found:
            pod.resized = None
            return False
        if pod.resized != found:
            pod.resized = found
            self._owner.reporter.resized(pod.identity, "", pod_resize_text(found))
        return True

    def _limits_by_annotation(self, pod: PodRecord, *, quota_off: bool) -> dict[str, int]:
        """Return the limits of a pod whose pod-level resources come from its annotation, unknown to the kubelet."""
        node = self._owner.node
        active = None if node is None else node.view.pods.get(pod.identity.uid)
        if active is None or RESOURCES_ANNOTATION not in pod.identity.annotations or not active.pod_level:
            return {}
        cgroup = pod_cgroup(active.spec, self._gates, enforce_cpu_limits=not quota_off)
        return {name: value for name, value in msgspec.to_builtins(cgroup).items() if isinstance(value, int)}

    def _claimed_memory(self, pod: PodRecord) -> int | None:
        """Return the pod's memory limit with what its claims add; None where they add nothing.

        Pod-level resources already contain it.
        """
        node, book = self._owner.node, self._owner.claims
        active = None if node is None else node.view.pods.get(pod.identity.uid)
        if active is None or book is None or active.pod_level:
            return None
        added = book.added_memory(active.spec)
        limit = pod_cgroup(active.spec, self._gates).memory if added else None
        return limit and limit + added

    def _repair_difference(self, pod: str, container: str, difference: Difference) -> Drift:
        drift = Drift(pod, container, difference.kind, difference.wanted, difference.found)
        if not self._repair:
            return drift
        if difference.skip_reason:
            return msgspec.structs.replace(drift, why=difference.skip_reason)
        try:
            difference.write()
        except OSError as error:
            return msgspec.structs.replace(drift, why=error.strerror or str(error))
        return msgspec.structs.replace(drift, repaired=True)


def pinned_in(tree: CgroupTree, record: ContainerRecord) -> Pinning:
    """Return the CPUs and NUMA nodes in a container's cgroup; an empty pinning where it cannot be read."""
    path = cgroup_path(record.cgroups_path)
    return Pinning() if path is None else Pinning(cpus=tree.cpus(path) or 0, mems=tree.mems(path) or 0)


def cpu_limit_in(tree: CgroupTree, identity: Identity) -> int | None:
    """Return the CPU limit in a pod's cgroup in millicores, None without limit or cgroup."""
    path = cgroup_path(identity.cgroup_parent)
    found = None if path is None else tree.read(path)
    return None if found is None or found.quota is None else found.quota * 1000 // found.period


def pod_path(identity: Identity) -> str | None:
    """Return the cgroup that belongs to this pod alone, None where there is none."""
    path = cgroup_path(identity.cgroup_parent)
    # systemd unit names write the UID with underscores; a parent without the UID is shared with other pods.
    return path if path is not None and identity.uid in path.replace("_", "-") else None


def _quota_differs(limits: Limits, found: CgroupValues) -> bool:
    """Return whether the quota differs. Without a limit on both sides the period has no meaning."""
    if limits.quota is None and found.quota is None:
        return False
    return (limits.quota, limits.period) != (found.quota, found.period)


def _with_claims(limits: Limits | None, claimed: ClaimedLimits | None, found: CgroupValues) -> Limits | None:
    """Return the limits with the memory of claims; while that is unknown, with the present value."""
    memory = found.memory_max if claimed is None else claimed.memory
    if limits is None or (claimed is not None and memory is None):
        return limits
    return msgspec.structs.replace(limits, memory=memory)


def _pages(limit: int | None) -> int | None:
    """Return a memory limit as the kernel rounds it, in whole pages."""
    return None if limit is None else limit // _PAGE


def _text(value: int | None) -> str:
    return "max" if value is None else str(value)
