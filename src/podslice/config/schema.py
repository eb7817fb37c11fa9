"""The fields of a KubeletConfiguration with their Go types (memory-device 3.11): those of the oldest release, and what
each later one adds."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from podslice.values.releases.table import RELEASES

ROOT = "v1beta1.KubeletConfiguration"
_STRUCTS = {
    ROOT: """
string:
    address cgroupDriver cgroupRoot clusterDomain containerLogMaxSize containerRuntimeEndpoint contentType
    cpuManagerPolicy hairpinMode healthzBindAddress imageServiceEndpoint kubeReservedCgroup kubeletCgroups
    memoryManagerPolicy podCIDR podLogsDir providerID reservedSystemCPUs resolvConf showHiddenMetricsForVersion
    staticPodPath staticPodURL systemCgroups systemReservedCgroup tlsCertFile tlsMinVersion tlsPrivateKeyFile
    topologyManagerPolicy topologyManagerScope volumePluginDir
bool:
    cgroupsPerQOS cpuCFSQuota enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler
    enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery
    failCgroupV1 failSwapOn kernelMemcgNotification localStorageCapacityIsolation makeIPTablesUtilChains
    protectKernelDefaults registerNode rotateCertificates runOnce seccompDefault
    serializeImagePulls serverTLSBootstrap
int32:
    containerLogMaxFiles containerLogMaxWorkers eventBurst eventRecordQPS evictionMaxPodGracePeriod healthzPort
    imageGCHighThresholdPercent imageGCLowThresholdPercent iptablesDropBit iptablesMasqueradeBit kubeAPIBurst
    kubeAPIQPS maxParallelImagePulls maxPods nodeLeaseDurationSeconds nodeStatusMaxImages oomScoreAdj podsPerCore
    port readOnlyPort registryBurst registryPullQPS
int64:
    maxOpenFiles podPidsLimit
float64:
    memoryThrottlingFactor
duration:
    cpuManagerReconcilePeriod evictionPressureTransitionPeriod fileCheckFrequency httpCheckFrequency
    imageMaximumGCAge imageMinimumGCAge nodeStatusReportFrequency nodeStatusUpdateFrequency runtimeRequestTimeout
    shutdownGracePeriod shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout syncFrequency
    volumeStatsAggPeriod
duration?:
    containerLogMonitorInterval cpuCFSQuotaPeriod
[]string:
    allowedUnsafeSysctls clusterDNS enforceNodeAllocatable tlsCipherSuites
map[string]string:
    cpuManagerPolicyOptions memoryManagerPolicyOptions
    evictionHard evictionMinimumReclaim evictionSoft evictionSoftGracePeriod kubeReserved
    qosReserved systemReserved topologyManagerPolicyOptions
map[string][]string:
    staticPodURLHeader
map[string]bool:
    featureGates
[]v1.Taint:
    registerWithTaints
[]v1beta1.MemoryReservation:
    reservedMemory
[]v1beta1.ShutdownGracePeriodByPodPriority:
    shutdownGracePeriodByPodPriority
v1.LoggingConfiguration:
    logging
v1.TracingConfiguration:
    tracing
v1beta1.KubeletAuthentication:
    authentication
v1beta1.KubeletAuthorization:
    authorization
v1beta1.MemorySwapConfiguration:
    memorySwap
v1beta1.ResourceChangeDetectionStrategy=string:
    configMapAndSecretChangeDetectionStrategy
""",
    "v1beta1.KubeletAuthentication": """
v1beta1.KubeletX509Authentication: x509
v1beta1.KubeletWebhookAuthentication: webhook
v1beta1.KubeletAnonymousAuthentication: anonymous
""",
    "v1beta1.KubeletX509Authentication": "string: clientCAFile",
    "v1beta1.KubeletWebhookAuthentication": "bool: enabled\nduration: cacheTTL",
    "v1beta1.KubeletAnonymousAuthentication": "bool: enabled",
    "v1beta1.KubeletAuthorization": """
