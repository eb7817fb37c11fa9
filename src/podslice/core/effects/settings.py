"""What of a node and its kubelet configuration decides about cgroup values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.effects.cpu_weight import DEFAULT_PERIOD_US

NO_RESERVATION, TIERED = "None", "TieredReservation"
RESERVATION_POLICIES = (NO_RESERVATION, TIERED)
LIMITED_SWAP = "LimitedSwap"


class CgroupSettings(msgspec.Struct, frozen=True):
    """The node. Amounts are bytes.

    `memory_capacity` and `swap_capacity` are the machine's, `memory_allocatable` what pods may use (None: unknown).
    `huge_pages` are the machine's page sizes in its own order. `cfs_quota` and `cfs_period_us` are the kubelet's
    cpuCFSQuota and cpuCFSQuotaPeriod; `kill_whole_container` is singleProcessOOMKill turned round. `swap_behavior`
    counts where the kernel has a swap controller. The last four belong to MemoryQoS.
    """

    memory_capacity: int
    swap_capacity: int = 0
    cgroup_version: int = 2
    huge_pages: tuple[int, ...] = (2 << 20, 1 << 30)
    cfs_quota: bool = True
    cfs_period_us: int = DEFAULT_PERIOD_US
    kill_whole_container: bool = True
    swap_controller: bool = False
    swap_behavior: str = ""
    reservation_policy: str = NO_RESERVATION
    throttling_factor: float = 0.9
    memory_allocatable: int | None = None
    page_size: int = 4096

    def quota_period(self, gates: Mapping[str, bool]) -> int:
        """Microseconds that quotas are computed for; only gate CustomCPUCFSQuotaPeriod makes the setting count."""
        return self.cfs_period_us if gates["CustomCPUCFSQuotaPeriod"] else DEFAULT_PERIOD_US
