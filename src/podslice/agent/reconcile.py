"""Trust nothing, read back: what every container should have against what its cgroup says.

A runtime may lose an update, an administrator may write a cpuset, another agent may disagree. One pass compares every
container and every pod, writes what differs into the cgroup, and says what it found.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from podslice.agent.books import ContainerRecord, Placement, PodRecord
from podslice.agent.identity import RESOURCES_ANNOTATION
from podslice.agent.owner import Owner
from podslice.core.effects.cgroup import pod_cgroup
from podslice.core.errors import InputError
from podslice.core.values.cpuset import format_bits
from podslice.core.values.gates import FeatureGates
from podslice.host.cgroup2 import CgroupTree, CgroupValues, cgroup_path

_NARROWED = "the set is written, but the kernel grants less: a parent cgroup is narrower, or CPUs are offline"


class Drift(msgspec.Struct, frozen=True, rename="camel"):
    """One difference. `kind`: `cpus`, `mems`, `quota` or `memory`. `repaired` False: it could not be written, `why`
    says why; in a dry run nothing is written."""

    pod: str
    container: str
    kind: str
    wanted: str
    found: str
    repaired: bool = False
    why: str = ""


class Reconciler:
    """Compares and repairs below one cgroup root; `repair` False only reports."""

    def __init__(self, owner: Owner, tree: CgroupTree, *, repair: bool = True) -> None:
        self._owner = owner
        self._tree = tree
        self._repair = repair
        self._gates = FeatureGates.from_overrides(owner.config.feature_gates)

    def run(self) -> list[Drift]:
        """One pass over every container and pod; containers without cgroup are on their way in or out."""
        drifts: list[Drift] = []
        for record in list(self._owner.containers.values()):
            drifts += self._container(record)
        for pod in list(self._owner.pods.values()):
            drifts += self._pod(pod)
        return drifts

    def _container(self, record: ContainerRecord) -> Iterator[Drift]:
        pod = self._owner.pods.get(record.pod_uid)
        try:
            path = cgroup_path(record.cgroups_path)
        except InputError:
            return
        found = self._tree.read(path)
        if pod is None or found is None:
            return
        wanted = self._owner.wanted(record)
        for kind, text, seen in differences(wanted, found):
            yield self._mend(str(pod.identity), record.name, kind, text, seen, path, wanted, found)

    def _mend(
        self,
        pod: str,
        container: str,
        kind: str,
        text: str,
        seen: str,
        path: str,
        wanted: Placement,
        found: CgroupValues,
    ) -> Drift:
        if not self._repair:
            return Drift(pod, container, kind, text, seen)
        if (kind == "cpus" and found.cpus == wanted.cpus) or (kind == "mems" and found.mems == wanted.mems):
            return Drift(pod, container, kind, text, seen, why=_NARROWED)
        try:
            if kind == "cpus":
                self._tree.write_cpus(path, wanted.cpus)
            elif kind == "mems":
                self._tree.write_mems(path, wanted.mems)
            else:
                self._tree.write_quota(path, None, found.period)
        except OSError as error:
            return Drift(pod, container, kind, text, seen, why=error.strerror or str(error))
        return Drift(pod, container, kind, text, seen, repaired=True)

    def _pod(self, pod: PodRecord) -> Iterator[Drift]:
        """The pod's own cgroup: no quota where all is exclusive, and the limits its annotation asks for."""
        uid = pod.identity.uid
        try:
            path = cgroup_path(pod.identity.cgroup_parent)
        except InputError:
            return
        found = self._tree.read(path)
        if found is None or uid not in path.replace("_", "-"):
            return
        quota_off = self._owner.pod_quota_off(uid)
        limits = self._annotated_limits(pod, quota_off)
        quota = limits.get("cpuQuota")
        if quota_off and found.quota is not None:
            yield self._mend_pod(pod, "quota", "max", str(found.quota), path, None, found.period)
        elif quota is not None and quota > 0 and found.quota != quota:
            yield self._mend_pod(pod, "quota", str(quota), _text(found.quota), path, quota, limits["cpuPeriod"])
        memory = limits.get("memory")
        if memory and found.memory_max != memory:
            yield self._mend_pod(pod, "memory", str(memory), _text(found.memory_max), path, memory, 0)

    def _annotated_limits(self, pod: PodRecord, quota_off: bool) -> dict[str, int]:
        """Limits of a pod whose pod-level resources only we know, because they come from its annotation."""
        node = self._owner.node
        active = None if node is None else node.kubelet.active.get(pod.identity.uid)
        if active is None or RESOURCES_ANNOTATION not in pod.identity.annotations or not active.pod_level:
            return {}
        cgroup = pod_cgroup(active.spec, self._gates, enforce_cpu_limits=not quota_off)
        return {name: value for name, value in msgspec.to_builtins(cgroup).items() if isinstance(value, int)}

    def _mend_pod(
        self, pod: PodRecord, kind: str, wanted: str, seen: str, path: str, value: int | None, period: int
    ) -> Drift:
        name = str(pod.identity)
        if not self._repair:
            return Drift(name, "", kind, wanted, seen)
        try:
            if kind == "quota":
                self._tree.write_quota(path, value, period)
            else:
                self._tree.write_memory_max(path, value)
        except OSError as error:
            return Drift(name, "", kind, wanted, seen, why=error.strerror or str(error))
        return Drift(name, "", kind, wanted, seen, repaired=True)


def differences(wanted: Placement, found: CgroupValues) -> Iterator[tuple[str, str, str]]:
    """(kind, wanted, found) of everything that differs. What counts is what is effective, if the kernel says it."""
    cpus = found.cpus if found.cpus_effective is None else found.cpus_effective
    if wanted.cpus and cpus is not None and cpus != wanted.cpus:
        yield "cpus", wanted.cpu_list, format_bits(cpus)
    mems = found.mems if found.mems_effective is None else found.mems_effective
    if wanted.mems and mems is not None and mems != wanted.mems:
        yield "mems", wanted.mem_list, format_bits(mems)
    if wanted.quota_off and found.quota is not None:
        yield "quota", "max", str(found.quota)


def _text(value: int | None) -> str:
    return "max" if value is None else str(value)
