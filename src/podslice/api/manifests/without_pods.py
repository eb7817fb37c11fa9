"""Kinds of other API groups than Kubernetes' own that stand for no pods, as a Service does.

Nothing is passed over with them. The tables cannot be complete: an object of a kind that is not here and has no pod
template may stand for pods (a database of its operator), and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.manifests.builtin import is_builtin
from podslice.api.manifests.objects import ManifestObject

_GROUPS_WITHOUT_PODS = frozenset(
    """
    acme.cert-manager.io argocd-image-updater.argoproj.io autoscaling.k8s.io bitnami.com
    cert-manager.io cilium.io config.openshift.io console.openshift.io crd.projectcalico.org eventing.knative.dev
    external-secrets.io flows.knative.dev externaldns.k8s.io gateway.envoyproxy.io
    gateway.networking.k8s.io
    generators.external-secrets.io getambassador.io helm.openshift.io image.openshift.io instance.kubevirt.io
    instancetype.kubevirt.io
    k8s.cni.cncf.io karpenter.azure.com karpenter.k8s.aws karpenter.sh keda.k8s.io kyverno.io machine.openshift.io
    machineconfiguration.openshift.io messaging.knative.dev metallb.io migrations.kubevirt.io monitoring.googleapis.com
    network.openshift.io networking.istio.io networking.gke.io nfd.k8s-sigs.io nfd.openshift.io oauth.openshift.io
    packages.operators.coreos.com podslice.dev podslice.io policies.kyverno.io policy.linkerd.io
    project.openshift.io projectcalico.org quota.openshift.io route.openshift.io samples.operator.openshift.io
    scheduling.volcano.sh secrets-store.csi.x-k8s.io security.istio.io security.openshift.io snapshot.storage.k8s.io
    sriovnetwork.openshift.io secretmanager.csi.x-k8s.io telemetry.istio.io topology.node.k8s.io traefik.io
    traefik.containo.us tuned.openshift.io user.openshift.io velero.io wgpolicyk8s.io whereabouts.cni.cncf.io
    kind.x-k8s.io kustomize.config.k8s.io scheduling.run.ai bus.volcano.sh nodeinfo.volcano.sh topology.volcano.sh
    clone.kubevirt.io scheduling.incubator.k8s.io scheduling.sigs.k8s.io scheduling.x-k8s.io snapshot.kubevirt.io
    reporting.kyverno.io slo.koordinator.sh scheduling.koordinator.sh
    core.gardener.cloud extensions.gardener.cloud operations.gardener.cloud seedmanagement.gardener.cloud
    settings.gardener.cloud
    """.split()
)
_COPIED = "olm.copiedFrom"
"""Label of the copies that OLM makes of an operator's ClusterServiceVersion in all namespaces."""
SETTINGS = ("Binding", "Class", "Config", "Configuration", "Policy", "Route")
"""Ends of kinds that say how others run. They are searched for templates, but not missed without one."""
_SUFFIXES_WITHOUT_PODS = (".gatekeeper.sh", ".snapshot.storage.k8s.io", ".projectcalico.org")
_KINDS_WITHOUT_PODS: Mapping[str, frozenset[str]] = {
    group: frozenset(kinds.split())
    for group, kinds in {
        "apps.kruise.io": "ContainerRecreateRequest ImagePullJob ImageListPullJob NodeImage NodePodProbe"
        " PersistentPodState PodProbeMarker ResourceDistribution SidecarSet WorkloadSpread",
        "argoproj.io": "AnalysisRun AnalysisTemplate AppProject ClusterAnalysisTemplate EventBus EventSource"
        " WorkflowArtifactGCTask WorkflowEventBinding WorkflowTaskResult WorkflowTaskSet",
        "autoscaling.internal.knative.dev": "Metric PodAutoscaler",
        "cdi.kubevirt.io": "DataImportCron DataSource DataVolume StorageProfile",
        "ceph.rook.io": "CephBlockPool CephBlockPoolRadosNamespace CephBucketNotification CephBucketTopic CephClient"
        " CephFilesystemSubVolumeGroup CephObjectRealm CephObjectStoreUser CephObjectZone CephObjectZoneGroup",
        "jobset.x-k8s.io": "Configuration",
        "keda.sh": "ClusterTriggerAuthentication ScaledObject TriggerAuthentication",
        "kafka.strimzi.io": "KafkaConnector KafkaRebalance KafkaTopic KafkaUser",
        "kueue.x-k8s.io": "AdmissionCheck ClusterQueue Cohort LocalQueue MultiKueueCluster MultiKueueConfig"
        " ProvisioningRequestConfig ResourceFlavor Topology WorkloadPriorityClass",
        "kubevirt.io": "VirtualMachineInstanceMigration VirtualMachineInstancePreset",
        "monitoring.coreos.com": "AlertmanagerConfig PodMonitor Probe PrometheusRule ScrapeConfig ServiceMonitor",
        "networking.internal.knative.dev": "Certificate ClusterDomainClaim Ingress ServerlessService",
        "operators.coreos.com": "CatalogSource InstallPlan OLMConfig Operator OperatorCondition OperatorGroup"
        " Subscription",
        "policy.kruise.io": "PodUnavailableBudget",
        "postgresql.cnpg.io": "Backup ClusterImageCatalog Database DatabaseRole FailoverQuorum ImageCatalog"
        " Publication ScheduledBackup Subscription",
        "psmdb.percona.com": "PerconaServerMongoDBBackup PerconaServerMongoDBRestore",
        "pxc.percona.com": "PerconaXtraDBClusterBackup PerconaXtraDBClusterRestore",
        "rabbitmq.com": "Binding Exchange Federation OperatorPolicy Permission Policy Queue Shovel User Vhost",
        "sources.knative.dev": "PingSource SinkBinding",
        "tekton.dev": "StepAction VerificationPolicy",
        "triggers.tekton.dev": "ClusterInterceptor ClusterTriggerBinding Interceptor Trigger TriggerBinding",
        "serving.knative.dev": "DomainMapping Route",
        "serving.kserve.io": "InferenceGraph TrainedModel",
    }.items()
}


def has_no_pods(found: ManifestObject) -> bool:
    """Whether objects of this kind are known to stand for no pods of their own."""
    if is_builtin(found):
        return True
    labels = found.metadata.get("labels")
    return (
        (isinstance(labels, dict) and _COPIED in labels)
        or found.group in _GROUPS_WITHOUT_PODS
        or found.group.startswith("config.")
        or found.group.endswith(_SUFFIXES_WITHOUT_PODS)
        or found.kind in _KINDS_WITHOUT_PODS.get(found.group, ())
    )