v1beta1.KubeletAuthorizationMode=string: mode
v1beta1.KubeletWebhookAuthorization: webhook
""",
    "v1beta1.KubeletWebhookAuthorization": "duration: cacheAuthorizedTTL cacheUnauthorizedTTL",
    "v1beta1.MemoryReservation": "int32: numaNode\nv1.ResourceList=map[string]quantity: limits",
    "v1beta1.MemorySwapConfiguration": "string: swapBehavior",
    "v1beta1.ShutdownGracePeriodByPodPriority": "int32: priority\nint64: shutdownGracePeriodSeconds",
    "v1.LoggingConfiguration": """
string: format
flush: flushFrequency
v1.VerbosityLevel=uint32: verbosity
v1.VModuleConfiguration=[]v1.VModuleItem: vmodule
v1.FormatOptions: options
""",
    "v1.FormatOptions": "v1.TextOptions: text\nv1.JSONOptions: json",
    "v1.TextOptions": "bool: splitStream\nquantity: infoBufferSize",
    "v1.JSONOptions": "bool: splitStream\nquantity: infoBufferSize",
    "v1.VModuleItem": "string: filePattern\nv1.VerbosityLevel=uint32: verbosity",
    "v1.TracingConfiguration": "string: endpoint\nint32: samplingRatePerMillion",
    "v1.Taint": "string: key value\nv1.TaintEffect=string: effect\ntime?: timeAdded",
}
"""By struct, one paragraph per type: a Go type, a colon, its fields. `Name=type` is a named type, `type?` a pointer for
which null means absent. `memoryManagerPolicyOptions` is KEP-6232's, and of no release."""


class GoType(NamedTuple):
    """The type of a field: `name` as Go prints it; `kind` is a basic type, `list`, `map` or `struct`; `element` is the
    type of the elements; `nullable`: a Go pointer."""

    name: str
    kind: str
    element: GoType | None = None
    nullable: bool = False


def field_names() -> tuple[str, ...]:
    """Return all fields of the configuration."""
    return tuple(fields_of(ROOT))


@cache
def later_fields() -> dict[str, int]:
    """Return the fields of the configuration that the oldest release lacks, with the minor version that brings each."""
    texts = ((minor, release.config_fields.get(ROOT, "")) for minor, release in RELEASES.items())
    return {name: minor for minor, text in texts for name in _parse_fields(text)}


def is_text(path: str) -> bool:
    """Whether the value at a path such as `kubeReserved.cpu` is text, whatever it looks like: `reservedSystemCPUs=0`
    means the text `0`."""
    name, _, key = path.partition(".")
    kind = fields_of(ROOT).get(name)
    if kind is not None and key:
        kind = fields_of(kind.name).get(key) if kind.kind == "struct" else kind.element
    return kind is not None and kind.kind in ("string", "duration", "quantity")


@cache
def fields_of(struct: str) -> dict[str, GoType]:
    """Return the types of a struct's fields by name, as all releases together have them."""
    return _parse_fields(_structs()[struct])


@cache
def _structs() -> dict[str, str]:
    together = dict(_STRUCTS)
    for release in RELEASES.values():
        for struct, text in release.config_fields.items():
            together[struct] = f"{together.get(struct, '')}\n{text}"
    return together


def _parse_fields(text: str) -> dict[str, GoType]:
    fields = {}
    kind = ""
    for word in text.split():
        if word.endswith(":"):
            kind = word[:-1]
        else:
            fields[word] = go_type(kind)
    return fields


def go_type(text: str) -> GoType:
    """Return the type that a text of the table names."""
    name, named, underlying = text.partition("=")
    if named:
        return go_type(underlying)._replace(name=name)
    if text.endswith("?"):
        return go_type(text[:-1])._replace(nullable=True)
    if text.startswith("[]"):
        element = go_type(text[2:])
        return GoType(f"[]{element.name}", "list", element)
    if text.startswith("map[string]"):
        element = go_type(text.removeprefix("map[string]"))
        return GoType(f"map[string]{element.name}", "map", element)
    return GoType(text, "struct" if text in _structs() else text)
