"""Reading a KubeletConfiguration file (kubelet.config.k8s.io/v1beta1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from podslice.core.config.kubelet import DEFAULT_EVICTION_HARD, IgnoredField, KubeletConfig
from podslice.core.errors import InputError, raise_all
from podslice.core.values.decoding import decoding_problem, shown
from podslice.k8s.files import read_text
from podslice.k8s.yaml import load_documents

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
_IRRELEVANT = frozenset(
    """address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot clusterDNS clusterDomain
    configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize containerLogMaxWorkers
    containerLogMonitorInterval containerRuntimeEndpoint contentType crashLoopBackOff enableContentionProfiling
    enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler
    enableServer enableSystemLogHandler enableSystemLogQuery eventBurst eventRecordQPS evictionMaxPodGracePeriod
    evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod
    failCgroupV1 fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeletCgroups localStorageCapacityIsolation logging
    makeIPTablesUtilChains
    maxOpenFiles maxParallelImagePulls mergeDefaultEvictionSettings nodeLeaseDurationSeconds
    nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir port
    preloadedImagesVerificationAllowlist protectKernelDefaults providerID readOnlyPort registerNode registerWithTaints
    registryBurst registryPullQPS resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault
    serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod
    shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods staticPodPath staticPodURL staticPodURLHeader
    streamingConnectionIdleTimeout syncFrequency systemCgroups tlsCertFile tlsCipherSuites tlsCurvePreferences
    tlsMinVersion tlsPrivateKeyFile tracing userNamespaces volumePluginDir volumeStatsAggPeriod""".split()
)
_TEXT_MAPS = ("cpuManagerPolicyOptions", "memoryManagerPolicyOptions", "topologyManagerPolicyOptions", "kubeReserved",
              "systemReserved", "evictionHard", "qosReserved")  # fmt: skip


class LoadedConfig(NamedTuple):
    """The configuration and what of the file is in vain."""

    config: KubeletConfig
    unknown_fields: tuple[IgnoredField, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about the file."""
        return tuple(map(str, self.unknown_fields))


def load_kubelet_config(path: str) -> LoadedConfig:
    """Read one KubeletConfiguration. Raises `InputError`; unknown fields are warnings."""
    try:
        return config_from_dict(load_config_data(path))
    except InputError as error:
        raise error.at(source=path) from None


def load_config_data(path: str, kind: str = KIND) -> dict[str, Any]:
    """The plain data of a file that holds one object of a kind; of a KubeletConfiguration also the answer of a running
    kubelet's `configz`, which leaves out the kind. Raises `InputError`."""
    documents = load_documents(read_text(path), path)
    if len(documents) != 1:
        found = f"{len(documents)} documents" if documents else "nothing"
        raise InputError(f"holds {found}, not one {kind}", source=path)
    (document,) = documents
    if not isinstance(document, dict):
        found = "a list" if isinstance(document, list) else f"only {shown(document)}"
        raise InputError(f"holds {found}, not an object of kind {kind}", source=path)
    return served_config(document) if kind == KIND else document


def served_config(document: dict[str, Any]) -> dict[str, Any]:
    """The object in what a running kubelet answers at `configz`, where kind and version are left out; another document
    as it is."""
    served = document.get("kubeletconfig") if len(document) == 1 else None
    return {"kind": KIND, "apiVersion": API_VERSION, **served} if isinstance(served, dict) else document


def config_of_fields(fields: Mapping[str, Any]) -> LoadedConfig:
    """A KubeletConfiguration from its fields alone, without kind and version. Raises `InputError` as
    `config_from_dict`."""
    return config_from_dict({"apiVersion": API_VERSION, "kind": "KubeletConfiguration", **fields})


def config_from_dict(data: dict[str, Any]) -> LoadedConfig:
    """A KubeletConfiguration from plain data. Raises `InputError` with the field path."""
    kind, version = data.get("kind"), data.get("apiVersion")
    if kind != "KubeletConfiguration":
        raise InputError(f"{kind!r} is not KubeletConfiguration", path="kind", remedy="kind: KubeletConfiguration")
    if version != API_VERSION:
        raise InputError(f"{version!r} is not supported", path="apiVersion", remedy=f"apiVersion: {API_VERSION}")
    known = {field.encode_name for field in msgspec.structs.fields(KubeletConfig)}
    fields: dict[str, Any] = {
        name: float(value) if isinstance(value, float) else value  # YAML numbers remember how they were written
        for name, value in data.items()
        if name in known and value is not None
    }
    for name in _TEXT_MAPS:
        if isinstance(fields.get(name), dict):
            fields[name] = {key: _text(value) for key, value in fields[name].items()}
    if data.get("mergeDefaultEvictionSettings") is True and isinstance(fields.get("evictionHard"), dict):
        fields["evictionHard"] = {**DEFAULT_EVICTION_HARD, **fields["evictionHard"]}
    reservations = fields.get("reservedMemory")
    for index, reservation in enumerate(reservations if isinstance(reservations, list) else ()):
        if not isinstance(reservation, dict):
            raise InputError("expected an object", path=f"reservedMemory[{index}]")
        limits = reservation.get("limits")
        if isinstance(limits, dict):
            reservation["limits"] = {key: _text(value) for key, value in limits.items()}
    try:
        config = msgspec.convert(fields, KubeletConfig)
    except msgspec.ValidationError:
        raise_all(_field_errors(fields))
        raise
    return LoadedConfig(config, tuple(_unknown_fields(data, known)))


def _field_errors(fields: dict[str, Any]) -> Iterator[InputError]:
    """What is wrong with each field; the decoder stops at the first."""
    for name, value in fields.items():
        try:
            msgspec.convert({name: value}, KubeletConfig)
        except msgspec.ValidationError as error:
            found = decoding_problem(str(error))
            yield InputError(found.problem, path=found.path, remedy=found.remedy)


def text_fields() -> frozenset[str]:
    """Fields that are text, whatever their value looks like: `reservedSystemCPUs=0` means the text `0`."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(KubeletConfig) if field.type is str)


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _unknown_fields(data: dict[str, Any], known: set[str]) -> Iterator[IgnoredField]:
    for name in data:
        if name in known or name in _IRRELEVANT or name in ("kind", "apiVersion", "metadata"):
            continue
        close = get_close_matches(str(name), [*known, *_IRRELEVANT], 1)
        yield IgnoredField(str(name), close[0] if close else "")
