"""Kubernetes 1.33, as it differs from 1.32."""

from __future__ import annotations

from podslice.values.releases.release import Row
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

_FIELDS = """
bool: mergeDefaultEvictionSettings
[]string: preloadedImagesVerificationAllowlist
v1beta1.ImagePullCredentialsVerificationPolicy=string: imagePullCredentialsVerificationPolicy
v1beta1.UserNamespaces: userNamespaces
"""

_ROWS = (
    Row(
        "CFS quota of containers with exclusive CPUs",
        "the limit",
        "none",
        "recorded",
        "static",
        gates=("DisableCPUQuotaWithExclusiveCPUs",),
    ),
    Row(
        "`full-pcpus-only`; `strict-cpu-reservation`, `distribute-cpus-across-numa`",
        "beta; alpha",
        "stable; beta",
        "recorded",
        "options",
    ),
    Row(
        "gate CPUManager",
        "locked on",
        "unknown: does not start",
        "specification",
        "always",
        gates=("CPUManager",),
    ),
    Row(
        "text of a gated Topology Manager option",
        "`Topology Manager Policy Beta-level Options`",
        "in lower case",
        "specification",
        "topology options",
        facts=("lower_case_option_texts",),
    ),
    Row(
        "metrics of failed alignment and of one uncore cache",
        "none",
        "counted",
        "recorded",
        "always",
        facts=("counts_misalignment",),
    ),
    Row(
        "number of exclusive CPUs after a start",
        "CPUs left by init containers count twice",
        "once",
        "recorded",
        "static",
        facts=("exclusive_cpus_are_counted_once",),
    ),
    Row(
        "fields `imagePullCredentialsVerificationPolicy`, `preloadedImagesVerificationAllowlist`, "
        "`mergeDefaultEvictionSettings`, `userNamespaces`",
        "ignored",
        "known",
        "specification",
        "fields",
    ),
    Row(
        "in-place resize",
        "off, unless a gate is set",
        "on",
        "specification",
        "always",
        gates=("InPlacePodVerticalScaling",),
    ),
    Row(
        "memory request of a container that can swap",
        "is resized",
        "is not, unless the container restarts",
        "specification",
        "swap",
        facts=("resizes_swapping_containers",),
    ),
    Row(
        "files of resized pods",
        "`pod_status_manager_state`",
        "`allocated_pods_state` and `actuated_pods_state`",
        "specification",
        "always",
    ),
)

RELEASE = BEFORE.next(
    proof="recorded",
    rows=_ROWS,
    gates=_GATES,
    cpu_options={"full-pcpus-only": "stable", "strict-cpu-reservation": "Beta", "distribute-cpus-across-numa": "Beta"},
    config_fields={"v1beta1.KubeletConfiguration": _FIELDS, "v1beta1.UserNamespaces": "int64: idsPerPod"},
    resizes_swapping_containers=False,
    counts_misalignment=True,
    exclusive_cpus_are_counted_once=True,
    lower_case_option_texts=True,
)
