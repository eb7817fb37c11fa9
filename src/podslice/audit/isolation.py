"""Observing the exclusive CPUs of a node's state files: the isolation report of docs/isolation.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from podslice.audit.containers import FoundContainer, find_containers
from podslice.audit.state import RecordedState
from podslice.host.filesystem import DiskFileSystem, FileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.isolation.facts import IsolationFacts
from podslice.isolation.kernel_facts import IsolationSources, OwnedCgroup, read_isolation

_PODS = ("kubepods", "kubepods.slice")


def node_isolation(
    state: RecordedState,
    tree: CgroupTree,
    names: Mapping[str, str],
    *,
    proc: FileSystem,
    sys: FileSystem,
    wait: Callable[[], float],
) -> IsolationFacts:
    """Return what is observed of the containers with exclusive CPUs while `wait` lets time pass."""
    containers = find_containers(tree)
    owners = list(_owners(state, containers, tree, names))
    taken = {one.path for one in owners if one.path}
    others = dict(_others(containers, tree, names, taken))
    return read_isolation(owners, IsolationSources(proc, DiskFileSystem(tree.root), sys, others), wait=wait)


def _owners(
    state: RecordedState, containers: list[FoundContainer], tree: CgroupTree, names: Mapping[str, str]
) -> Iterator[OwnedCgroup]:
    """Yield every assignment with its container's cgroup: by name, else by its set."""
    for uid, assigned in sorted(state.assignments.items()):
        found = [one for one in containers if one.pod == uid]
        named = {names[one.id]: one.path for one in found if one.id in names}
        for name, cpus in sorted(assigned.items()):
            # Names are missing where the node's log folder cannot be read.
            by_set = (one.path for one in found if tree.effective_cpus(one.path) == cpus or tree.cpus(one.path) == cpus)
            yield OwnedCgroup(uid, name, named.get(name) or next(by_set, ""), cpus)


def _others(
    containers: list[FoundContainer], tree: CgroupTree, names: Mapping[str, str], taken: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield cgroups that own no CPUs: containers, their pods' sandboxes, and those beside the pods."""
    for one in containers:
        if one.path not in taken:
            yield one.path, "sandbox" if names and one.id not in names else "container"
    for name in tree.children(""):
        if name not in _PODS:
            yield name, "other"
