"""Finds sandboxes that ended without a notification.

containerd notifies plugins only about the end of sandboxes it started itself: after its restart older pods stop and
disappear silently (containerd issue 8426). Their resources would never be released, so their cgroups are watched as
well.
"""

from __future__ import annotations

from functools import partial

from podslice.agent.owner import Owner
from podslice.agent.records import SandboxRecord
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.service.identity import Identity


class VanishedSandboxes:
    """Finds and releases vanished sandboxes.

    A sandbox has vanished when a cgroup that existed, its own or its pod's, no longer exists and none of its containers
    has one. A cgroup that was never seen proves nothing: some runtimes keep sandboxes elsewhere.
    """

    def __init__(self, owner: Owner, tree: CgroupTree) -> None:
        self._owner = owner
        self._tree = tree
        self._seen: dict[str, set[str]] = {}

    def run(self) -> list[Identity]:
        """Release what vanished sandboxes held; return the pods they belonged to."""
        if not self._tree.usable:
            return []
        self._seen = {id: seen for id, seen in self._seen.items() if id in self._owner.sandboxes}
        there = [sandbox for sandbox in self._owner.sandboxes.values() if not sandbox.stopped]
        return [
            sandbox.identity
            for sandbox in there
            if self._owner.seam.attempt("vanished", sandbox.identity, partial(self._release, sandbox)) is True
        ]

    def _release(self, sandbox: SandboxRecord) -> bool:
        if not self._has_gone(sandbox):
            return False
        self._owner.remove_pod(sandbox.id)
        return True

    def has_ended(self, identity: Identity) -> bool:
        """Return whether a listed sandbox without containers ended while the agent was down.

        It has reported its cgroup, and that does not exist. A finished pod keeps its sandbox listed until it is
        deleted.
        """
        return self._tree.usable and any(not self._tree.exists(path) for path in _paths(identity.sandbox_cgroup))

    def _has_gone(self, sandbox: SandboxRecord) -> bool:
        seen = self._seen.setdefault(sandbox.id, set())
        missing = False
        for path in _paths(sandbox.identity.sandbox_cgroup, sandbox.identity.cgroup_parent):
            if self._tree.exists(path):
                seen.add(path)
            elif path in seen:
                missing = True
        # A container that still has a cgroup shows that the sandbox has not ended.
        return missing and not any(
            self._tree.exists(path)
            for container in self._owner.containers.values()
            if container.sandbox == sandbox.id
            for path in _paths(container.cgroups_path)
        )


def _paths(*cgroups: str) -> list[str]:
    return [path for cgroup in cgroups if (path := cgroup_path(cgroup)) is not None]
