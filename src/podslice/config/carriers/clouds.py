"""Node configuration of clouds: Karpenter, EKS (nodeadm, eksctl), AKS and GKE (docs/config.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podslice.config.carriers.bottlerocket import is_bottlerocket, read_bottlerocket
from podslice.config.carriers.command_line import is_script, read_command_text
from podslice.config.carriers.fields import assume_reservation, own_fields, renamed_fields
from podslice.config.carriers.flags import read_flags
from podslice.config.carriers.kubeadm import iter_given_flags
from podslice.config.carriers.layer import Configuration, Layer, join_path
from podslice.config.carriers.objects import Held, iter_held, key_step
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

NODE_CONFIG = "node.eks.aws"
_KARPENTER = ("karpenter.k8s.aws", "karpenter.sh", "karpenter.azure.com", "karpenter.k8s.gcp")
_IN_KARPENTER = ("spec.kubelet", "spec.template.spec.kubelet", "spec.kubeletConfiguration")
_COMPUTED = "what else {} computes from the instance type, as maxPods, is the kubelet's default"
_CPUS = "500m"
"""Stands for the CPUs that these clouds reserve: less than one on all but the largest instances."""
_CLOUD_FIELDS = {
    "cpuManagerPolicy": "cpuManagerPolicy",
    "cpuCfsQuota": "cpuCFSQuota",
    "cpuCFSQuota": "cpuCFSQuota",
    "cpuCfsQuotaPeriod": "cpuCFSQuotaPeriod",
    "cpuCFSQuotaPeriod": "cpuCFSQuotaPeriod",
    "topologyManagerPolicy": "topologyManagerPolicy",
    "imageGcHighThreshold": "imageGCHighThresholdPercent",
    "imageGcLowThreshold": "imageGCLowThresholdPercent",
    "imageGcHighThresholdPercent": "imageGCHighThresholdPercent",
    "imageGcLowThresholdPercent": "imageGCLowThresholdPercent",
    "imageGCHighThresholdPercent": "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent": "imageGCLowThresholdPercent",
    "imageMinimumGcAge": "imageMinimumGCAge",
    "imageMaximumGcAge": "imageMaximumGCAge",
    "allowedUnsafeSysctls": "allowedUnsafeSysctls",
    "failSwapOn": "failSwapOn",
    "containerLogMaxFiles": "containerLogMaxFiles",
    "containerLogMaxSize": "containerLogMaxSize",
    "containerLogMaxSizeMB": "containerLogMaxSize",
    "podMaxPids": "podPidsLimit",
    "podPidsLimit": "podPidsLimit",
    "maxParallelImagePulls": "maxParallelImagePulls",
    "singleProcessOomKill": "singleProcessOOMKill",
    "singleProcessOOMKill": "singleProcessOOMKill",
    "maxPods": "maxPods",
}
"""Fields of AKS and of GKE, whose names are the kubelet's but for capitals."""
_SILENT = frozenset(("insecureKubeletReadonlyPortEnabled", "seccompDefault", "crashLoopBackOff"))
_AKS_ONLY = frozenset(
    ("failSwapOn", "imageGcHighThreshold", "imageGcLowThreshold", "podMaxPids", "containerLogMaxSizeMB")
)
_GKE_ONLY = frozenset(("topologyManager", "memoryManager", "insecureKubeletReadonlyPortEnabled"))
_BOUNDARY = re.compile(r'boundary="?([^"\s;]+)"?')


# Karpenter


