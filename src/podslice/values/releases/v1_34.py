"""Kubernetes 1.34, as it differs from 1.33."""

from __future__ import annotations

from podslice.values.releases.release import Row
from podslice.values.releases.v1_33 import RELEASE as BEFORE

_GATES = """
APIServerTracing g+!
AnonymousAuthConfigurableEndpoints g+!
AuthorizeNodeWithSelectors g+!
AuthorizeWithSelectors g+!
ClearingNominatedNodeNameAfterBinding a-
ConsistentListFromCache g+!
ContainerRestartRules a-
DRAAdminAccess b+
DRAConsumableCapacity a-
DRADeviceBindingConditions a-
DRAExtendedResource a-
DRAPrioritizedList b+
DRASchedulerFilterTimeout b+
DetectCacheInconsistency b+
DevicePluginCDIDevices gone
DisableAllocatorDualWrite g+
DynamicResourceAllocation g+
ElasticIndexedJob gone
EnvFiles a-
ExternalServiceAccountTokenSigner b+
HostnameOverride a-
InPlacePodVerticalScalingExclusiveMemory a-
JobPodReplacementPolicy g+!
KubeletCgroupDriverFromCRI g+!
KubeletPSI b+
KubeletPodResourcesDynamicResources b+
KubeletPodResourcesGet b+
KubeletPodResourcesListUseActivePods d+
KubeletServiceAccountTokenForCredentialProviders b+
KubeletTracing g+!
LegacySidecarContainers gone
ListFromCacheSnapshot b+
MatchLabelKeysInPodTopologySpreadSelectorMerge b+
MultiCIDRServiceAllocator g+!
MutableCSINodeAllocatableCount b-
MutatingAdmissionPolicy b-
NodeSwap g+!
NominatedNodeNameForExpectation a-
OrderedNamespaceDeletion g+!
PodCertificateRequest a-
PodDisruptionConditions gone
PodLevelResources b+
PodLifecycleSleepAction g+!
PodLifecycleSleepActionAllowZero g+!
PodObservedGenerationTracking b+
PreferSameTrafficDistribution b+
PreventStaticPodAPIReferences b+
ProbeHostPodSecurityStandards g+!
RecoverVolumeExpansionFailure g+!
RelaxedDNSSearchValidation g+!
RelaxedEnvironmentVariableValidation g+!
RelaxedServiceNameValidation a-
ResilientWatchCacheInitialization g+!
SchedulerAsyncAPICalls b-
SchedulerQueueingHints g+!
SeparateTaintEvictionController g+!
SizeBasedListCostEstimate b+
StatefulSetStartOrdinal gone
StreamingCollectionEncodingToJSON g+!
StreamingCollectionEncodingToProtobuf g+!
StructuredAuthenticationConfiguration g+!
StructuredAuthenticationConfigurationEgressSelector b+
TokenRequestServiceAccountUIDValidation b+
VolumeAttributesClass g+
WinDSR g+!
WinOverlay g+!
WindowsGracefulNodeShutdown b+
"""

_ROWS = (
    Row(
        "pods with pod-level resources",
        "judged by their containers",
        "ignored while the gate PodLevelResources is on",
        "recorded",
        "pod level",
        facts=("pod_level_pods",),
        gates=("PodLevelResources",),
    ),
    Row(
        "pods with pod-level resources while the gate is off",
        "ignores the field",
        "refuses them with `PodLevelResourcesNotSupported`",
        "specification",
        "pod level",
        facts=("refuses_pod_level_resources",),
    ),
    Row(
        "`prefer-align-cpus-by-uncorecache`",
        "alpha; parts of a cache are whole cores",
        "beta; any number",
        "recorded",
        "options",
        facts=("uncore_takes_odd_numbers",),
    ),
    Row(
        "resize of a Guaranteed pod beside a static manager",
        "infeasible, whatever changes",
        "infeasible where the manager's request changes; other texts",
        "specification",
        "static",
        facts=("resizes_beside_static_managers",),
    ),
    Row(
        "a lower memory limit without a restart",
        "refused by the API server",
        "best effort",
        "specification",
        "always",
        facts=("lowers_memory_limits",),
    ),
    Row(
        "message of an eviction for memory, of a pod with a pod-level request",
        "names containers",
        "names the pod too",
        "specification",
        "pod level",
        facts=("evictions_name_pods",),
    ),
    Row(
        "PodResources `List`",
        "all pods",
        "active pods",
        "specification",
        "always",
        gates=("KubeletPodResourcesListUseActivePods",),
    ),
    Row(
        "PodResources `Get`, and devices of claims in `List`",
        "off, unless gates are set",
        "on",
        "specification",
        "always",
        gates=(
            "KubeletPodResourcesGet",
            "KubeletPodResourcesDynamicResources",
        ),
    ),
    Row(
        "metrics of resizes",
        "none",
        "counted",
        "specification",
        "always",
    ),
)

RELEASE = BEFORE.next(
    proof="recorded",
    rows=_ROWS,
    gates=_GATES,
    cpu_options={"prefer-align-cpus-by-uncorecache": "Beta"},
    uncore_takes_odd_numbers=True,
    resizes_beside_static_managers=True,
    lowers_memory_limits=True,
    evictions_name_pods=True,
    refuses_pod_level_resources=True,
    pod_level_pods="ignored with the gate",
)
