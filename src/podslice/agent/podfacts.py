"""Facts about pods and containers that others have: the sources of pods, the container files, cgroups, API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.agent.cgroups.reconcile import cpu_limit_in, pinned_in
from podslice.agent.kubelet.arriving import Awaiting
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.resize.resize_requests import Specifications
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.translate import variables_of
from podslice.api.pod.spec import Pod
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri


class GatheredFacts(NamedTuple):
    """Implements `contract.PodFacts`. Of a part that is None nothing is known."""

    sources: Specifications | None = None
    files: ContainerFiles | None = None
    tree: CgroupTree | None = None
    awaiting: Awaiting | None = None

    def find(self, identity: Identity) -> Pod | None:
        """Return the pod's specification, as the first source has it that knows the pod."""
        return None if self.sources is None else self.sources.find(identity)

    def environment(self, container: nri.Container) -> Mapping[str, str]:
        """Return the variables that the container was given, by its file where there is one."""
        return variables_of(container) if self.files is None else self.files.environment(container)

    def pod_limit(self, identity: Identity) -> int | None:
        """Return the CPU limit in the pod's cgroup in millicores."""
        return None if self.tree is None else cpu_limit_in(self.tree, identity)

    def awaited(self, uid: str) -> Identity | None:
        """Return the pod of this UID if the API server has it on this node."""
        return None if self.awaiting is None else self.awaiting(uid)

    def runs_on(self, record: ContainerRecord) -> Pinning:
        """Return the CPUs and NUMA nodes in the container's cgroup."""
        return Pinning() if self.tree is None else pinned_in(self.tree, record)
