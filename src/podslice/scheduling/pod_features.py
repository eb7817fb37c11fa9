"""A kubelet's handling of pods with pod-level resources: a refusal where the node cannot support them, a warning where
its managers ignore them (KEP-2837, KEP-5526; pod-level-resources 16; memory-device 3.2 and 3.10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.api.pod.demand import is_pod_level_resources_set
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.event import PodEvent
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.values.errors import Refusal, RefusalKind
from podslice.values.quirks import Quirks
from podslice.values.reasons import POD_LEVEL_RESOURCES
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

IGNORED = "PodLevelResourcesIgnored"
_UNSUPPORTED = RefusalKind("pod-level-unsupported", "{problem}", POD_LEVEL_RESOURCES)


def pod_level_refusal(
    pod: Pod,
    gates: Mapping[str, bool],
    quirks: Quirks,
    *,
    os: str = "linux",
    cgroup_version: int = 2,
    release: Release = DEFAULT,
) -> Refusal | None:
    """Return why the node refuses the pod's `spec.resources`, None if it accepts or ignores them (handler "pod
    features", which a `release` before 1.34 does not have)."""
    if not (release.refuses_pod_level_resources and is_pod_level_resources_set(pod)):
        return None
    if os == "windows":
        return _refuse("pod-level resources are not supported on Windows")
    if os != "linux":
        return _refuse("pod-level resources are not supported on the node")
    if not gates["PodLevelResources"]:
        return _refuse("PodLevelResources feature gate is disabled")
    if cgroup_version == 1 and not quirks.pod_level_on_cgroup_v1:
        return _refuse("pod-level resources need cgroup v2, and this node uses cgroup v1")
    return None


def _refuse(problem: str) -> Refusal:
    return Refusal(_UNSUPPORTED, {"problem": problem})


def ignored_pod_level_events(
    pod: AdmissionPod, config: KubeletConfig, gates: Mapping[str, bool], quirks: Quirks, release: Release = DEFAULT
) -> tuple[PodEvent, ...]:
    """Return a warning for each manager that would give a Guaranteed pod resources of its own, or align them, but
    leaves this ignored one on shared resources because it has pod-level ones. A share of a CPU would be shared
    anyway."""
    if not pod.guaranteed or quirks.ignored_pods_without_event:
        return ()
    while_off = "while the feature gate PodLevelResourceManagers is off"
    when = while_off if release.has_pod_level_managers else f"in Kubernetes {release}"
    return tuple(
        PodEvent(
            "Warning",
            IGNORED,
            f'{manager} policy "{policy}" ignores pods with pod-level resources {when}: {consequence}',
        )
        for manager, policy, consequence in _ignoring(pod, config, gates)
    )


def _ignoring(pod: AdmissionPod, config: KubeletConfig, gates: Mapping[str, bool]) -> Iterator[tuple[str, str, str]]:
    """Yield the managers that do nothing for a Guaranteed pod: name, policy, and the consequence for the pod."""
    would_be = AdmissionPod.of(pod.spec, {**gates, "PodLevelResources": True, "PodLevelResourceManagers": True})
    owns_cpus = would_be.cpus > 0 or any(container.exclusive_cpus for container in would_be.containers)
    if config.aligns:
        yield "Topology Manager", config.topology_manager_policy, "the pod's CPUs and memory are not aligned"
    if config.cpu_manager_policy == "static" and owns_cpus:
        yield "CPU Manager", "static", "the pod uses the node's shared CPUs"
    if config.memory_manager_policy == "Static":
        yield "Memory Manager", "Static", "the pod uses the node's shared memory"
