"""Kubernetes 1.32, as it differs from 1.31."""

from __future__ import annotations

from podslice.values.releases.v1_31 import RELEASE as BEFORE

_GATES = """
AllowOverwriteTerminationGracePeriodSeconds d-
AllowServiceLBStatusOnNonLB d-!
AllowUnsafeMalformedObjectDeletion a-
AnonymousAuthConfigurableEndpoints b+
AuthorizeNodeWithSelectors b+
AuthorizeWithSelectors b+
BtreeWatchCache b+
CBORServingAndStorage a-
CloudDualStackNodeIPs gone
ComponentFlagz a-
ComponentStatusz a-
CronJobsScheduledAnnotation g+!
CustomResourceFieldSelectors g+!
DRAAdminAccess a-
DRAControlPlaneController gone
DRAResourceClaimDeviceStatus a-
DynamicResourceAllocation b-
ExternalServiceAccountTokenSigner a-
HPAContainerMetrics gone
InPlacePodVerticalScalingAllocatedStatus a-
InPlacePodVerticalScalingExclusiveCPUs a-
JobManagedBy b+
KMSv2 gone
KMSv2KDF gone
KubeletCrashLoopBackOffMax a-
KubeletFineGrainedAuthz a-
KubeletRegistrationGetOnExistsOnly d-
LegacyServiceAccountTokenCleanUp gone
LoadBalancerIPMode g+!
MemoryManager g+!
MinDomainsInPodTopologySpread gone
NewVolumeManagerReconstruction gone
NodeLogQuery b+
NodeOutOfServiceVolumeDetach gone
PodHostIPs gone
PodIndexLabel g+!
PodLevelResources a-
PodLifecycleSleepActionAllowZero a-
PodLogsQuerySplitStreams a-
RecoverVolumeExpansionFailure b+
RelaxedDNSSearchValidation a-
RelaxedEnvironmentVariableValidation b+
RemoteRequestHeaderUID a-
RetryGenerateName g+!
SELinuxChangePolicy a-
SchedulerAsyncPreemption a-
SchedulerQueueingHints b+
ServerSideApply gone
ServerSideFieldValidation gone
ServiceAccountNodeAudienceRestriction b-
ServiceAccountTokenJTI g+!
ServiceAccountTokenNodeBindingValidation g+!
ServiceAccountTokenPodNodeInfo g+!
SizeMemoryBackedVolumes g+!
StableLoadBalancerNodeSet gone
StatefulSetAutoDeletePVC g+!
StreamingCollectionEncodingToJSON b-
StreamingCollectionEncodingToProtobuf b-
StrictCostEnforcementForVAP g+!
StrictCostEnforcementForWebhooks g+!
StructuredAuthorizationConfiguration g+!
SystemdWatchdog b+
TopologyManagerPolicyOptions g+
ValidatingAdmissionPolicy gone
WatchList b+
WindowsCPUAndMemoryAffinity a-
WindowsGracefulNodeShutdown a-
ZeroLimitedNominalConcurrencyShares gone
"""

RELEASE = BEFORE.next(
    proof="recorded",
    gates=_GATES,
    cpu_options={"strict-cpu-reservation": "Alpha", "prefer-align-cpus-by-uncorecache": "Alpha"},
    topology_options={"prefer-closest-numa-nodes": "stable"},
    pod_under_admission_stays=False,
    smt_shortage_names_free_cores=True,
    memory_groups_are_compared=True,
    memory_groups_are_kept=True,
    sidecars_outlive_apps=True,
    enforces_compressible=True,
)
