"""Kubernetes 1.36, as it differs from 1.35: the release of docs/development/spec."""

from __future__ import annotations

from podslice.values.releases.v1_35 import RELEASE as BEFORE

_GATES = """
AllowServiceExternalIPs g+
AtomicFIFO b+
CRDObservedGenerationTracking b+
CRIListStreaming a-
CSIMigrationPortworx gone
CSIServiceAccountTokenSecrets g+!
ClientsAllowCARotation b+
ClientsAllowTLSCacheGC b+
ComponentFlagz b+
ComponentStatusz b+
ConstrainedImpersonation b+
ControllerManagerReleaseLeaderElectionLockOnExit a-
CustomCPUCFSQuotaPeriod g+
DRAAdminAccess g+!
DRAConsumableCapacity b+
DRADeviceBindingConditions b+
DRADeviceTaintRules b-
DRADeviceTaints b+
DRAExtendedResource b+
DRAListTypeAttributes a-
DRANodeAllocatableResources a-
DRAPartitionableDevices b+
DRAPrioritizedList g+
DRAResourceClaimGranularStatusAuthorization b+
DRAResourcePoolStatus a-
DRAWorkloadResourceClaims a-
DeclarativeValidation g+!
DeclarativeValidationBeta b+
DeclarativeValidationTakeover d-
DisableCPUQuotaWithExclusiveCPUs d+
DisableNodeKubeProxyVersion d+!
ExtendWebSocketsToKubelet b+
ExternalServiceAccountTokenSigner g+!
GitRepoVolumeDriver d-!
HonorPVReclaimPolicy gone
ImageVolume g+!
ImageVolumeWithDigest a-
InOrderInformers g+!
InPlacePodLevelResourcesVerticalScaling b+
InPlacePodVerticalScalingAllocatedStatus gone
InPlacePodVerticalScalingInitContainers b+
InTreePluginPortworxUnregister gone
KubeletFineGrainedAuthz g+!
KubeletPSI g+!
KubeletPodResourcesDynamicResources g+!
KubeletPodResourcesGet g+!
ManifestBasedAdmissionControlConfig a-
MemoryManager gone
MutableCSINodeAllocatableCount g+!
MutablePodResourcesForSuspendedJobs b+
MutableSchedulingDirectivesForSuspendedJobs b+
MutatingAdmissionPolicy g+
NativeHistograms a-
NodeDeclaredFeatures b+
NodeLogQuery g+!
PLEGOnDemandRelist b+
PersistentVolumeClaimUnusedSinceTime a-
PodLevelResourceManagers a-
PodsAPI a-
ProcMountType g+!
RelaxedServiceNameValidation b+
ReloadKubeletClientCAFile b+
ResourceHealthStatus b+
ResourceHealthStatusMessage b+
RestartAllContainersOnContainerExits b+
SELinuxChangePolicy g+!
SELinuxMountReadWriteOncePod g+!
SeparateCacheWatchRPC d-!
ServiceCIDRStatusFieldWiping d+
ServiceTrafficDistribution gone
ShardedListAndWatch a-
StaleControllerConsistencyDaemonSet b+
StaleControllerConsistencyJob b+
StaleControllerConsistencyReplicaSet b+
StaleControllerConsistencyStatefulSet b+
StrictIPCIDRValidation b+
StructuredAuthorizationConfiguration gone
TopologyAwareHints gone
TopologyAwareWorkloadScheduling a-
TopologyManagerPolicyOptions g+!
UnknownVersionInteroperabilityProxy b+
UnlockWhileProcessingFIFO b+
UserNamespacesSupport g+!
VolumeAttributesClass g+!
WatchCacheInitializationPostStartHook b+
WatchFromStorageWithoutResourceVersion gone
WatchList b+
WorkloadAwarePreemption a-
WorkloadWithJob a-
"""

_NEEDS = """
DRAListTypeAttributes DynamicResourceAllocation
DRANodeAllocatableResources DynamicResourceAllocation
DRAResourceClaimGranularStatusAuthorization DRAResourceClaimDeviceStatus DynamicResourceAllocation
DRAResourcePoolStatus DynamicResourceAllocation
DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
DeclarativeValidationBeta DeclarativeValidation
ExtendWebSocketsToKubelet NodeDeclaredFeatures
ImageVolumeWithDigest ImageVolume
InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
PodLevelResourceManagers PodLevelResources
ResourceHealthStatusMessage ResourceHealthStatus
StaleControllerConsistencyDaemonSet AtomicFIFO
StaleControllerConsistencyJob AtomicFIFO
StaleControllerConsistencyReplicaSet AtomicFIFO
StaleControllerConsistencyStatefulSet AtomicFIFO
TopologyAwareWorkloadScheduling GenericWorkload
WorkloadAwarePreemption GangScheduling
WorkloadWithJob GenericWorkload
"""

RELEASE = BEFORE.next(
    proof="recorded",
    gates=_GATES,
    needs=_NEEDS,
    cpu_options={"prefer-align-cpus-by-uncorecache": "stable"},
    has_pod_level_managers=True,
    resizes_static_pods=True,
    pod_level_pods="ignored",
    device_hints_on_nodes_with_devices=True,
    state_files="v3",
)
