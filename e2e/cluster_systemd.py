"""A node under systemd: the first process, and the driver of cgroups for containerd and the kubelet."""

from __future__ import annotations

from e2e.cluster import Cluster


class SystemdCluster(Cluster):
    """systemd makes the slices and scopes of pods, so it is asked for them and not the file system."""

    cgroup_driver = "systemd"
