"""Reasons of a refused pod: the words of `status.reason`, which programs and people search for.

Kubernetes defines most of them. Those at the end are podslice's own, for cases that a kubelet does not notice or
survive.
"""

from __future__ import annotations

from typing import Final

TOPOLOGY_AFFINITY: Final = "TopologyAffinityError"
SMT_ALIGNMENT: Final = "SMTAlignmentError"
EMPTY_POD_SHARED_POOL: Final = "EmptyPodSharedPoolError"
UNEXPECTED_ADMISSION: Final = "UnexpectedAdmissionError"
INVALID_NODE_INFO: Final = "InvalidNodeInfo"
POD_OS_LABEL: Final = "PodOSSelectorNodeLabelDoesNotMatch"
POD_OS: Final = "PodOSNotSupported"
NODE_AFFINITY: Final = "NodeAffinity"
NODE_NAME: Final = "NodeName"
POD_LEVEL_RESOURCES: Final = "PodLevelResourcesNotSupported"
INIT_RESTART_POLICY: Final = "InitContainerRestartPolicyForbidden"
POD_FEATURE: Final = "PodFeatureUnsupported"
OUT_OF_PODS: Final = "OutOfpods"
_OUT_OF = "OutOf"

EMPTY_NODE_SHARED_POOL: Final = "EmptyNodeSharedPoolError"
MEMORY_GROUP: Final = "MemoryGroupError"
AMOUNT_OVERFLOW: Final = "AmountOverflowError"
INVALID_POD: Final = "InvalidPod"
POD_TOO_LARGE: Final = "PodTooLarge"
UPSTREAM_DEFECT: Final = "UpstreamDefect"
CPU_CLASS_UNAVAILABLE: Final = "CPUClassUnavailable"
INVALID_ANNOTATION: Final = "InvalidPodsliceAnnotation"
PLUGIN_ERROR: Final = "PodslicePluginError"
"""An event: a plugin of the CPU Manager broke its contract, and the policy admits the pod."""
CLASS_FALLBACK: Final = "PodsliceClassFallback"
"""An event: a container shares CPUs of none of the CPU classes that it requests."""

OURS: Final = frozenset(
    {
        EMPTY_NODE_SHARED_POOL,
        MEMORY_GROUP,
        AMOUNT_OVERFLOW,
        INVALID_POD,
        POD_TOO_LARGE,
        UPSTREAM_DEFECT,
        CPU_CLASS_UNAVAILABLE,
        INVALID_ANNOTATION,
    }
)

REJECTED: Final = "Pod was rejected: "
"""Prefix that a kubelet puts before the message in the status of a refused pod."""


def out_of(resource: str) -> str:
    """Return the reason for a lack of a resource of the whole node: `OutOfcpu`, `OutOfexample.com/gpu`."""
    return f"{_OUT_OF}{resource}"


def is_out_of(reason: str) -> bool:
    """Whether the reason is a lack of a resource of the whole node."""
    return reason.startswith(_OUT_OF)
