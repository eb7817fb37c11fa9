"""All kernel settings of one pod in one value: the pod's cgroup, every container's, and OOM scores."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import pod_qos
from podslice.api.pod.spec import Container, Pod, containers_with_kind
from podslice.node.effects.cgroup import (
    PodCgroup,
    pod_cgroup,
    pod_cgroup_path,
    pod_quota_disabled,
    pod_unified,
    quota_disabled,
)
from podslice.node.effects.container_cgroup import LinuxResources, container_resources, container_unified
from podslice.node.effects.files import Files, container_files, pod_files
from podslice.node.effects.oom import oom_score_adjustments
from podslice.node.effects.sandbox import Sandbox, sandbox
from podslice.node.effects.settings import CgroupSettings
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT


class Pin(msgspec.Struct, frozen=True):
    """A container's grant: CPU and NUMA node lists, and whether it owns the CPUs."""

    cpus: str = ""
    mems: str = ""
    exclusive: bool = False
    throttled: bool = False


NO_PINS: Mapping[str, Pin] = {}


class ContainerEffects(msgspec.Struct, frozen=True, rename="camel"):
    """One container: `kind` is init, sidecar, container or ephemeral; `resources` go to the runtime."""

    name: str
    kind: str
    oom_score_adj: int
    resources: LinuxResources
    files: Files


class PodEffects(msgspec.Struct, frozen=True, rename="camel"):
    """One pod; `path` is its cgroup with the systemd driver."""

    qos: str
    path: str
    cgroup: PodCgroup
    files: Files
    sandbox: Sandbox
    containers: tuple[ContainerEffects, ...]


def pod_effects(
    pod: Pod,
    gates: Mapping[str, bool],
    settings: CgroupSettings,
    quirks: Quirks,
    pins: Mapping[str, Pin] = NO_PINS,
    release: Release = DEFAULT,
) -> PodEffects:
    """Return the cgroup values, files and OOM scores of a defaulted pod on a node of a release; `pins` by container
    name.

    Files are those of cgroup v2. Raises `UpstreamDefectError` for a node without memory.
    """
    qos = pod_qos(pod, gates)
    pod_off = pod_quota_disabled(pod, gates, [name for name, pin in pins.items() if pin.exclusive])
    cgroup = pod_cgroup(
        pod, gates, enforce_cpu_limits=settings.cfs_quota and not pod_off, period=settings.cfs_period_us
    )
    memory_qos = pod_unified(pod, gates, settings) if gates["MemoryQoS"] else {}
    scores = oom_score_adjustments(pod, gates, settings.memory_capacity, release)

    def effects(kind: str, container: Container, score: int) -> ContainerEffects:
        pin = pins.get(container.name, Pin())
        resources = container_resources(
            pod,
            container,
            gates,
            settings,
            quirks,
            oom_score_adj=score,
            quota_disabled=quota_disabled(gates, owns_cpus=pin.exclusive and not pin.throttled),
        )
        if gates["MemoryQoS"]:
            added = container_unified(pod, container, gates, settings)
            resources = msgspec.structs.replace(resources, unified={**resources.unified, **added})
        files = container_files(resources, settings, cpus=pin.cpus, mems=pin.mems)
        return ContainerEffects(container.name, kind, score, resources, files)

    return PodEffects(
        qos=qos,
        path=pod_cgroup_path(pod.metadata.uid, qos),
        cgroup=cgroup,
        files=pod_files(cgroup, memory_qos, settings),
        sandbox=sandbox(pod, gates, settings, quirks, quota_disabled=pod_off),
        containers=tuple(
            effects(kind, container, score)
            for (kind, container), score in zip(containers_with_kind(pod), scores, strict=True)
        ),
    )
