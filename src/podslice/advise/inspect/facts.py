"""Facts of a node that the page needs; all of them may be unknown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.spec import ResourceList
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.node.effects.cpu_weight import DEFAULT_PERIOD_US
from podslice.node.effects.settings import DEFAULT_HUGE_PAGES, DEFAULT_THROTTLING_FACTOR, CgroupSettings
from podslice.values.duration import DurationError, parse_duration
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
        config = self.config
        single_process = config.single_process_oom_kill
        allocatable = (self.allocatable or {}).get("memory")
        return CgroupSettings(
            memory_capacity=self.memory_capacity or 0,
            cgroup_version=self.cgroup_version,
            huge_pages=self.page_sizes,
            cfs_quota=config.cpu_cfs_quota,
            cfs_period_us=cfs_period_us(config),
            kill_whole_container=not (self.cgroup_version == 1 if single_process is None else single_process),
            reservation_policy=config.memory_reservation_policy,
            throttling_factor=config.memory_throttling_factor or DEFAULT_THROTTLING_FACTOR,
            memory_allocatable=None if allocatable is None else allocatable.value(),
        )


def cfs_period_us(config: KubeletConfig) -> int:
    """Return the configured CFS period in microseconds; the default where it cannot be read."""
    try:
        return parse_duration(config.cpu_cfs_quota_period) // 1000 or DEFAULT_PERIOD_US
    except DurationError:
        return DEFAULT_PERIOD_US


Gates = Mapping[str, bool]
