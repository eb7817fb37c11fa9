"""Where a pod's cgroup lies below the cgroup root (pod-level-resources 8.2)."""

from __future__ import annotations

_ROOT = "kubepods"


def pod_cgroup_path(uid: str, qos: str, *, systemd: bool = True) -> str:
    """Path of a pod's cgroup as the driver systemd (which distributions use) or cgroupfs names it.

    Guaranteed pods lie directly under the root of all pods.
    """
    parent = "" if qos == "Guaranteed" else qos.lower()
    if not systemd:
        return "/".join(("", *filter(None, (_ROOT, parent, f"pod{uid}"))))
    path, name = f"/{_ROOT}.slice", _ROOT
    for part in filter(None, (parent, f"pod{uid.replace('-', '_')}")):
        name = f"{name}-{part}"
        path = f"{path}/{name}.slice"
    return path
