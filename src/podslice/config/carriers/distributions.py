"""Distributions of Kubernetes and programs that make clusters: kOps, Talos, k3s and RKE2, RKE, Gardener, k0s
(docs/config.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podslice.config.carriers.fields import assume_reservation, own_fields, renamed_fields
from podslice.config.carriers.flags import read_flags
from podslice.config.carriers.kubeadm import iter_given_flags
from podslice.config.carriers.layer import Configuration, Layer, join_path
from podslice.config.carriers.objects import Held, key_step
from podslice.config.schema import field_names

# kOps

_KOPS = ("kops.k8s.io", "kops")
"""The group, and as it was called before."""
_KOPS_NAMES = {
    **{name: name for name in field_names()},
    "anonymousAuth": "authentication.anonymous.enabled",
    "authenticationTokenWebhook": "authentication.webhook.enabled",
    "authenticationTokenWebhookCacheTtl": "authentication.webhook.cacheTTL",
    "authorizationMode": "authorization.mode",
    "clientCaFile": "authentication.x509.clientCAFile",
    "crashLoopBackOffMaxContainerRestartPeriod": "crashLoopBackOff.maxContainerRestartPeriod",
    "eventQPS": "eventRecordQPS",
    "logFormat": "logging.format",
    "memorySwapBehavior": "memorySwap.swapBehavior",
    "podManifestPath": "staticPodPath",
    "volumePluginDirectory": "volumePluginDir",
}
_KOPS_SILENT = frozenset(
    """
    allowPrivileged apiServers babysitDaemons bootstrapKubeconfig cloudProvider configureCbr0 dockerDisableSharedPID
    enableCadvisorJsonEndpoints enableCustomMetrics experimentalAllocatableIgnoreEviction
    experimentalAllowedUnsafeSysctls hostnameOverride housekeepingInterval imagePullProgressDeadline kubeconfigPath
    logLevel networkPluginMTU networkPluginName nodeLabels nonMasqueradeCIDR nvidiaGPUs podInfraContainerImage
    reconcileCIDR registerSchedulable requireKubeconfig rootDir runtimeCgroups seccompProfileRoot taints
""".split()
)
_KOPS_ASSUMED = ("what kOps sets itself, as evictionHard, is the kubelet's default",)


def read_kops(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configurations of a kOps cluster: its own, or one for each instance group over it."""
    own = [held for held in objects if held.group in _KOPS]
    clusters = [layer for held in own if held.kind == "Cluster" for layer in _kops_layers(held, "spec.kubelet")]
    groups = [
        (held, layer) for held in own if held.kind == "InstanceGroup" for layer in _kops_layers(held, "spec.kubelet")
    ]
    for held, layer in groups:
        of_control_plane = str(held.value("spec.role")).lower() in ("master", "controlplane", "control-plane")
        yield Configuration(held.name, (*clusters[:1], layer), of_control_plane)
    if clusters and not groups:
        yield Configuration(clusters[0].origin, (clusters[0],))


def _kops_layers(held: Held, path: str) -> Iterator[Layer]:
    fields = held.mapping(path)
    if fields:
        origin = f"{held.name}, {path}"
        yield renamed_fields(
            fields, held.at(path), _KOPS_NAMES, origin=origin, assumed=_KOPS_ASSUMED, silent=_KOPS_SILENT
        )


# Talos

_TALOS_ASSUMED = ("what else Talos sets itself is the kubelet's default",)


