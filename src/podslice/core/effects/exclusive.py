"""CPU quota and exclusive CPUs (cpu-topology 6.9; pod-level-resources 8.3): who owns CPUs is not throttled on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from podslice.core.pod.demand import containers_in_order, is_pod_level_resources_set
from podslice.core.pod.spec import Pod


def quota_disabled(owns_cpus: bool, gates: Mapping[str, bool]) -> bool:
    """True when a container's CPU quota is off."""
    return owns_cpus and gates["DisableCPUQuotaWithExclusiveCPUs"]


def pod_quota_disabled(pod: Pod, gates: Mapping[str, bool], owners: Collection[str]) -> bool:
    """True when the CPU quota of the pod's cgroup and sandbox is off; `owners` are its containers that own CPUs.

    One owner is enough, because its CPUs may not be throttled by the pod. Where the managers look after the pod as a
    whole (gate PodLevelResourceManagers), it takes all of them: the others still share the pod's budget.
    """
    owning = (container.name in owners for container in containers_in_order(pod))
    managed = is_pod_level_resources_set(pod) and gates["PodLevelResourceManagers"]
    return quota_disabled(all(owning) if managed else any(owning), gates)
