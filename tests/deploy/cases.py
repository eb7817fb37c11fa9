"""Values of the chart with which it is rendered: every value set at least once, each way of each choice."""

from __future__ import annotations

from typing import Any

_SCHEDULER = {"enabled": True, "schedulerImage": "kube-scheduler:v1.36.2"}
CLAIMS = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": {"claims": {"cpus": "8-9"}}}
POOLS = [
    {"name": "web", "nodeSelector": {"pool": "web"}},
    {
        "name": "fast",
        "nodeSelector": {"pool": "fast"},
        "agent": {"resources": {"reservedSystemCPUs": "0-3", "topologyManagerPolicy": "single-numa-node"}},
        "podResources": {"limits": {"memory": "512Mi"}},
        "hostPaths": [{"name": "devices", "path": "/var/lib/kubelet/device-plugins", "writable": True}],
    },
    {
        "name": "observed",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["old"]}]}
        ]}}},
        "agent": {"resources": {"reservedSystemCPUs": "0-1"}, "refusals": "hold"},
        "observe": True,
        "tolerations": [],
        "podCgroup": "kubepods",
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "logLevel": "debug",
        "extraEnv": [{"name": "A", "value": "b"}],
    },
]  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "nameOverride": "slicer",
    "fullnameOverride": "whole",
    "commonLabels": {"team": "nodes"},
    "image": {"repository": "registry.example/podslice", "digest": "", "tag": "1.2", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "agent": {
        "reconcileSeconds": 20, "nodeResourceTopology": "own", "policy": CLAIMS,
        "sources": {"kubelet": {"caFile": "/k.crt"}, "waitSeconds": 0.5},
    },
    "pools": POOLS,
    "admissionPolicies": True,
    "observe": True,
    "logLevel": "warning",
    "hostNetwork": False,
    "hostPID": True,
    "metricsPort": 9999,
    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
    "monitoring": {
        "podMonitor": False, "serviceMonitor": True, "prometheusRule": True, "dashboard": True,
        "labels": {"release": "x"},
    },
    "statusPort": 9098,
    "statusSecret": "status",
    "kubectlRights": True,
    "cluster": {
        **_SCHEDULER, "namespace": "placing", "createNamespace": True, "schedulerName": "numa", "replicas": 3,
        "certificates": "generate", "certificateDays": 90, "tlsSecret": "unused", "ca": "", "caConfigMap": "",
        "issuer": {},
        "pageSecret": "page", "plan": "honour", "advise": True, "evict": True, "compatible": ["0.0.9", "0.0.8"],
        "logLevel": "debug", "resources": {"limits": {"memory": "2Gi"}},
        "schedulerResources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"role": "infra"}, "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "important", "podDisruptionBudget": True, "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"}, "extraEnv": [{"name": "E", "value": "f"}],
    },
    "dra": {"enabled": True, "accounting": True, "numaList": True, "order": "mostFree", "deviceClass": False},
    "podCgroup": "kubepods",
    "hostPaths": [
        {"name": "manifests", "path": "/etc/kubernetes/manifests"},
        {"name": "devices", "path": "/d", "writable": True, "type": "File"},
    ],
    "nodeSelector": {"podslice": "on"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "",
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    "podResources": {"limits": {"memory": "1Gi"}},
    "podLabels": {"g": "h"},
    "podAnnotations": {"i": "j"},
    "serviceAccountAnnotations": {"k": "l"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
}  # fmt: skip
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "pools": {"pools": POOLS},
    "host network": {"hostNetwork": True, "hostPID": True},
    "claims": {"dra": {"enabled": True}, "agent": {"policy": CLAIMS}},
    "scheduler": {"cluster": _SCHEDULER},
    "scheduler, one replica": {"cluster": {**_SCHEDULER, "replicas": 1}, "metricsFrom": [{"podSelector": {}}]},
    "scheduler, cert-manager": {"cluster": {**_SCHEDULER, "certificates": "certManager"}},
    "scheduler, an issuer": {
        "cluster": {
            **_SCHEDULER,
            "certificates": "certManager",
            "issuer": {"name": "i", "kind": "ClusterIssuer"},
            "ca": CA,
        }
    },
    "scheduler, own Secret": {
        "cluster": {**_SCHEDULER, "certificates": "secret", "tlsSecret": "mine", "caConfigMap": "authority"},
        "monitoring": {"podMonitor": True, "prometheusRule": True},
    },
    "no readers": {"statusPort": 0, "kubectlRights": False},
    "no policies": {"admissionPolicies": False},
    "refusals are held": {"agent": {"refusals": "hold"}},
    "only the kubelet's list": {"agent": {"sources": {"apiServer": False, "kubelet": {"everySeconds": 5}}}},
    "a setting less": {"agent": {"sources": {"annotation": None}}},
}
