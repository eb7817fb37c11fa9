"""Kubernetes 1.35, as it differs from 1.34."""

from __future__ import annotations

from podslice.values.releases.release import Row
from podslice.values.releases.v1_34 import RELEASE as BEFORE

_GATES = """
AggregatedDiscoveryRemoveBetaType d+!
AllowOverwriteTerminationGracePeriodSeconds d-!
AllowServiceLBStatusOnNonLB gone
AuthorizePodWebsocketUpgradeCreatePermission b+
CRDObservedGenerationTracking b-
CSIServiceAccountTokenSecrets b+
ChangeContainerStatusOnKubeletRestart d-
ClearingNominatedNodeNameAfterBinding b+
CloudControllerManagerWatchBasedRoutesReconciliation a-
ConstrainedImpersonation a-
ContainerRestartRules b+
CronJobsScheduledAnnotation gone
DRADeviceTaintRules a-
DeploymentReplicaSetTerminatingReplicas b+
DisableAllocatorDualWrite g+!
DynamicResourceAllocation g+!
EnvFiles b+
ExecProbeTimeout g+!
GangScheduling a-
GenericWorkload a-
HPAConfigurableTolerance b+
HostnameOverride b+
ImageMaximumGCAge g+!
ImageVolume b+
InOrderInformersBatchProcess b+
InPlacePodLevelResourcesVerticalScaling a-
InPlacePodVerticalScaling g+!
InformerResourceVersion g+
JobManagedBy g+!
KubeletCrashLoopBackOffMax b+
KubeletEnsureSecretPulledImages b+
LoadBalancerIPMode gone
MaxUnavailableStatefulSet b-
MutableCSINodeAllocatableCount b+
MutablePVNodeAffinity a-
MutablePodResourcesForSuspendedJobs a-
MutableSchedulingDirectivesForSuspendedJobs a-
NodeDeclaredFeatures a-
NominatedNodeNameForExpectation b+
OpportunisticBatching b+
PodCertificateRequest b-
PodIndexLabel gone
PodObservedGenerationTracking g+!
PodTopologyLabelsAdmission b+
PreferSameTrafficDistribution g+!
ProbeHostPodSecurityStandards gone
RestartAllContainersOnContainerExits a-
SizeMemoryBackedVolumes gone
StatefulSetAutoDeletePVC gone
StorageVersionMigrator b-
StrictCostEnforcementForVAP gone
StrictCostEnforcementForWebhooks gone
StructuredAuthenticationConfigurationJWKSMetrics b+
SupplementalGroupsPolicy g+!
SystemdWatchdog g+!
TaintTolerationComparisonOperators a-
UserNamespacesHostNetworkSupport a-
UserNamespacesPodSecurityStandards gone
VolumeLimitScaling a-
WatchListClient b+
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
DRAPartitionableDevices DynamicResourceAllocation
DRAPrioritizedList DynamicResourceAllocation
DRASchedulerFilterTimeout DynamicResourceAllocation
DeclarativeValidationTakeover DeclarativeValidation
DisableAllocatorDualWrite MultiCIDRServiceAllocator
GangScheduling GenericWorkload
GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources
InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
PodCertificateRequest AuthorizeNodeWithSelectors
PodLifecycleSleepActionAllowZero PodLifecycleSleepAction
ProcMountType UserNamespacesSupport
ResourceHealthStatus DynamicResourceAllocation
RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
StorageVersionAPI APIServerIdentity
StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfiguration
StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthenticationConfiguration
UnknownVersionInteroperabilityProxy APIServerIdentity
UserNamespacesHostNetworkSupport NodeDeclaredFeatures UserNamespacesSupport
WindowsGracefulNodeShutdown GracefulNodeShutdown
"""

_ROWS = (
    Row(
        "`strict-cpu-reservation`, `max-allowable-numa-nodes`",
        "beta",
        "stable",
        "recorded",
        "options",
    ),
    Row(
        "gates that need others",
        "not checked",
        "does not start",
        "recorded",
        "gates",
    ),
    Row(
        "a host with cgroup v1",
        "starts unless `failCgroupV1: true`",
        "does not start unless `failCgroupV1: false`",
        "specification",
        "always",
        facts=("runs_on_cgroup_v1",),
    ),
    Row(
        "CPU and memory of a pod that is admitted again",
        "`allocatedResources` of its status",
        "its specification",
        "specification",
        "static",
        facts=("allocated_status_wins",),
    ),
    Row(
        "resize of pods with pod-level resources",
        "refused by the API server",
        "with gate InPlacePodLevelResourcesVerticalScaling, alpha",
        "specification",
        "pod level",
        facts=("resizes_pod_level",),
    ),
    Row(
        "file `actuated_pods_state`; events of resizes",
        "there; ResizeCompleted",
        "gone; ResizeStarted, -Deferred, -Infeasible and -Completed",
        "specification",
        "always",
    ),
)

RELEASE = BEFORE.next(
    proof="recorded",
    rows=_ROWS,
    gates=_GATES,
    needs=_NEEDS,
    cpu_options={"strict-cpu-reservation": "stable"},
    topology_options={"max-allowable-numa-nodes": "stable"},
    runs_on_cgroup_v1=False,
    resizes_pod_level=True,
    allocated_status_wins=False,
)
