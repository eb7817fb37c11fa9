"""Kubernetes 1.33, as it differs from 1.32."""

from __future__ import annotations

from podslice.values.releases.v1_32 import RELEASE as BEFORE

_GATES = """
APIListChunking gone
AdmissionWebhookMatchConditions gone
AggregatedDiscoveryEndpoint gone
AggregatedDiscoveryRemoveBetaType d+
AllowParsingUserUIDFromCertAuth b+
AnyVolumeDataSource g+!
AppArmor gone
AppArmorFields gone
BtreeWatchCache g+!
CPUManager gone
CPUManagerPolicyOptions g+!
CRDValidationRatcheting g+!
CSIMigrationPortworx g+!
ClusterTrustBundle b-
ClusterTrustBundleProjection b-
ContainerStopSignals a-
CoordinatedLeaderElection b-
DRADeviceTaints a-
DRAPartitionableDevices a-
DRAPrioritizedList a-
DRAResourceClaimDeviceStatus b+
DeclarativeValidation b+
DeclarativeValidationTakeover b-
DeploymentReplicaSetTerminatingReplicas a-
DisableAllocatorDualWrite b-
DisableCPUQuotaWithExclusiveCPUs b+
DisableCloudProviders gone
DisableKubeletCloudCredentialProviders gone
DisableNodeKubeProxyVersion d+
EfficientWatchResumption gone
GitRepoVolumeDriver d-
HPAConfigurableTolerance a-
HonorPVReclaimPolicy g+!
ImageVolume b-
InPlacePodVerticalScaling b+
InPlacePodVerticalScalingAllocatedStatus d-
JobBackoffLimitPerIndex g+!
JobPodFailurePolicy gone
JobSuccessPolicy g+!
KubeProxyDrainingTerminatingNodes gone
KubeletEnsureSecretPulledImages a-
KubeletFineGrainedAuthz b+
KubeletPSI a-
KubeletServiceAccountTokenForCredentialProviders a-
LegacySidecarContainers d-
ListFromCacheSnapshot a-
MatchLabelKeysInPodAffinity g+!
MultiCIDRServiceAllocator g+
MutableCSINodeAllocatableCount a-
NFTablesProxyMode g+!
NodeInclusionPolicyInPodTopologySpread g+!
OrderedNamespaceDeletion b+
PDBUnhealthyPodEvictionPolicy gone
PersistentVolumeLastPhaseTransitionTime gone
PodLifecycleSleepActionAllowZero b+
PodObservedGenerationTracking a-
PodTopologyLabelsAdmission a-
PreferSameTrafficDistribution a-
ProcMountType b+
RecursiveReadOnlyMounts g+!
ReduceDefaultCrashLoopBackOffDecay a-
RelaxedDNSSearchValidation b+
RemainingItemCount gone
RemoteRequestHeaderUID b+
SELinuxChangePolicy b+
SELinuxMount b-
SchedulerAsyncPreemption b+
SchedulerPopFromBackoffQ b+
SeparateCacheWatchRPC d-
ServiceAccountNodeAudienceRestriction b+
ServiceAccountTokenNodeBinding g+!
ServiceTrafficDistribution g+!
SidecarContainers g+!
StorageCapacityScoring a-
StorageNamespaceIndex d+
StreamingCollectionEncodingToJSON b+
StreamingCollectionEncodingToProtobuf b+
StrictIPCIDRValidation a-
SupplementalGroupsPolicy b+
TopologyAwareHints g+!
UserNamespacesSupport b+
VolumeCapacityPriority gone
WatchBookmark gone
WatchFromStorageWithoutResourceVersion d-!
WatchList gone
WinDSR b+
WindowsHostNetwork d-
"""

RELEASE = BEFORE.next(
    proof="recorded",
    gates=_GATES,
    cpu_options={"full-pcpus-only": "stable", "strict-cpu-reservation": "Beta", "distribute-cpus-across-numa": "Beta"},
    counts_misalignment=True,
    exclusive_cpus_are_counted_once=True,
    lower_case_option_texts=True,
)
