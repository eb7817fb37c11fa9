"""Kubernetes 1.34, as it differs from 1.33."""

from __future__ import annotations

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

RELEASE = BEFORE.next(
    proof="recorded",
    gates=_GATES,
    cpu_options={"prefer-align-cpus-by-uncorecache": "Beta"},
    uncore_takes_odd_numbers=True,
    resizes_beside_static_managers=True,
    refuses_pod_level_resources=True,
    pod_level_pods="ignored with the gate",
)
