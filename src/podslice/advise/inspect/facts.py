"""Facts of a node that the page needs; all of them may be unknown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.spec import ResourceList
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.node.effects.settings import DEFAULT_HUGE_PAGES, CgroupSettings, cgroup_settings
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT


class KnownNode(msgspec.Struct, frozen=True):
    """Facts of a node. `memory_capacity` is in bytes, None when not known; `allocatable` is as in the Node object, None
    when not known, and `complete` if a resource missing there does not exist; `page_sizes` are in bytes; `os` is as in
    the Node's label; `policy` is the node's PodslicePolicy, `release` the kubelet's."""

    config: KubeletConfig = KubeletConfig()
    memory_capacity: int | None = None
    allocatable: ResourceList | None = None
    complete: bool = False
    page_sizes: tuple[int, ...] = DEFAULT_HUGE_PAGES
    cgroup_version: int = 2
    os: str = "linux"
    policy: PodslicePolicy = NO_POLICY
    release: Release = DEFAULT

    @property
    def settings(self) -> CgroupSettings:
        """The settings of the node on which cgroup values depend."""
        allocatable = (self.allocatable or {}).get("memory")
        return cgroup_settings(
            self.config,
            self.release,
            memory_capacity=self.memory_capacity or 0,
            huge_pages=self.page_sizes,
            memory_allocatable=None if allocatable is None else allocatable.value(),
            cgroup_version=self.cgroup_version,
        )


Gates = Mapping[str, bool]
