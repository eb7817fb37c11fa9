"""Files that hold no configuration of a kubelet: what they are, and what would do."""

from __future__ import annotations

from typing import Any

from podslice.config.carriers.layer import KIND
from podslice.config.carriers.objects import Held
from podslice.config.schema import field_names
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError

_FROM_CLUSTER = "kubectl get --raw /api/v1/nodes/NODE/proxy/configz gives the one of a node"
_ON_NODE = "give that file: /etc/kubernetes/kubelet-config.yaml of the node"
_WHAT = {
    "KubeProxyConfiguration": "the configuration of kube-proxy, not of a kubelet",
    "KubeSchedulerConfiguration": "the configuration of a scheduler, not of a kubelet",
    "EncryptionConfiguration": "for the API server, not for a kubelet",
    "CredentialProviderConfig": "for a kubelet's image credentials, which set no field of its configuration",
    "KubeletCredentialProviderConfig": "for a kubelet's image credentials",
    "PodslicePolicy": "a policy: it goes to --policy",
    "AgentConfiguration": "the configuration of podslice agent",
    "Node": "an object of a cluster: it goes to --from",
    "NodeResourceTopology": "an object of a cluster: it goes to --from",
}
_SHOOT = "spec.kubernetes.kubelet"
_PODS = ("Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet", "ReplicationController")
_WITH_SECTION = {
    ("kops.k8s.io", "Cluster"): "spec.kubelet",
    ("kops.k8s.io", "InstanceGroup"): "spec.kubelet",
    ("karpenter.k8s.aws", "EC2NodeClass"): "spec.kubelet",
    ("karpenter.sh", "NodePool"): "spec.template.spec.kubelet",
    ("karpenter.sh", "Provisioner"): "spec.kubeletConfiguration",
    ("machineconfiguration.openshift.io", "KubeletConfig"): "spec.kubeletConfig",
    ("machineconfiguration.openshift.io", "MachineConfig"): "a file with a KubeletConfiguration",
    ("node.eks.aws", "NodeConfig"): "spec.kubelet",
    ("eksctl.io", "ClusterConfig"): "kubeletExtraConfig",
    ("kind.x-k8s.io", "Cluster"): "a patch with a KubeletConfiguration",
}


def describe_stranger(objects: list[Held], documents: list[Any]) -> InputError:
    """Return the error for a file without a configuration of a kubelet."""
    if not isinstance(documents[0], dict):
        found = "a list" if isinstance(documents[0], list) else f"only {abbreviate(documents[0])}"
        return InputError(f"holds {found}, not an object of kind {KIND}")
    if not objects:
        return InputError("is an empty list", remedy=_FROM_CLUSTER)
    described = [_describe(held) for held in objects]
    problem, remedy = next((one for one in described if one[1] != _FROM_CLUSTER), described[0])
    if len({held.kind for held in objects}) > 1:
        kinds = list(dict.fromkeys(held.kind or "an object without a kind" for held in objects))
        more = ", …" if len(kinds) > 5 else ""
        return InputError(f"holds {', '.join(kinds[:5])}{more}, but no configuration of a kubelet", remedy=remedy)
    return InputError(problem, remedy=remedy)


def _describe(held: Held) -> tuple[str, str]:
    """Return what an object is and what to do, in two texts."""
    data, kind = held.data, held.kind
    if kind == "Config" and ("clusters" in data or "contexts" in data):
        return "is a kubeconfig, which says how to reach a cluster, not how a kubelet is configured", _FROM_CLUSTER
    if held.group.endswith("gardener.cloud"):
        return (
            f"is {held.name} of Gardener without {_SHOOT}",
            f"give the Shoot of the node's cluster, with {_SHOOT}",
        )
    if held.group == "kubeadm.k8s.io":
        return (
            f"is {kind} of kubeadm: it holds no KubeletConfiguration and no kubeletExtraArgs",
            "kubectl -n kube-system get configmap kubelet-config -o yaml gives what kubeadm configured",
        )
    if kind == "ConfigMap":
        keys = ", ".join(map(str, list(held.mapping("data") or {})[:4])) or "nothing"
        return f"is {held.name} with {keys}: it holds no {KIND}", "the ConfigMap is kubelet-config in kube-system"
    if (section := _WITH_SECTION.get((held.group, kind))) is not None:
        return f"is {held.name} ({held.group}) without {section}", _FROM_CLUSTER
    if kind in _WHAT:
        return f"is {_article(kind)}, {_WHAT[kind]}", _FROM_CLUSTER
    if kind in _PODS:
        return f"is {_article(kind)}: {kind!r} is not {KIND}", "pods are not options: give them as FILE or with --pods"
    if kind:
        return f"kind: {kind!r} is not {KIND}", f"kind: {KIND}"
    return _describe_kindless(data)


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def _describe_kindless(data: dict[str, Any]) -> tuple[str, str]:
    names = [str(name) for name in data]
    known = [name for name in names if name in field_names()]
    if known and len(known) == len(names):
        return (
            f"has fields of a {KIND} without its kind, which a kubelet does not load",
            f"add apiVersion: kubelet.config.k8s.io/v1beta1 and kind: {KIND}",
        )
    if isinstance(data.get("machine"), dict):
        return "is a machine of Talos without machine.kubelet.extraConfig and extraArgs", _FROM_CLUSTER
    if any(name.startswith(("kubelet_", "kube_")) for name in names):
        return "has variables of Kubespray, from which it makes the kubelet's file", _ON_NODE
    if {"mode", "path", "contents"} <= set(names):
        return "is a file of a MachineConfig's template", _FROM_CLUSTER
    if {"image", "replicaCount", "nameOverride", "resources", "serviceAccount"} & set(names):
        return f"has no kind, but {_some(names)}, as the values of a Helm chart", _FROM_CLUSTER
    return f"has no kind: it has {_some(names)}, and is not {KIND}", _FROM_CLUSTER


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "") if names else "nothing"
