"""The containers of a node, by their cgroups."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from podslice.host.kernel.cgroup2 import CgroupTree

POD = re.compile(r"(?:^|[-/])pod([0-9a-fA-F][0-9a-fA-F_-]{7,63}?)(?:\.slice)?$")
_CONTAINER = re.compile(r"^(?:[a-z0-9-]+?-)?([0-9a-f]{64})(?:\.scope)?$")
_LOG = re.compile(r"_([^_]+)-([0-9a-f]{64})\.log$")
_MONITOR = "crio-conmon-"
"""Prefix of CRI-O's monitor of a container, which has the container's id in its name and sleeps in a cgroup of its
own."""


class FoundContainer(msgspec.Struct, frozen=True):
    """A container's cgroup."""

    pod: str
    id: str
    path: str


def find_containers(tree: CgroupTree) -> list[FoundContainer]:
    """Find containers by their cgroups, with the cgroupfs and the systemd driver."""
    found = []
    for path in tree.walk():
        parent, _, name = path.rpartition("/")
        match, pod = _CONTAINER.match(name), POD.search(parent)
        if match and pod and not name.startswith(_MONITOR):
            # The systemd driver writes UIDs with underscores, since a dash separates slices.
            found.append(FoundContainer(pod[1].replace("_", "-"), match[1], path))
    return found


def container_names(log_folder: Path) -> dict[str, str]:
    """Map container ids to names, by the links that the kubelet keeps in `/var/log/containers`."""
    try:
        matches = (_LOG.search(path.name) for path in log_folder.iterdir())
        return {match[2]: match[1] for match in matches if match}
    except OSError:
        return {}
