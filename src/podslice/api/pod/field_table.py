"""The field names of a Pod and of every kind that holds a pod template, as the API documentation of v1.36 lists them.

One line per type: its name, then its fields; a field of another type of the table names it after a colon. Types without
a line (text, numbers, quantities, maps, times) hold no fields of their own. Indented lines continue the one above.
"""

from __future__ import annotations

from functools import cache

_TABLE = """
AWSElasticBlockStoreVolumeSource: fsType partition readOnly volumeID
Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile: localhostProfile type
AzureDiskVolumeSource: cachingMode diskName diskURI fsType kind readOnly
AzureFileVolumeSource: readOnly secretName shareName
CSIVolumeSource: driver fsType nodePublishSecretRef:LocalObjectReference readOnly volumeAttributes
Capabilities: add drop
CephFSVolumeSource: monitors path readOnly secretFile secretRef:LocalObjectReference user
CinderVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeID
ClusterTrustBundleProjection: labelSelector:LabelSelector name optional path signerName
ConfigMapEnvSource: name optional
ConfigMapKeySelector: key name optional
ConfigMapProjection: items:[]KeyToPath name optional
ConfigMapVolumeSource: defaultMode items:[]KeyToPath name optional
Container: args command env:[]EnvVar envFrom:[]EnvFromSource image imagePullPolicy lifecycle:Lifecycle
  livenessProbe:Probe name ports:[]ContainerPort readinessProbe:Probe resizePolicy:[]ContainerResizePolicy
  resources:ResourceRequirements restartPolicy restartPolicyRules:[]ContainerRestartRule
  securityContext:SecurityContext startupProbe:Probe stdin stdinOnce terminationMessagePath terminationMessagePolicy
  tty volumeDevices:[]VolumeDevice volumeMounts:[]VolumeMount workingDir
ContainerExtendedResourceRequest: containerName requestName resourceName
ContainerPort: containerPort hostIP hostPort name protocol
ContainerResizePolicy: resourceName restartPolicy
ContainerRestartRule: action exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator values
ContainerState: running:ContainerStateRunning terminated:ContainerStateTerminated waiting:ContainerStateWaiting
ContainerStateRunning: startedAt
ContainerStateTerminated: containerID exitCode finishedAt message reason signal startedAt
ContainerStateWaiting: message reason
ContainerStatus: allocatedResources allocatedResourcesStatus:[]ResourceStatus containerID image imageID
  lastState:ContainerState name ready resources:ResourceRequirements restartCount started state:ContainerState
  stopSignal user:ContainerUser volumeMounts:[]VolumeMountStatus
ContainerUser: linux:LinuxContainerUser
CronJob: apiVersion kind metadata:ObjectMeta spec:CronJobSpec status:CronJobStatus
CronJobSpec: concurrencyPolicy failedJobsHistoryLimit jobTemplate:JobTemplateSpec schedule startingDeadlineSeconds
  successfulJobsHistoryLimit suspend timeZone
CronJobStatus: active:[]ObjectReference lastScheduleTime lastSuccessfulTime
DaemonSet: apiVersion kind metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetCondition: lastTransitionTime message reason status type
DaemonSetSpec: minReadySeconds revisionHistoryLimit selector:LabelSelector template:PodTemplateSpec
  updateStrategy:DaemonSetUpdateStrategy
DaemonSetStatus: collisionCount conditions:[]DaemonSetCondition currentNumberScheduled desiredNumberScheduled
  numberAvailable numberMisscheduled numberReady numberUnavailable observedGeneration updatedNumberScheduled
DaemonSetUpdateStrategy: rollingUpdate:RollingUpdateDaemonSet type
Deployment: apiVersion kind metadata:ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DeploymentCondition: lastTransitionTime lastUpdateTime message reason status type
DeploymentSpec: minReadySeconds paused progressDeadlineSeconds replicas revisionHistoryLimit selector:LabelSelector
  strategy:DeploymentStrategy template:PodTemplateSpec
DeploymentStatus: availableReplicas collisionCount conditions:[]DeploymentCondition observedGeneration readyReplicas
  replicas terminatingReplicas unavailableReplicas updatedReplicas
DeploymentStrategy: rollingUpdate:RollingUpdateDeployment type
DownwardAPIProjection: items:[]DownwardAPIVolumeFile
DownwardAPIVolumeFile: fieldRef:ObjectFieldSelector mode path resourceFieldRef:ResourceFieldSelector
DownwardAPIVolumeSource: defaultMode items:[]DownwardAPIVolumeFile
EmptyDirVolumeSource: medium sizeLimit
EnvFromSource: configMapRef:ConfigMapEnvSource prefix secretRef:SecretEnvSource
EnvVar: name value valueFrom:EnvVarSource
EnvVarSource: configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
  resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralContainer: args command env:[]EnvVar envFrom:[]EnvFromSource image imagePullPolicy lifecycle:Lifecycle
  livenessProbe:Probe name ports:[]ContainerPort readinessProbe:Probe resizePolicy:[]ContainerResizePolicy
  resources:ResourceRequirements restartPolicy restartPolicyRules:[]ContainerRestartRule
  securityContext:SecurityContext startupProbe:Probe stdin stdinOnce targetContainerName terminationMessagePath
  terminationMessagePolicy tty volumeDevices:[]VolumeDevice volumeMounts:[]VolumeMount workingDir
EphemeralVolumeSource: volumeClaimTemplate:PersistentVolumeClaimTemplate
ExecAction: command
FCVolumeSource: fsType lun readOnly targetWWNs wwids
FileKeySelector: key optional path volumeName
FlexVolumeSource: driver fsType options readOnly secretRef:LocalObjectReference
FlockerVolumeSource: datasetName datasetUUID
GCEPersistentDiskVolumeSource: fsType partition pdName readOnly
GRPCAction: port service
GitRepoVolumeSource: directory repository revision
GlusterfsVolumeSource: endpoints path readOnly
HTTPGetAction: host httpHeaders:[]HTTPHeader path port scheme
HTTPHeader: name value
HostAlias: hostnames ip
HostIP: ip
HostPathVolumeSource: path type
ISCSIVolumeSource: chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun portals readOnly
  secretRef:LocalObjectReference targetPortal
ImageVolumeSource: pullPolicy reference
ImageVolumeStatus: imageRef
Job: apiVersion kind metadata:ObjectMeta spec:JobSpec status:JobStatus
JobCondition: lastProbeTime lastTransitionTime message reason status type
JobSpec: activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy manualSelector
  maxFailedIndexes parallelism podFailurePolicy:PodFailurePolicy podReplacementPolicy selector:LabelSelector
  successPolicy:SuccessPolicy suspend template:PodTemplateSpec ttlSecondsAfterFinished
JobStatus: active completedIndexes completionTime conditions:[]JobCondition failed failedIndexes ready startTime
  succeeded terminating uncountedTerminatedPods:UncountedTerminatedPods
JobTemplateSpec: metadata:ObjectMeta spec:JobSpec
KeyToPath: key mode path
LabelSelector: matchExpressions:[]LabelSelectorRequirement matchLabels
LabelSelectorRequirement: key operator values
Lifecycle: postStart:LifecycleHandler preStop:LifecycleHandler stopSignal
LifecycleHandler: exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LinuxContainerUser: gid supplementalGroups uid
LocalObjectReference: name
ManagedFieldsEntry: apiVersion fieldsType fieldsV1 manager operation subresource time
ModifyVolumeStatus: status targetVolumeAttributesClassName
NFSVolumeSource: path readOnly server
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeAllocatableResourceClaimStatus: containers resourceClaimName resources
NodeSelector: nodeSelectorTerms:[]NodeSelectorTerm
NodeSelectorRequirement: key operator values
NodeSelectorTerm: matchExpressions:[]NodeSelectorRequirement matchFields:[]NodeSelectorRequirement
ObjectFieldSelector: apiVersion fieldPath
ObjectMeta: annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName
  generation labels managedFields:[]ManagedFieldsEntry name namespace ownerReferences:[]OwnerReference
  resourceVersion selfLink uid
ObjectReference: apiVersion fieldPath kind name namespace resourceVersion uid
OwnerReference: apiVersion blockOwnerDeletion controller kind name uid
PersistentVolumeClaim: apiVersion kind metadata:ObjectMeta spec:PersistentVolumeClaimSpec
  status:PersistentVolumeClaimStatus
PersistentVolumeClaimCondition: lastProbeTime lastTransitionTime message reason status type
PersistentVolumeClaimSpec: accessModes dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
  resources:VolumeResourceRequirements selector:LabelSelector storageClassName volumeAttributesClassName volumeMode
  volumeName
PersistentVolumeClaimStatus: accessModes allocatedResourceStatuses allocatedResources capacity
  conditions:[]PersistentVolumeClaimCondition currentVolumeAttributesClassName modifyVolumeStatus:ModifyVolumeStatus
  phase
PersistentVolumeClaimTemplate: metadata:ObjectMeta spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName readOnly
PhotonPersistentDiskVolumeSource: fsType pdID
Pod: apiVersion kind metadata:ObjectMeta spec:PodSpec status:PodStatus
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
PodAffinityTerm: labelSelector:LabelSelector matchLabelKeys mismatchLabelKeys namespaceSelector:LabelSelector
  namespaces topologyKey
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm
PodCertificateProjection: certificateChainPath credentialBundlePath keyPath keyType maxExpirationSeconds signerName
  userAnnotations
PodCondition: lastProbeTime lastTransitionTime message observedGeneration reason status type
PodDNSConfig: nameservers options:[]PodDNSConfigOption searches
PodDNSConfigOption: name value
PodExtendedResourceClaimStatus: requestMappings:[]ContainerExtendedResourceRequest resourceClaimName
PodFailurePolicy: rules:[]PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement: containerName operator values
PodFailurePolicyOnPodConditionsPattern: status type
PodFailurePolicyRule: action onExitCodes:PodFailurePolicyOnExitCodesRequirement
  onPodConditions:[]PodFailurePolicyOnPodConditionsPattern
PodIP: ip
PodOS: name
PodReadinessGate: conditionType
PodResourceClaim: name resourceClaimName resourceClaimTemplateName
PodResourceClaimStatus: name resourceClaimName
PodSchedulingGate: name
PodSchedulingGroup: podGroupName
PodSecurityContext: appArmorProfile:AppArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser
  seLinuxChangePolicy seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups
  supplementalGroupsPolicy sysctls:[]Sysctl windowsOptions:WindowsSecurityContextOptions
PodSpec: activeDeadlineSeconds affinity:Affinity automountServiceAccountToken containers:[]Container
  dnsConfig:PodDNSConfig dnsPolicy enableServiceLinks ephemeralContainers:[]EphemeralContainer
  hostAliases:[]HostAlias hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride
  imagePullSecrets:[]LocalObjectReference initContainers:[]Container nodeName nodeSelector os:PodOS overhead
  preemptionPolicy priority priorityClassName readinessGates:[]PodReadinessGate resourceClaims:[]PodResourceClaim
  resources:ResourceRequirements restartPolicy runtimeClassName schedulerName schedulingGates:[]PodSchedulingGate
  schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext serviceAccount serviceAccountName
  setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations:[]Toleration
  topologySpreadConstraints:[]TopologySpreadConstraint volumes:[]Volume
PodStatus: allocatedResources conditions:[]PodCondition containerStatuses:[]ContainerStatus
  ephemeralContainerStatuses:[]ContainerStatus extendedResourceClaimStatus:PodExtendedResourceClaimStatus hostIP
  hostIPs:[]HostIP initContainerStatuses:[]ContainerStatus message
  nodeAllocatableResourceClaimStatuses:[]NodeAllocatableResourceClaimStatus nominatedNodeName observedGeneration
  phase podIP podIPs:[]PodIP qosClass reason resize resourceClaimStatuses:[]PodResourceClaimStatus
  resources:ResourceRequirements startTime
PodTemplate: apiVersion kind metadata:ObjectMeta template:PodTemplateSpec
PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
PortworxVolumeSource: fsType readOnly volumeID
PreferredSchedulingTerm: preference:NodeSelectorTerm weight
Probe: exec:ExecAction failureThreshold grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds periodSeconds
  successThreshold tcpSocket:TCPSocketAction terminationGracePeriodSeconds timeoutSeconds
ProjectedVolumeSource: defaultMode sources:[]VolumeProjection
QuobyteVolumeSource: group readOnly registry tenant user volume
RBDVolumeSource: fsType image keyring monitors pool readOnly secretRef:LocalObjectReference user
ReplicaSet: apiVersion kind metadata:ObjectMeta spec:ReplicaSetSpec status:ReplicaSetStatus
ReplicaSetCondition: lastTransitionTime message reason status type
ReplicaSetSpec: minReadySeconds replicas selector:LabelSelector template:PodTemplateSpec
ReplicaSetStatus: availableReplicas conditions:[]ReplicaSetCondition fullyLabeledReplicas observedGeneration
  readyReplicas replicas terminatingReplicas
ReplicationController: apiVersion kind metadata:ObjectMeta spec:ReplicationControllerSpec
  status:ReplicationControllerStatus
ReplicationControllerCondition: lastTransitionTime message reason status type
ReplicationControllerSpec: minReadySeconds replicas selector template:PodTemplateSpec
ReplicationControllerStatus: availableReplicas conditions:[]ReplicationControllerCondition fullyLabeledReplicas
  observedGeneration readyReplicas replicas
ResourceClaim: name request
ResourceFieldSelector: containerName divisor resource
ResourceHealth: health message resourceID
ResourceRequirements: claims:[]ResourceClaim limits requests
ResourceStatus: name resources:[]ResourceHealth
RollingUpdateDaemonSet: maxSurge maxUnavailable
RollingUpdateDeployment: maxSurge maxUnavailable
RollingUpdateStatefulSetStrategy: maxUnavailable partition
SELinuxOptions: level role type user
ScaleIOVolumeSource: fsType gateway protectionDomain readOnly secretRef:LocalObjectReference sslEnabled storageMode
  storagePool system volumeName
SeccompProfile: localhostProfile type
SecretEnvSource: name optional
SecretKeySelector: key name optional
SecretProjection: items:[]KeyToPath name optional
SecretVolumeSource: defaultMode items:[]KeyToPath optional secretName
SecurityContext: allowPrivilegeEscalation appArmorProfile:AppArmorProfile capabilities:Capabilities privileged
  procMount readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
ServiceAccountTokenProjection: audience expirationSeconds path
SleepAction: seconds
StatefulSet: apiVersion kind metadata:ObjectMeta spec:StatefulSetSpec status:StatefulSetStatus
StatefulSetCondition: lastTransitionTime message reason status type
StatefulSetOrdinals: start
StatefulSetPersistentVolumeClaimRetentionPolicy: whenDeleted whenScaled
StatefulSetSpec: minReadySeconds ordinals:StatefulSetOrdinals
  persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy podManagementPolicy replicas
  revisionHistoryLimit selector:LabelSelector serviceName template:PodTemplateSpec
  updateStrategy:StatefulSetUpdateStrategy volumeClaimTemplates:[]PersistentVolumeClaim
StatefulSetStatus: availableReplicas collisionCount conditions:[]StatefulSetCondition currentReplicas
  currentRevision observedGeneration readyReplicas replicas updateRevision updatedReplicas
StatefulSetUpdateStrategy: rollingUpdate:RollingUpdateStatefulSetStrategy type
StorageOSVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeName volumeNamespace
SuccessPolicy: rules:[]SuccessPolicyRule
SuccessPolicyRule: succeededCount succeededIndexes
Sysctl: name value
TCPSocketAction: host port
Toleration: effect key operator tolerationSeconds value
TopologySpreadConstraint: labelSelector:LabelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy
  nodeTaintsPolicy topologyKey whenUnsatisfiable
TypedLocalObjectReference: apiGroup kind name
TypedObjectReference: apiGroup kind name namespace
UncountedTerminatedPods: failed succeeded
Volume: awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
  azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource
  configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource
  emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource flexVolume:FlexVolumeSource
  flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource
  glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource name
  nfs:NFSVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource
  photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource
  projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource scaleIO:ScaleIOVolumeSource
  secret:SecretVolumeSource storageos:StorageOSVolumeSource vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeDevice: devicePath name
VolumeMount: mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr
VolumeMountStatus: mountPath name readOnly recursiveReadOnly volumeStatus:VolumeStatus
VolumeProjection: clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection
  downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection secret:SecretProjection
  serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements: limits requests
VolumeStatus: image:ImageVolumeStatus
VsphereVirtualDiskVolumeSource: fsType storagePolicyID storagePolicyName volumePath
WeightedPodAffinityTerm: podAffinityTerm:PodAffinityTerm weight
WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName
"""

API_VERSIONS = {
    "Pod": "v1",
    "PodTemplate": "v1",
    "ReplicationController": "v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "CronJob": "batch/v1",
    "Job": "batch/v1",
}
"""The kinds with a pod in them, and their apiVersion."""


@cache
def field_table() -> dict[str, dict[str, str]]:
    """Return the fields by type; the value is the type of the field's content (`[]` before it for a list), or empty."""
    table: dict[str, dict[str, str]] = {}
    for line in _TABLE.strip().replace("\n  ", " ").splitlines():
        kind, _, fields = line.partition(": ")
        table[kind] = {name: below for name, _, below in (field.partition(":") for field in fields.split())}
    return table