def read_karpenter(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configurations of node classes, node pools and provisioners, with that of their user data below."""
    for held in objects:
        if held.group not in _KARPENTER:
            continue
        layers = list(_user_data(held))
        assumed = (_COMPUTED.format("Karpenter"),)
        for path in _IN_KARPENTER:
            layer = own_fields(held, path, assumed=assumed, merge="fields")
            if layer is not None:
                layers.append(layer)
        if layers:
            yield assume_reservation(Configuration(held.name, tuple(layers)), "Karpenter", "kubeReserved", _CPUS)


def _user_data(held: Held) -> Iterator[Layer]:
    text = held.value("spec.userData")
    if not isinstance(text, str):
        return
    layers: tuple[Layer, ...] = ()
    if NODE_CONFIG in text:
        layers = tuple(layers_of_user_data(text))
    elif is_bottlerocket(text):
        layers = read_bottlerocket(text).layers
    elif is_script(text):
        layers = read_command_text(text).layers
    for layer in layers:
        yield layer._replace(origin=f"{held.name}, spec.userData", base=held.at("spec.userData"), places={})


# EKS


def read_node_configs(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configuration of NodeConfigs, which nodeadm merges in the order of the file."""
    layers = [layer for held in objects if held.group == NODE_CONFIG for layer in _node_config(held)]
    if layers:
        yield assume_reservation(Configuration("NodeConfig", tuple(layers)), "EKS", "kubeReserved", _CPUS)


def _node_config(held: Held) -> Iterator[Layer]:
    assumed = (_COMPUTED.format("EKS"),)
    config = own_fields(held, "spec.kubelet.config", assumed=assumed)
    if config is not None:
        yield config
    flags = held.value("spec.kubelet.flags")
    if flags:
        given = iter_given_flags(flags, held.at("spec.kubelet.flags"))
        yield read_flags(given, f"{held.name}, spec.kubelet.flags", assumed=assumed).layer


def is_user_data(text: str) -> bool:
    """Whether a text is user data in several parts, with a NodeConfig in them."""
    return text.lstrip()[:20].lower().startswith(("mime-version:", "content-type:")) and NODE_CONFIG in text


def layers_of_user_data(text: str) -> list[Layer]:
    """Return the layers of the NodeConfigs in user data: YAML, or the parts of a MIME document. Raises
    `InputError`."""
    parts = [text]
    boundary = _BOUNDARY.search(text) if is_user_data(text) else None
    if boundary is not None:
        parts = [part for part in text.split(f"--{boundary[1]}") if "kind: NodeConfig" in part]
        parts = [part.replace("\r\n", "\n").partition("\n\n")[2] for part in parts]
    documents = [document for part in parts for document in load_documents(part)]
    return [layer for held in iter_held(documents) if held.group == NODE_CONFIG for layer in _node_config(held)]


def read_eksctl(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configuration of each node group of an eksctl file that has one."""
    for held in objects:
        if held.group != "eksctl.io":
            continue
        for groups in ("nodeGroups", "managedNodeGroups"):
            for at, group in enumerate(held.entries(groups)):
                fields = group.get("kubeletExtraConfig") if isinstance(group, dict) else None
                if isinstance(fields, dict):
                    place = held.at(f"{groups}[{at}].kubeletExtraConfig")
                    origin = f"{held.kind} of eksctl, {groups}[{at}] {group.get('name', '')}".strip()
                    assumed = (_COMPUTED.format("EKS"),)
                    found = Configuration(origin, (Layer(fields, origin, place, assumed=assumed),))
                    yield assume_reservation(found, "EKS", "kubeReserved", _CPUS)


# AKS and GKE


def read_aks_and_gke(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the node configurations of AKS and GKE: files of their own, and `kubeletConfig` wherever the command lines
    of both clouds and their custom resources have it."""
    for held in objects:
        if held.group.endswith("openshift.io"):
            continue
        if not held.kind and _is_aks(held.data):
            yield _cloud(held, "", held.data)
            continue
        yield from _nested(held, "", held.data)


def _nested(held: Held, path: str, value: Any) -> Iterator[Configuration]:
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _nested(held, f"{path}[{at}]", one)
    elif isinstance(value, dict):
        for key, one in value.items():
            where = join_path(path, key_step(key))
            if key == "kubeletConfig" and isinstance(one, dict) and one.keys() & (_CLOUD_FIELDS.keys() | _GKE_ONLY):
                yield _cloud(held, where, one)
            elif isinstance(one, dict | list):
                yield from _nested(held, where, one)


def _is_aks(data: Mapping[str, Any]) -> bool:
    """Whether fields without a kind are those of AKS. With none of its own names they may be a kubelet's."""
    names = set(data)
    return bool(names) and names <= _CLOUD_FIELDS.keys() and bool(names & (_AKS_ONLY | {"cpuCfsQuota"}))


def _cloud(held: Held, path: str, fields: Mapping[str, Any]) -> Configuration:
    is_gke = bool(fields.keys() & _GKE_ONLY) or "cpuCFSQuota" in fields or "linuxConfig" in held.data
    cloud = "GKE" if is_gke else "AKS"
    named = f"{held.name}, " if held.kind else ""
    origin = f"{named}node configuration of {cloud}{f', {path}' if path else ''}"
    given = {name: value for name, value in fields.items() if name not in ("topologyManager", "memoryManager")}
    size = given.get("containerLogMaxSizeMB")
    if size is not None:
        given["containerLogMaxSizeMB"] = f"{size}Mi"
    place = held.at(path)
    assumed = (f"what else {cloud} sets itself, as maxPods, is the kubelet's default",)
    layer = renamed_fields(given, place, _CLOUD_FIELDS, origin=origin, assumed=assumed, silent=_SILENT)
    more, places = dict(layer.fields), dict(layer.places)
    for section, names in (
        ("topologyManager", {"policy": "topologyManagerPolicy", "scope": "topologyManagerScope"}),
        ("memoryManager", {"policy": "memoryManagerPolicy"}),
    ):
        inner = fields.get(section) or {}
        if not isinstance(inner, dict):
            raise InputError("is not an object", path=place.below(section).path, remedy=f"{section}: {{policy: …}}")
        for name, field in names.items():
            if inner.get(name) is not None:
                more[field] = inner[name]
                places[field] = place.below(section).below(name)
    found = Configuration(origin, (layer._replace(fields=more, places=places),))
    return assume_reservation(found, cloud, "kubeReserved", _CPUS)
