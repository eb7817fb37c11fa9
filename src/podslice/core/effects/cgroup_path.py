"""Where a pod's cgroup lies, with the systemd driver that distributions use (spec pod-level-resources 11)."""

from __future__ import annotations

_ROOT = "kubepods"


def pod_cgroup_path(uid: str, qos: str) -> str:
    """Path of a pod's slice below the cgroup root; Guaranteed pods lie directly under `kubepods.slice`."""
    parent = _ROOT if qos == "Guaranteed" else f"{_ROOT}-{qos.lower()}"
    slices = f"/{_ROOT}.slice" if parent == _ROOT else f"/{_ROOT}.slice/{parent}.slice"
    return f"{slices}/{parent}-pod{uid.replace('-', '_')}.slice"
