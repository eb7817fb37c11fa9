"""The resources of a pod's sandbox in the kubelet's requests to the runtime (pod-level-resources 8.4, 15.6)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import pod_limits, pod_requests
from podslice.api.pod.spec import Pod
from podslice.node.effects.cgroup import PodCgroup, declares_limit
from podslice.node.effects.container_cgroup import LinuxResources, linux_resources
from podslice.node.effects.cpu_weight import milli_cpu_to_quota, milli_cpu_to_shares, shares_to_milli_cpu
from podslice.node.effects.settings import CgroupSettings
from podslice.values.golang import wrap_int64
from podslice.values.quantity import ZERO
from podslice.values.quirks import Quirks


class Sandbox(msgspec.Struct, frozen=True):
    """The pod's resources without overhead, and the overhead."""

    resources: LinuxResources
    overhead: LinuxResources


def sandbox(
    pod: Pod, gates: Mapping[str, bool], settings: CgroupSettings, quirks: Quirks, *, quota_disabled: bool = False
) -> Sandbox:
    """Return the values for creating the sandbox. `quota_disabled`: the pod owns its CPUs."""
    pod_level = gates["PodLevelResources"]
    requests = pod_requests(pod, pod_level=pod_level, overhead=False)
    limits = pod_limits(pod, pod_level=pod_level, overhead=False)
    # Upstream sums the limits that some containers have, though the others have none.
    if not quirks.sandbox_limits_are_partial_sums:
        limits = {name: limits[name] for name in limits if declares_limit(pod, name, pod_level=pod_level)}
    own = linux_resources(
        requests.get("cpu"),
        limits.get("cpu", ZERO),
        limits.get("memory", ZERO),
        settings,
        gates,
        quota_disabled=quota_disabled,
    )
    return Sandbox(own, sandbox_overhead(pod, gates, settings))


def sandbox_overhead(pod: Pod, gates: Mapping[str, bool], settings: CgroupSettings) -> LinuxResources:
    """Return the overhead as if it were a container's request and limit."""
    overhead = pod.spec.overhead
    if overhead is None:
        return LinuxResources()
    cpu = overhead.get("cpu")
    return linux_resources(cpu, cpu or ZERO, overhead.get("memory", ZERO), settings, gates)


def sandbox_update(pod: Pod, cgroup: PodCgroup, gates: Mapping[str, bool], settings: CgroupSettings) -> Sandbox:
    """Return the values that a resize announces to the runtime: those set in the pod's cgroup, less the overhead.

    Upstream subtracts even where the quota means "no limit", so CFS quota off gives numbers below -1, and leaves out a
    memory overhead that is written with a fraction.
    """
    overhead = pod.spec.overhead or {}
    milli = overhead.get("cpu", ZERO).milli_value()
    shares, quota, memory = cgroup.cpu_shares, cgroup.cpu_quota or 0, cgroup.memory or 0
    if milli:
        shares = milli_cpu_to_shares(shares_to_milli_cpu(shares) - milli)
    if cgroup.cpu_quota is not None:
        quota -= milli_cpu_to_quota(milli, settings.quota_period(gates))
    if cgroup.memory is not None:
        memory = wrap_int64(memory - (overhead.get("memory", ZERO).as_int64() or 0))
    own = LinuxResources(cpu_period=cgroup.cpu_period or 0, cpu_quota=quota, cpu_shares=shares, memory_limit=memory)
    return Sandbox(own, sandbox_overhead(pod, gates, settings))
