"""Kubernetes 1.36, as it differs from 1.35: the release of docs/development/spec."""

from __future__ import annotations

from podslice.values.releases.release import Row
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

_ROWS = (
    Row(
        "device hints",
        "over all NUMA nodes",
        "over nodes with devices",
        "recorded",
        "devices",
        facts=("device_hints_on_nodes_with_devices",),
    ),
    Row(
        "pods with pod-level resources while the gate is off",
        "judged by their containers",
        "ignored",
        "recorded",
        "pod level",
        facts=("pod_level_pods",),
    ),
    Row(
        "gate PodLevelResourceManagers, its files V3 and V2, its metrics",
        "unknown",
        "alpha",
        "recorded",
        "always",
        facts=("has_pod_level_managers",),
        gates=("PodLevelResourceManagers",),
        quirks=("pod_allocation_repeats", "pod_entries_stay_lost", "assignment_metrics_drift", "pod_pool_is_listed"),
    ),
    Row(
        "`prefer-align-cpus-by-uncorecache`",
        "beta",
        "stable",
        "recorded",
        "options",
        facts=("uncore_takes_odd_numbers",),
    ),
    Row(
        "memory state file with checksum 0",
        "corrupted",
        "starts",
        "recorded",
        "memory",
        facts=("state_files",),
    ),
    Row(
        "CPU state file",
        "V1 is tried first",
        "V3, V2, then V1",
        "recorded",
        "static",
        facts=("state_files",),
    ),
    Row(
        "gate MemoryManager; TopologyManagerPolicyOptions",
        "locked on; may be false",
        "unknown; locked on",
        "recorded",
        "gates",
        gates=("MemoryManager", "TopologyManagerPolicyOptions"),
    ),
    Row(
        "resize of static pods",
        "infeasible",
        "tried",
        "specification",
        "always",
        facts=("resizes_static_pods",),
    ),
    Row(
        "fields `memoryReservationPolicy`, `tlsCurvePreferences`",
        "ignored",
        "known",
        "specification",
        "fields",
    ),
    Row(
        "gate MemoryQoS, where it is on",
        "`memory.min` for every request",
        "what `memoryReservationPolicy` says",
        "specification",
        "memory quality",
        facts=("protects_every_request",),
    ),
    Row(
        "`cpuCFSQuotaPeriod` other than 100ms",
        "needs gate CustomCPUCFSQuotaPeriod",
        "needs no gate",
        "specification",
        "period",
        gates=("CustomCPUCFSQuotaPeriod",),
    ),
    Row(
        "resize beyond the node",
        "the kubelet refuses: `Node didn't have enough capacity`",
        "the API server refuses",
        "specification",
        "always",
        facts=("refuses_resizes_beyond_node",),
        quirks=("resize_beyond_node_waits",),
    ),
    Row(
        "resize of pods with pod-level resources, of init containers",
        "alpha, off; never",
        "beta, on",
        "specification",
        "always",
        gates=(
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
        ),
    ),
)

RELEASE = BEFORE.next(
    proof="recorded",
    rows=_ROWS,
    gates=_GATES,
    needs=_NEEDS,
    cpu_options={"prefer-align-cpus-by-uncorecache": "stable"},
    config_fields={
        "v1beta1.KubeletConfiguration": "[]int32: tlsCurvePreferences\n"
        "v1beta1.MemoryReservationPolicy=string: memoryReservationPolicy"
    },
    has_pod_level_managers=True,
    protects_every_request=False,
    resizes_static_pods=True,
    refuses_resizes_beyond_node=False,
    pod_level_pods="ignored",
    device_hints_on_nodes_with_devices=True,
    state_files="v3",
)
