"""Kubernetes 1.37, as it differs from 1.36: from release notes, documentation and tests, until it can be recorded."""

from __future__ import annotations

from podslice.values.releases.release import Row
from podslice.values.releases.v1_36 import RELEASE as BEFORE

_GATES = """
DRAExtendedResource g+!
HugepageAwareEviction b+
InPlacePodVerticalScalingInitContainers g+!
MemoryQoS b+
NodeDeclaredFeatures g+!
PerPodPIDLimit a-
PodLevelResourceManagers b-
PodLevelResourcesFixDefaulting b+
PodLevelResourcesFixKubeletQOSClass b+
"""

_NEEDS = """
PodLevelResourcesFixDefaulting PodLevelResources
"""

_ROWS = (
    Row(
        "state files",
        "V2 or V3, V1 or V2",
        "V4 and V3: the older members with their checksum, then `data`",
        "specification",
        "always",
        facts=("state_files",),
    ),
    Row(
        "gate MemoryQoS",
        "alpha, off",
        "beta, on",
        "announced",
        "always",
        gates=("MemoryQoS",),
    ),
    Row(
        "gate PodLevelResourceManagers",
        "alpha, off",
        "beta, off",
        "announced",
        "pod level",
        gates=("PodLevelResourceManagers",),
    ),
    Row(
        "empty `spec.resources`; limits of pods with pod-level requests",
        "decides the QoS class; not defaulted",
        "does not; defaulted from containers",
        "announced",
        "pod level",
        gates=("PodLevelResourcesFixKubeletQOSClass", "PodLevelResourcesFixDefaulting"),
        quirks=("empty_resources_hide_containers", "pod_limits_not_defaulted"),
    ),
    Row(
        "shared containers of a managed pod in container scope",
        "need memory of their own",
        "need none",
        "announced",
        "pod level",
        quirks=("shared_containers_need_memory",),
    ),
    Row(
        "`distribute-cpus-across-numa` where the merge chose more NUMA nodes than the CPUs need",
        "takes the fewest",
        "takes all that the merge chose",
        "specification",
        "options",
        quirks=("distribution_shrinks_affinity",),
    ),
    Row(
        "PodResources `List` and `Get` of containers on their pod's shared pool",
        "name the pool as their CPUs",
        "name none",
        "specification",
        "pod level",
        quirks=("pod_pool_is_listed",),
    ),
    Row(
        "field `defaultPodSysctls`",
        "ignored",
        "known",
        "specification",
        "fields",
    ),
    Row(
        "`memoryThrottlingFactor` that is not set",
        "0.9",
        "nothing is throttled",
        "announced",
        "always",
        facts=("throttling_factor",),
    ),
    Row(
        "requests of a pod of which several containers are resized",
        "the largest of each container, added up",
        "the largest sum",
        "specification",
        "always",
        facts=("running_sums_by_container",),
    ),
    Row(
        "`memory.available` of evictions",
        "counts free huge pages",
        "does not, by gate HugepageAwareEviction",
        "announced",
        "always",
        gates=("HugepageAwareEviction",),
    ),
    Row(
        "cgroups and OOM scores of pods with counted claims",
        "by their specification",
        "with their claims",
        "announced",
        "always",
    ),
    Row(
        "metrics `resource_manager_…`",
        "alpha",
        "beta, `kubelet_resource_manager_…`",
        "announced",
        "always",
    ),
)

RELEASE = BEFORE.next(
    proof="specification",
    rows=_ROWS,
    gates=_GATES,
    needs=_NEEDS,
    config_fields={"v1beta1.KubeletConfiguration": "map[string]string: defaultPodSysctls"},
    throttling_factor=None,
    running_sums_by_container=False,
    state_files="v4",
)
