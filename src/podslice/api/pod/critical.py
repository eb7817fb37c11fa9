"""Pods that a node must not lose: static ones and those of the system's priority classes."""

from __future__ import annotations

from podslice.api.pod.spec import Pod

_CRITICAL_PRIORITY = 2_000_000_000
_NODE_CRITICAL_CLASS = "system-node-critical"
_SOURCE, _MIRROR = "kubernetes.io/config.source", "kubernetes.io/config.mirror"


def is_static(pod: Pod) -> bool:
    """Whether a pod comes from a source of the kubelet's own, or is the mirror of one in the API."""
    annotations = pod.metadata.annotations or {}
    # A kubelet marks pods of its own sources by the first, their mirrors by the second.
    return annotations.get(_SOURCE, "api") != "api" or _MIRROR in annotations


def is_critical(pod: Pod) -> bool:
    """Whether a pod is static, a mirror pod, or has at least the priority of system-cluster-critical."""
    if is_static(pod):
        return True
    return pod.spec.priority is not None and pod.spec.priority >= _CRITICAL_PRIORITY


def is_node_critical(pod: Pod) -> bool:
    """Whether a pod is critical and of the class system-node-critical: the kernel kills its containers last."""
    return pod.spec.priority_class_name == _NODE_CRITICAL_CLASS and is_critical(pod)
