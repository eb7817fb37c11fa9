"""What a kubelet granted to a pod, or last wrote into its cgroups (pod-level-resources 15.4)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.pod.spec import ResourceRequirements


class PodAllocation(msgspec.Struct, frozen=True):
    """Resources of one pod: by container name, and of the pod as a whole (None: the pod has no `spec.resources`, or
    the kubelet does not resize at pod level)."""

    containers: Mapping[str, ResourceRequirements] = {}
    pod_level: ResourceRequirements | None = None
