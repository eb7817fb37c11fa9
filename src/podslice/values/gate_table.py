"""The feature gates of Kubernetes 1.33 to 1.36: when each has which stage, default and lock.

Read from what the components of v1.36.2 report of themselves, emulating the older versions; a gate that was removed
before 1.36 is not here. One line per gate: its name, then for every minor version at which something changes the
number, the stage (`a`lpha, `b`eta, `g`eneral, `d`eprecated), `+` for on by default or `-`, and `!` where that is
locked.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

OLDEST, NEWEST = 33, 36
"""First and last minor version of Kubernetes 1.x in the table."""

_STAGES = {"a": "ALPHA", "b": "BETA", "g": "", "d": "DEPRECATED"}
_TABLE = """
APIResponseCompression 33b+
APIServerIdentity 33b+
APIServerTracing 33b+ 34g+!
APIServingWithRoutine 33a-
AggregatedDiscoveryRemoveBetaType 33d+ 35d+!
AllAlpha 33a-
AllBeta 33b-
AllowDNSOnlyNodeCSR 33d-
AllowInsecureKubeletCertificateSigningRequests 33d-
AllowOverwriteTerminationGracePeriodSeconds 33d- 35d-!
AllowParsingUserUIDFromCertAuth 33b+
AllowServiceExternalIPs 33g+
AllowUnsafeMalformedObjectDeletion 33a-
AnonymousAuthConfigurableEndpoints 33b+ 34g+!
AnyVolumeDataSource 33g+!
AtomicFIFO 36b+
AuthorizeNodeWithSelectors 33b+ 34g+!
AuthorizePodWebsocketUpgradeCreatePermission 35b+
AuthorizeWithSelectors 33b+ 34g+!
BtreeWatchCache 33g+!
CBORServingAndStorage 33a-
CPUManagerPolicyAlphaOptions 33a-
CPUManagerPolicyBetaOptions 33b+
CPUManagerPolicyOptions 33g+!
CRDObservedGenerationTracking 35b- 36b+
CRDValidationRatcheting 33g+!
CRIListStreaming 36a-
CSIServiceAccountTokenSecrets 35b+ 36g+!
CSIVolumeHealth 33a-
ChangeContainerStatusOnKubeletRestart 33g+ 35d-
ClearingNominatedNodeNameAfterBinding 34a- 35b+
ClientsAllowCARotation 36b+
ClientsAllowCBOR 33a-
ClientsAllowTLSCacheGC 36b+
ClientsPreferCBOR 33a-
CloudControllerManagerWatchBasedRoutesReconciliation 35a-
CloudControllerManagerWebhook 33a-
ClusterTrustBundle 33b-
ClusterTrustBundleProjection 33b-
ComponentFlagz 33a- 36b+
ComponentStatusz 33a- 36b+
ConcurrentWatchObjectDecode 33b-
ConsistentListFromCache 33b+ 34g+!
ConstrainedImpersonation 35a- 36b+
ContainerCheckpoint 33b+
ContainerRestartRules 34a- 35b+
ContainerStopSignals 33a-
ContextualLogging 33b+
ControllerManagerReleaseLeaderElectionLockOnExit 36a-
ContextualLogging 33b+
CoordinatedLeaderElection 33b-
CrossNamespaceVolumeDataSource 33a-
CustomCPUCFSQuotaPeriod 33a- 36g+
CustomResourceFieldSelectors 33g+!
DRAAdminAccess 33a- 34b+ 36g+!
DRAConsumableCapacity 34a- 36b+
DRADeviceBindingConditions 34a- 36b+
DRADeviceTaintRules 35a- 36b-
DRADeviceTaints 33a- 36b+
DRAExtendedResource 34a- 36b+
DRAListTypeAttributes 36a-
DRANodeAllocatableResources 36a-
DRAPartitionableDevices 33a- 36b+
DRAPrioritizedList 33a- 34b+ 36g+
DRAResourceClaimDeviceStatus 33b+
DRAResourceClaimGranularStatusAuthorization 36b+
DRAResourcePoolStatus 36a-
DRASchedulerFilterTimeout 34b+
DRAWorkloadResourceClaims 36a-
DeclarativeValidation 33b+ 36g+!
DeclarativeValidationBeta 36b+
DeclarativeValidationTakeover 33b- 36d-
DeploymentReplicaSetTerminatingReplicas 33a- 35b+
DetectCacheInconsistency 34b+
DisableAllocatorDualWrite 33b- 34g+ 35g+!
DisableCPUQuotaWithExclusiveCPUs 33b+ 36d+
DisableNodeKubeProxyVersion 33d+ 36d+!
DynamicResourceAllocation 33b- 34g+ 35g+!
EnvFiles 34a- 35b+
EventedPLEG 33a-
ExecProbeTimeout 33g+ 35g+!
ExtendWebSocketsToKubelet 36b+
ExternalServiceAccountTokenSigner 33a- 34b+ 36g+!
GangScheduling 35a-
GenericWorkload 35a-
GitRepoVolumeDriver 33d- 36d-!
GracefulNodeShutdown 33b+
GracefulNodeShutdownBasedOnPodPriority 33b+
HPAConfigurableTolerance 33a- 35b+
HPAScaleToZero 33a-
HostnameOverride 34a- 35b+
ImageMaximumGCAge 33b+ 35g+!
ImageVolume 33b- 35b+ 36g+!
ImageVolumeWithDigest 35a-
InOrderInformers 33b+ 36g+!
InOrderInformersBatchProcess 35b+
InPlacePodLevelResourcesVerticalScaling 35a- 36b+
InPlacePodVerticalScaling 33b+ 35g+!
InPlacePodVerticalScalingExclusiveCPUs 33a-
InPlacePodVerticalScalingExclusiveMemory 34a-
InPlacePodVerticalScalingInitContainers 36b+
InformerResourceVersion 33a- 35g+
JobBackoffLimitPerIndex 33g+!
JobManagedBy 33b+ 35g+!
JobPodReplacementPolicy 33b+ 34g+!
JobSuccessPolicy 33g+!
KMSv1 33d-
KubeletCgroupDriverFromCRI 33b+ 34g+!
KubeletCrashLoopBackOffMax 33a- 35b+
KubeletEnsureSecretPulledImages 33a- 35b+
KubeletFineGrainedAuthz 33b+ 36g+!
KubeletInUserNamespace 33a-
KubeletPSI 33a- 34b+ 36g+!
KubeletPodResourcesDynamicResources 33a- 34b+ 36g+!
KubeletPodResourcesGet 33a- 34b+ 36g+!
KubeletPodResourcesListUseActivePods 33g- 34d+
KubeletRegistrationGetOnExistsOnly 33d-
KubeletSeparateDiskGC 33b+
KubeletServiceAccountTokenForCredentialProviders 33a- 34b+
KubeletTracing 33b+ 34g+!
ListFromCacheSnapshot 33a- 34b+
LocalStorageCapacityIsolationFSQuotaMonitoring 33b-
LogarithmicScaleDown 33g+!
LoggingAlphaOptions 33a-
LoggingBetaOptions 33b+
LoggingAlphaOptions 33a-
LoggingBetaOptions 33b+
ManifestBasedAdmissionControlConfig 36a-
MatchLabelKeysInPodAffinity 33g+!
MatchLabelKeysInPodTopologySpread 33b+
MatchLabelKeysInPodTopologySpreadSelectorMerge 34b+
MaxUnavailableStatefulSet 33a- 35b-
MemoryQoS 33a-
MultiCIDRServiceAllocator 33g+ 34g+!
MutableCSINodeAllocatableCount 33a- 34b- 35b+ 36g+!
MutablePVNodeAffinity 35a-
MutablePodResourcesForSuspendedJobs 35a- 36b+
MutableSchedulingDirectivesForSuspendedJobs 35a- 36b+
MutatingAdmissionPolicy 33a- 34b- 36g+
NFTablesProxyMode 33g+!
NativeHistograms 36a-
NodeDeclaredFeatures 35a- 36b+
NodeInclusionPolicyInPodTopologySpread 33g+!
NodeLogQuery 33b+ 36g+!
NodeSwap 33b+ 34g+!
NominatedNodeNameForExpectation 34a- 35b+
OpenAPIEnums 33b+
OpportunisticBatching 35b+
OrderedNamespaceDeletion 33b+ 34g+!
PLEGOnDemandRelist 36b+
PersistentVolumeClaimUnusedSinceTime 36a-
PodAndContainerStatsFromCRI 33a-
PodCertificateRequest 34a- 35b-
PodDeletionCost 33b+
PodLevelResourceManagers 36a-
PodLevelResources 33a- 34b+
PodLifecycleSleepAction 33b+ 34g+!
PodLifecycleSleepActionAllowZero 33b+ 34g+!
PodLogsQuerySplitStreams 33a-
PodObservedGenerationTracking 33a- 34b+ 35g+!
PodReadyToStartContainersCondition 33b+
PodSchedulingReadiness 33g+!
PodTopologyLabelsAdmission 33a- 35b+
PodsAPI 36a-
PortForwardWebsockets 33b+
PreferSameTrafficDistribution 33a- 34b+ 35g+!
PreventStaticPodAPIReferences 34b+
ProcMountType 33b+ 36g+!
QOSReserved 33a-
RecoverVolumeExpansionFailure 33b+ 34g+!
RecursiveReadOnlyMounts 33g+!
ReduceDefaultCrashLoopBackOffDecay 33a-
RelaxedDNSSearchValidation 33b+ 34g+!
RelaxedEnvironmentVariableValidation 33b+ 34g+!
RelaxedServiceNameValidation 34a- 36b+
ReloadKubeletClientCAFile 36b+
ReloadKubeletServerCertificateFile 33b+
RemoteRequestHeaderUID 33b+
ResilientWatchCacheInitialization 33b+ 34g+!
ResourceHealthStatus 33a- 36b+
ResourceHealthStatusMessage 36b+
RestartAllContainersOnContainerExits 35a- 36b+
RetryGenerateName 33g+!
RotateKubeletServerCertificate 33b+
RuntimeClassInImageCriApi 33a-
SELinuxChangePolicy 33b+ 36g+!
SELinuxMount 33b-
SELinuxMountReadWriteOncePod 33b+ 36g+!
SchedulerAsyncAPICalls 34b-
SchedulerAsyncPreemption 33b+
SchedulerPopFromBackoffQ 33b+
SchedulerQueueingHints 33b+ 34g+!
SeparateCacheWatchRPC 33d- 36d-!
SeparateTaintEvictionController 33b+ 34g+!
ServiceAccountNodeAudienceRestriction 33b+
ServiceAccountTokenJTI 33g+!
ServiceAccountTokenNodeBinding 33g+!
ServiceAccountTokenNodeBindingValidation 33g+!
ServiceAccountTokenPodNodeInfo 33g+!
ServiceCIDRStatusFieldWiping 33g- 36d+
ShardedListAndWatch 36a-
SidecarContainers 33g+!
SizeBasedListCostEstimate 34b+
StaleControllerConsistencyDaemonSet 36b+
StaleControllerConsistencyJob 36b+
StaleControllerConsistencyReplicaSet 36b+
StaleControllerConsistencyStatefulSet 36b+
StatefulSetSemanticRevisionComparison 33b+
StorageCapacityScoring 33a-
StorageNamespaceIndex 33d+
StorageVersionAPI 33a-
StorageVersionHash 33b+
StorageVersionMigrator 33a- 35b-
StreamingCollectionEncodingToJSON 33b+ 34g+!
StreamingCollectionEncodingToProtobuf 33b+ 34g+!
StrictIPCIDRValidation 33a- 36b+
StructuredAuthenticationConfiguration 33b+ 34g+!
StructuredAuthenticationConfigurationEgressSelector 34b+
StructuredAuthenticationConfigurationJWKSMetrics 35b+
SupplementalGroupsPolicy 33b+ 35g+!
SystemdWatchdog 33b+ 35g+!
TaintTolerationComparisonOperators 35a-
TokenRequestServiceAccountUIDValidation 34b+
TopologyAwareWorkloadScheduling 36a-
TopologyManagerPolicyAlphaOptions 33a-
TopologyManagerPolicyBetaOptions 33b+
TopologyManagerPolicyOptions 33g+!
TranslateStreamCloseWebsocketRequests 33b+
UnauthenticatedHTTP2DOSMitigation 33b+
UnknownVersionInteroperabilityProxy 33a- 36b+
UnlockWhileProcessingFIFO 36b+
UserNamespacesHostNetworkSupport 35a-
UserNamespacesSupport 33b+ 36g+!
VolumeAttributesClass 33b- 34g+ 36g+!
VolumeLimitScaling 35a-
WatchCacheInitializationPostStartHook 33b- 36b+
WatchList 33b- 34b+
WatchListClient 33b- 35b+
WinDSR 33b+ 34g+!
WinOverlay 33b+ 34g+!
WindowsCPUAndMemoryAffinity 33a-
WindowsGracefulNodeShutdown 33a- 34b+
WindowsHostNetwork 33d-
WorkloadAwarePreemption 36a-
WorkloadWithJob 36a-
"""

_NEEDS = """
AuthorizeNodeWithSelectors AuthorizeWithSelectors
ClusterTrustBundleProjection ClusterTrustBundle
DRAAdminAccess DynamicResourceAllocation
DRAConsumableCapacity DynamicResourceAllocation
DRADeviceBindingConditions DRAResourceClaimDeviceStatus DynamicResourceAllocation
DRADeviceTaintRules DRADeviceTaints
DRADeviceTaints DynamicResourceAllocation
DRAExtendedResource DynamicResourceAllocation
DRAListTypeAttributes DynamicResourceAllocation
DRANodeAllocatableResources DynamicResourceAllocation
DRAPartitionableDevices DynamicResourceAllocation
DRAPrioritizedList DynamicResourceAllocation
DRAResourceClaimGranularStatusAuthorization DRAResourceClaimDeviceStatus DynamicResourceAllocation
DRAResourcePoolStatus DynamicResourceAllocation
DRASchedulerFilterTimeout DynamicResourceAllocation
DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
DeclarativeValidationBeta DeclarativeValidation
DeclarativeValidationTakeover DeclarativeValidation
DisableAllocatorDualWrite MultiCIDRServiceAllocator
ExtendWebSocketsToKubelet NodeDeclaredFeatures
GangScheduling GenericWorkload
GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
ImageVolumeWithDigest ImageVolume
InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources
InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
PodCertificateRequest AuthorizeNodeWithSelectors
PodLevelResourceManagers PodLevelResources
PodLifecycleSleepActionAllowZero PodLifecycleSleepAction
ProcMountType UserNamespacesSupport
ResourceHealthStatus DynamicResourceAllocation
ResourceHealthStatusMessage ResourceHealthStatus
RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
StaleControllerConsistencyDaemonSet AtomicFIFO
StaleControllerConsistencyJob AtomicFIFO
StaleControllerConsistencyReplicaSet AtomicFIFO
StaleControllerConsistencyStatefulSet AtomicFIFO
StorageVersionAPI APIServerIdentity
StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfiguration
StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthenticationConfiguration
TopologyAwareWorkloadScheduling GenericWorkload
UnknownVersionInteroperabilityProxy APIServerIdentity
UserNamespacesHostNetworkSupport NodeDeclaredFeatures UserNamespacesSupport
WindowsGracefulNodeShutdown GracefulNodeShutdown
WorkloadAwarePreemption GangScheduling
WorkloadWithJob GenericWorkload
"""
"""One line per gate of 1.36 that needs others: its name, then those. A component with the gate on and one of them off
does not start."""


class GateState(NamedTuple):
    """A gate in one version; `stage` is empty for general availability."""

    default: bool
    stage: str
    locked: bool


@cache
def gate_states(minor: int = NEWEST) -> dict[str, GateState]:
    """Return all gates of a version by name. Raises `KeyError` for a version outside the table."""
    if not OLDEST <= minor <= NEWEST:
        raise KeyError(minor)
    states = {}
    for line in _TABLE.strip().splitlines():
        name, *steps = line.split()
        for step in steps:
            if int(step[:2]) <= minor:
                states[name] = GateState("+" in step, _STAGES[step[2]], "!" in step)
    return states


@cache
def gate_dependencies() -> dict[str, tuple[str, ...]]:
    """Return the gates of 1.36 that each gate needs, by its name."""
    return {name: tuple(needed) for name, *needed in map(str.split, _NEEDS.strip().splitlines())}


def unknown_gate_hint(name: str, minor: int = NEWEST) -> str:
    """Return what to do about a gate that 1.`minor` does not have: the version that adds it, or the nearest name."""
    since = next((version for version in range(OLDEST, NEWEST + 1) if name in gate_states(version)), None)
    if since is not None and since > minor:
        return f"Kubernetes 1.{since} has it"
    close = get_close_matches(name, gate_states(minor), 1, 0.7)
    return f"did you mean {close[0]}?" if close else "remove it"


def gate_warnings(overrides: dict[str, bool], minor: int = NEWEST) -> list[str]:
    """Return the warnings a component logs about gates that are set and will be removed."""
    words = {"": "GA", "DEPRECATED": "deprecated"}
    states = gate_states(minor)
    return [
        f"Warning: setting {words[states[name].stage]} feature gate. It will be removed in a future release. "
        f'featureGate="{name}" value={str(value).lower()}'
        for name, value in sorted(overrides.items())
        if name in states and states[name].stage in words
    ]
