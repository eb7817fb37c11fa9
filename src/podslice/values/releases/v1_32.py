"""Kubernetes 1.32, as it differs from 1.31."""

from __future__ import annotations

from podslice.values.releases.release import Row
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

_ROWS = (
    Row(
        "a pod that was refused, or removed last",
        "keeps its CPUs until another pod comes",
        "is cleaned up at the next call",
        "specification",
        "static",
        facts=("pod_under_admission_stays",),
    ),
    Row(
        "options `strict-cpu-reservation`, `prefer-align-cpus-by-uncorecache`",
        "unknown",
        "alpha",
        "recorded",
        "options",
    ),
    Row(
        "`full-pcpus-only` where no core is free",
        '"not multiple cpus per core"',
        '"not enough free physical CPUs"',
        "specification",
        "whole cores",
        facts=("smt_shortage_names_free_cores",),
    ),
    Row(
        "memory of a group of NUMA nodes at a start",
        "compared node by node",
        "as a sum",
        "specification",
        "memory",
        facts=("memory_groups_are_compared",),
    ),
    Row(
        "a hint that breaks a group of NUMA nodes",
        "admitted",
        "refused",
        "specification",
        "memory",
        facts=("memory_groups_are_kept",),
    ),
    Row(
        "gate MemoryManager",
        "off: no Memory Manager",
        "locked on",
        "specification",
        "memory",
        gates=("MemoryManager",),
    ),
    Row(
        "`prefer-closest-numa-nodes`",
        "beta",
        "stable",
        "specification",
        "topology options",
    ),
    Row(
        "a sidecar's OOM score",
        "by its own request",
        "at most that of the smallest app container",
        "specification",
        "sidecars",
        facts=("sidecars_outlive_apps",),
    ),
    Row(
        "`enforceNodeAllocatable`",
        "no compressible keys",
        "`kube-` and `system-reserved-compressible`",
        "specification",
        "always",
        facts=("enforces_compressible",),
    ),
    Row(
        "fields `crashLoopBackOff`, `singleProcessOOMKill`",
        "ignored",
        "known",
        "specification",
        "fields",
    ),
    Row(
        "message of an eviction for memory",
        "names app containers",
        "init containers too",
        "specification",
        "always",
        facts=("evictions_name_init_containers",),
    ),
    Row(
        "metrics of refusals, of alignment, of exclusive and shared CPUs",
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
    cpu_options={"strict-cpu-reservation": "Alpha", "prefer-align-cpus-by-uncorecache": "Alpha"},
    topology_options={"prefer-closest-numa-nodes": "stable"},
    config_fields={
        "v1beta1.KubeletConfiguration": "bool: singleProcessOOMKill\nv1beta1.CrashLoopBackOffConfig: crashLoopBackOff",
        "v1beta1.CrashLoopBackOffConfig": "duration?: maxContainerRestartPeriod",
    },
    pod_under_admission_stays=False,
    smt_shortage_names_free_cores=True,
    memory_groups_are_compared=True,
    memory_groups_are_kept=True,
    sidecars_outlive_apps=True,
    enforces_compressible=True,
    evictions_name_init_containers=True,
)