def read_talos(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configuration of a Talos machine: fields, then flags. Newer files have a document for the kubelet."""
    for held in objects:
        if held.kind == "KubeletConfig" and not held.group:
            layers = _talos_layers(held, "config", "extraArgs")
        elif not held.kind and held.mapping("machine.kubelet") is not None:
            layers = _talos_layers(held, "machine.kubelet.extraConfig", "machine.kubelet.extraArgs")
        else:
            continue
        if layers:
            yield assume_reservation(Configuration("Talos", tuple(layers)), "Talos", "systemReserved", "50m")


def _talos_layers(held: Held, fields: str, flags: str) -> list[Layer]:
    layers = []
    config = own_fields(held, fields, origin=f"Talos, {fields}", assumed=_TALOS_ASSUMED)
    if config is not None:
        layers.append(config)
    given = held.value(flags)
    if given:
        arguments = iter_given_flags(given, held.at(flags))
        layers.append(read_flags(arguments, f"Talos, {flags}", assumed=_TALOS_ASSUMED).layer)
    return layers


# k3s, RKE2, RKE

_LISTS = ("kubelet-arg", "kubelet-arg+", "kubelet_arg")


def read_rancher(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the arguments of kubelets in files of k3s and RKE2, in cluster objects of Rancher, and in RKE's file."""
    for held in objects:
        given = held.value("services.kubelet.extra_args") if not held.kind else None
        if given:
            yield _arguments(held, "services.kubelet.extra_args", given, "RKE")
        else:
            yield from _lists(held, "", held.data)


def _lists(held: Held, path: str, value: Any) -> Iterator[Configuration]:
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _lists(held, f"{path}[{at}]", one)
        return
    if not isinstance(value, dict):
        return
    for key, one in value.items():
        where = join_path(path, key_step(key))
        if key in _LISTS and one:
            yield _arguments(held, where, one, held.name or "k3s or RKE2")
        elif isinstance(one, dict | list):
            yield from _lists(held, where, one)


def _arguments(held: Held, path: str, given: Any, owner: str) -> Configuration:
    origin = f"{owner}, {path}"
    summary = read_flags(iter_given_flags(given, held.at(path)), origin)
    named = [summary.others[name] for name in ("config", "config-dir") if summary.others.get(name)]
    lines = tuple(f"{name}, which the arguments name, sets nothing: its content was not given" for name in named)
    return Configuration(origin, (summary.layer._replace(assumed=(*summary.layer.assumed, *lines)),))


# Gardener

_SHOOTS = {
    ("core.gardener.cloud", "Shoot"): "spec",
    ("seedmanagement.gardener.cloud", "ManagedSeedSet"): "spec.shootTemplate.spec",
}
"""Where the specification of a shoot is in an object, by its group and kind."""
_GARDENER_SIGNALS = {
    "memoryAvailable": "memory.available",
    "imageFSAvailable": "imagefs.available",
    "imageFSInodesFree": "imagefs.inodesFree",
    "nodeFSAvailable": "nodefs.available",
    "nodeFSInodesFree": "nodefs.inodesFree",
}
_GARDENER_KEYS = {"ephemeralStorage": "ephemeral-storage", **_GARDENER_SIGNALS}
_GARDENER_ASSUMED = ("what else Gardener sets itself, as kubeReserved, is the kubelet's default",)


def read_gardener(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configurations of a Gardener shoot: of all workers, or one for each group of workers over it."""
    for held in objects:
        path = _SHOOTS.get((held.group, held.kind))
        if path is None:
            continue
        common = f"{path}.kubernetes.kubelet"
        base = list(_gardener_layer(held, common, held.value(common)))
        groups = [
            (worker.get("name", at), layer)
            for at, worker in enumerate(held.entries(f"{path}.provider.workers"))
            if isinstance(worker, dict) and isinstance(worker.get("kubernetes"), dict)
            for layer in _gardener_layer(
                held, f"{path}.provider.workers[{at}].kubernetes.kubelet", worker["kubernetes"].get("kubelet")
            )
        ]
        for name, layer in groups:
            yield _gardener(f"{held.name}, workers {name}", (*base, layer))
        if base and not groups:
            yield _gardener(base[0].origin, tuple(base))


def _gardener(name: str, layers: tuple[Layer, ...]) -> Configuration:
    return assume_reservation(Configuration(name, layers), "Gardener", "kubeReserved", "80m")


def _gardener_layer(held: Held, path: str, fields: Any) -> Iterator[Layer]:
    if isinstance(fields, dict) and fields:
        given = {name: _with_own_keys(value) for name, value in fields.items()}
        names = {name: name for name in field_names()}
        yield renamed_fields(given, held.at(path), names, origin=f"{held.name}, {path}", assumed=_GARDENER_ASSUMED)


def _with_own_keys(value: Any) -> Any:
    """Return a map with the kubelet's names for its keys."""
    if not isinstance(value, dict):
        return value
    return {_GARDENER_KEYS.get(key, key): one for key, one in value.items()}


# k0s


def read_k0s(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the worker profiles of a k0s cluster."""
    for held in objects:
        if held.group != "k0s.k0sproject.io":
            continue
        for at, profile in enumerate(held.entries("spec.workerProfiles")):
            values = profile.get("values") if isinstance(profile, dict) else None
            if isinstance(values, dict):
                path = f"spec.workerProfiles[{at}].values"
                origin = f"{held.name}, worker profile {profile.get('name', at)}"
                yield Configuration(origin, (Layer(values, origin, held.at(path)),))
