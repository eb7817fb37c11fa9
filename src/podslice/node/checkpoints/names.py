"""Names and places of the kubelet's state files."""

from __future__ import annotations

from typing import Final

STAND_IN_NAMESPACE: Final = "(state)"
"""Namespace of pods that are made of state files alone; no cluster's, because parentheses are not allowed in one."""
STATE_DIRECTORY: Final = "/var/lib/kubelet"
DEVICE_DIRECTORY: Final = "device-plugins"
"""Folder below it, of the device plugins' sockets and of the device file."""

CPU_STATE_FILE: Final = "cpu_manager_state"
MEMORY_STATE_FILE: Final = "memory_manager_state"
DEVICE_STATE_FILE: Final = "kubelet_internal_checkpoint"
ALLOCATED_STATE_FILE: Final = "allocated_pods_state"
ACTUATED_STATE_FILE: Final = "actuated_pods_state"
CLAIM_STATE_FILE: Final = "dra_manager_state"
STATUS_STATE_FILE: Final = "pod_status_manager_state"
POLICY_STATE_FILE: Final = "podslice_policy_state"
GUARD_STATE_FILE: Final = "podslice_guard_state"
KUBELET_VERSION_FILE: Final = "kubelet_version"
"""In an agent's folder: the version of the kubelet beside it, as its Node object stated it last."""

MANAGER_STATE_FILES: Final = (CPU_STATE_FILE, MEMORY_STATE_FILE, DEVICE_STATE_FILE)
"""Files of the managers; the others hold the resources that were granted and actuated, and the state that podslice
alone keeps."""
NODE_STATE_FILES: Final = (*MANAGER_STATE_FILES, POLICY_STATE_FILE)
"""Files that a node writes when it decides."""


def place_of(name: str) -> str:
    """Return the file's path below a kubelet's directory."""
    return f"{DEVICE_DIRECTORY}/{name}" if name == DEVICE_STATE_FILE else name
