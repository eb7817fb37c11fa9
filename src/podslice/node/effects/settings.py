"""The facts of a node and its kubelet configuration that decide about cgroup values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.config.kubelet import KubeletConfig
from podslice.node.effects.cpu_weight import DEFAULT_PERIOD_US
from podslice.values.duration import DurationError, parse_duration
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

NO_RESERVATION, TIERED, EVERY_REQUEST = "None", "TieredReservation", "every request"
RESERVATION_POLICIES = (NO_RESERVATION, TIERED)
LIMITED_SWAP = "LimitedSwap"
DEFAULT_HUGE_PAGES = (2 << 20, 1 << 30)


class CgroupSettings(msgspec.Struct, frozen=True):
    """Settings of one node. Amounts are bytes.

    `memory_capacity` and `swap_capacity` are the machine's, `memory_allocatable` is the amount for pods (None:
    unknown). `huge_pages` are the machine's page sizes in its own order. `cfs_quota` and `cfs_period_us` are the
    kubelet's cpuCFSQuota and cpuCFSQuotaPeriod; `kill_whole_container` is the opposite of singleProcessOOMKill.
    `swap_behavior` counts where the kernel has a swap controller. `reservation_policy` (EVERY_REQUEST: that of a
    release without one), `throttling_factor` (None: nothing is throttled), `memory_allocatable` and `page_size` belong
    to MemoryQoS. `linear_runtime_weight`: the container runtime converts CPU shares to weights as it did before
    opencontainers/cgroups 0.0.6.
    """

    memory_capacity: int
    swap_capacity: int = 0
    cgroup_version: int = 2
    huge_pages: tuple[int, ...] = DEFAULT_HUGE_PAGES
    cfs_quota: bool = True
    cfs_period_us: int = DEFAULT_PERIOD_US
    kill_whole_container: bool = True
    swap_controller: bool = True
    swap_behavior: str = ""
    reservation_policy: str = NO_RESERVATION
    throttling_factor: float | None = DEFAULT.throttling_factor
    memory_allocatable: int | None = None
    page_size: int = 4096
    linear_runtime_weight: bool = False

    def quota_period(self, gates: Mapping[str, bool]) -> int:
        """Return the microseconds that quotas are computed for; the setting counts only with gate
        CustomCPUCFSQuotaPeriod."""
        return self.cfs_period_us if gates["CustomCPUCFSQuotaPeriod"] else DEFAULT_PERIOD_US


def cgroup_settings(
    config: KubeletConfig,
    release: Release,
    *,
    memory_capacity: int,
    huge_pages: tuple[int, ...] = (),
    memory_allocatable: int | None = None,
    swap_capacity: int = 0,
    cgroup_version: int = 2,
) -> CgroupSettings:
    """Return the settings of a configuration under a release, on a machine with this memory in bytes and pages of these
    sizes."""
    single_process = config.single_process_oom_kill
    factor = config.memory_throttling_factor
    return CgroupSettings(
        memory_capacity=memory_capacity,
        swap_capacity=swap_capacity,
        cgroup_version=cgroup_version,
        huge_pages=huge_pages or DEFAULT_HUGE_PAGES,
        cfs_quota=config.cpu_cfs_quota,
        cfs_period_us=cfs_period_us(config),
        kill_whole_container=not (cgroup_version == 1 if single_process is None else single_process),
        swap_behavior=str(config.memory_swap.get("swapBehavior", "")),
        reservation_policy=EVERY_REQUEST if release.protects_every_request else config.memory_reservation_policy,
        throttling_factor=release.throttling_factor if factor is None else factor,
        memory_allocatable=memory_allocatable,
    )


def cfs_period_us(config: KubeletConfig) -> int:
    """Return the configured CFS period in microseconds; the default where it cannot be read."""
    try:
        return parse_duration(config.cpu_cfs_quota_period) // 1000 or DEFAULT_PERIOD_US
    except DurationError:
        return DEFAULT_PERIOD_US
