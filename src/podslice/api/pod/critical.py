"""Pods that a node must not lose: static ones and those of the system's priority classes."""

from __future__ import annotations

from podslice.api.pod.spec import Pod

_CRITICAL_PRIORITY = 2_000_000_000
_NODE_CRITICAL_CLASS = "system-node-critical"
_SOURCE, _MIRROR = "kubernetes.io/config.source", "kubernetes.io/config.mirror"


def is_critical(pod: Pod) -> bool:
    """True for static and mirror pods, and from the priority of system-cluster-critical on."""
    annotations = pod.metadata.annotations or {}
    if annotations.get(_SOURCE, "api") != "api" or _MIRROR in annotations:
        return True
    return pod.spec.priority is not None and pod.spec.priority >= _CRITICAL_PRIORITY


def is_node_critical(pod: Pod) -> bool:
    """True for critical pods of the class system-node-critical: their containers are the last the kernel kills."""
    return pod.spec.priority_class_name == _NODE_CRITICAL_CLASS and is_critical(pod)
